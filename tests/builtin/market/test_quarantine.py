"""The quarantine's file, and the commands over it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strangers import installed, relu

import tactix
from tactix.base.errors import ExecutionError, InvalidArgument
from tactix.contracts.device import DeviceProperties
from tactix.contracts.launcher import LinkContext
from tactix_cpu.device import CpuDevice
from tactix_isolate.process import Worker
from tactix_isolate.quarantine import Quarantine, key_of
from tactix_tools import cli

MACHINE = DeviceProperties(
    "cpu", "some processor", frozenset({"avx2"}), facts={"arch": "x86_64", "l2": 1}
)


def test_records_are_kept_for_other_processes_and_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "quarantine.json"
    first, second = Quarantine(path), Quarantine(path)
    assert first.records == second.records == {}
    first.add("aa1", {"reason": "one"})
    second.add("ab2", {"reason": "two"})
    assert set(Quarantine(path).records) == {"aa1", "ab2"}
    assert Quarantine(path).find("aa") == ("aa1", {"reason": "one"})
    for start in ("a", "c"):
        with pytest.raises(InvalidArgument, match="records begin"):
            Quarantine(path).find(start)
    assert Quarantine(path).clear(["aa1", "zz"]) == 1
    assert set(Quarantine(path).records) == {"ab2"}
    assert Quarantine(path).clear() == 1
    assert Quarantine(path).records == {}
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".lock"] == ["quarantine.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 9, "entries": {}}', '{"version": 1, "entries": {"k": {}}}']
)
def test_a_broken_file_costs_a_warning_and_is_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "quarantine.json"
    path.write_text(text)
    warnings: list[str] = []
    q = Quarantine(path, warnings.append)
    assert q.records == {}
    (warning,) = warnings
    assert "quarantine.json: cannot read the quarantine" in warning
    q.add("k", {"reason": "r"})
    assert Quarantine(path, pytest.fail).records == {"k": {"reason": "r"}}


@pytest.mark.skipif(os.name != "posix", reason="users have no numbers here")
def test_a_file_that_others_can_write_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "quarantine.json"
    Quarantine(path).add("k", {"reason": "r"})
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent)] == [0o600, 0o700]
    path.chmod(0o666)
    warnings: list[str] = []
    assert Quarantine(path, warnings.append).records == {}
    assert "others own it or can write it" in warnings[0]


def test_without_a_path_nothing_is_written() -> None:
    q = Quarantine()
    q.add("k", {"reason": "r"})
    assert q.records == {"k": {"reason": "r"}}
    assert q.clear() == 1


def test_a_bench_that_keeps_nothing_believes_and_writes_nothing(kept: Path) -> None:
    Quarantine(kept).add("k", {"reason": "r"})
    device = CpuDevice()
    bench = device.bench(LinkContext(device, 1, {}.__getitem__), {})
    bench.keep_nothing()
    assert bench.quarantine.records == {}
    bench.quarantine.add("x", {"reason": "r"})
    assert set(Quarantine(kept).records) == {"k"}


def test_a_worker_that_does_not_know_the_device_says_so() -> None:
    worker = Worker(1, "tactix.nowhere@1")
    with pytest.raises(ExecutionError, match=r"no process to try it in.*nowhere"):
        worker.ask(1, "forget")
    assert worker.pid == 0


def test_a_key_is_of_the_artifact_its_runner_and_the_machine() -> None:
    keys = [
        key_of("a", "", MACHINE), key_of("b", "", MACHINE), key_of("a", "acme 1.0", MACHINE),
        key_of("a", "", replace(MACHINE, features=frozenset())), key_of("a", "", replace(MACHINE, name="another")),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key_of("a", "", replace(MACHINE, memory=1, cores=7)) == keys[0]


def commanded(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = cli.main(["plugins", "quarantine", *words])
    out = capsys.readouterr()
    return code, json.loads(out.out) if "--json" in words and code == 0 else out.out + out.err


def test_the_commands(tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commanded(capsys, "list") == (0, "nothing\n")
    with installed(tmp_path, "acme_relu", relu("abort();")):
        b = tactix.Builder(session=tactix.Session(enable=["acme_relu"]))
        net = b.create_network()
        net.mark_output(net.add_layer("tactix.Relu", [net.add_input("x", "f32", (4, 4))])[0])
        b.build_plan(net, tactix.BuilderConfig(timing_cache=False))
    assert "SIGABRT" in capsys.readouterr().err  # the build says so, too
    code, listed = commanded(capsys, "list", "--json")
    ((key, found),) = listed["records"].items()
    assert (code, listed["path"], found["kind"]) == (0, str(kept), "crash")
    code, text = commanded(capsys, "list")
    assert all(word in text for word in (key[:12], "acme_relu.c@1", "acme-relu 1.0", "crash"))
    assert commanded(capsys, "show", key[:6], "--json") == (0, {"key": key, **found})
    code, text = commanded(capsys, "show", key[:6])
    assert "crashed with SIGABRT" in text
    assert "f32(4, 4)" in text
    code, text = commanded(capsys, "show", key, "--script")
    compile(text, "script", "exec")
    assert commanded(capsys, "show", "zzz")[0] != 0
    assert commanded(capsys, "clear")[0] != 0
    assert commanded(capsys, "clear", key[:6], "--all")[0] != 0
    assert commanded(capsys, "clear", key[:6]) == (0, "forgot 1 record\n")
    assert commanded(capsys, "clear", "--all") == (0, "forgot 0 records\n")
    assert commanded(capsys, "list") == (0, "nothing\n")
