"""Cores that a process has for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tactix.base.errors import ConfigError
from tactix_cluster import core_lease
from tactix_cluster.core_lease import lease, physical_cores
from tactix_cluster.ray_library import ray_module

HOLDS = """
import sys
from pathlib import Path
from tactix_cluster.core_lease import lease
held = lease(int(sys.argv[1]), Path(sys.argv[2]))
print(held.cores, flush=True)
sys.stdin.read()
"""


def test_what_one_has_no_other_gets(tmp_path: Path) -> None:
    every = len(physical_cores())
    first = lease(every, tmp_path)
    assert first is not None
    assert first.cores == tuple(physical_cores())
    assert lease(1, tmp_path) is None
    first.release()
    again = lease(1, tmp_path)
    assert again is not None
    assert again.cores == first.cores[:1]
    again.release()


def test_what_cannot_be_had_whole_is_left_to_others(tmp_path: Path) -> None:
    assert lease(len(physical_cores()) + 1, tmp_path) is None
    rest = lease(len(physical_cores()), tmp_path)
    assert rest is not None
    rest.release()


def test_cores_of_a_process_that_was_killed_are_free(tmp_path: Path) -> None:
    every = str(len(physical_cores()))
    command = [sys.executable, "-c", HOLDS, every, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline()
        assert lease(1, tmp_path) is None
        other.kill()
        other.wait()
    found = lease(1, tmp_path)
    assert found is not None
    found.release()


OCCUPIES = """
import os, sys, threading
from pathlib import Path
from tactix_cluster.core_lease import lease
begin, told = threading.Event(), []
thread = threading.Thread(target=lambda: (begin.wait(), told.append(os.sched_getaffinity(0))))
thread.start()
held = lease(1, Path(sys.argv[1]))
held.occupy()
begin.set()
thread.join()
print([*told[0]] == [*held.cores], os.sched_getaffinity(0) == set(held.cores))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_all_threads_keep_to_the_cores(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OCCUPIES, str(tmp_path)]
    assert subprocess.check_output(command, text=True) == "True True\n"


def test_threads_that_share_a_core_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for core, siblings in ((0, "0,2"), (1, "1"), (2, "0,2")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    monkeypatch.setattr(core_lease, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert list(physical_cores()) == [0, 1]


def test_without_ray_an_error_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"ray is not installed.*pip install 'tactix\[ray\]'"):
        ray_module()


def test_a_ray_that_cannot_be_imported_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ray.py").write_text("raise RuntimeError('another protobuf')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(ConfigError, match="ray cannot be imported: RuntimeError: another protobuf"):
        ray_module()
