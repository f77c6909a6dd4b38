"""Temporary folders go with their process, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tactix.base import scratch
from tactix.base.scratch import OWNER, ScratchFolder, sweep

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="no locks of this kind, and no signals"
)

HOLDS = """
import sys, time
from tactix.base.scratch import ScratchFolder
held = ScratchFolder(sys.argv[1])
print(held.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def other(tmp_path):
    """Another process, which holds a folder in ``tmp_path``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    yield process, folder
    process.kill()
    process.communicate()


def test_a_folder_ends_with_its_block(tmp_path):
    with ScratchFolder(tmp_path) as name:
        assert Path(name).parent == tmp_path
        Path(name, "full").write_text("x")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_swept(tmp_path, other):
    process, folder = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.is_dir()
    with ScratchFolder(tmp_path) as name:
        assert [p.name for p in tmp_path.iterdir()] == [Path(name).name]


def test_what_a_living_process_holds_stays(tmp_path, other):
    _, folder = other
    with ScratchFolder(tmp_path) as own:
        sweep(tmp_path)
        assert {str(p) for p in tmp_path.iterdir()} == {str(folder), own}


def test_what_is_no_scratch_folder_stays(tmp_path):
    (tmp_path / "tactix-notes").mkdir()  # of somebody who likes the name
    (tmp_path / "tactix-file").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / OWNER).touch()
    (tmp_path / "tactix-link").symlink_to(tmp_path / "elsewhere")
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    assert (tmp_path / "elsewhere" / OWNER).exists()


def test_a_folder_is_looked_through_once(tmp_path, monkeypatch):
    swept = []
    monkeypatch.setattr(scratch, "sweep", swept.append)
    for _ in range(3):
        ScratchFolder(tmp_path).cleanup()
    assert swept == [tmp_path]


def test_where_there_are_no_locks_folders_are_made_and_removed_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "fcntl", None)
    with ScratchFolder(tmp_path) as name:
        assert Path(name).is_dir()
    assert not list(tmp_path.iterdir())
