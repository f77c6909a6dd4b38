"""Candidates that lose the device, end their process or never end cost themselves the race, and not
the build: they are tried in a process of their own.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import cuda_engine as e
import fake_driver
import fatal_kernels as f
import pytest
from fake_driver import FakeApi, FakeKernel, fake_device
from kept_log import KeptLog

import tactix
from tactix.base.progress import SilentProgress
from tactix.contracts.tactic import Tactic
from tactix.select.timing_cache import TimingCache
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.nvrtc import why_missing
from tactix_isolate import device_process
from tactix_isolate.allowance import FAILURES, TIMEOUT
from tactix_isolate.device_process import DeviceProcess
from tactix_isolate.process import NoProcess, Worker

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


def refused(*args: Any) -> None:
    raise AssertionError("it was run in the process of the build")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApi:
    """The driver of this process, in which harmful kernels do not run, and another one's beside."""
    harmful = {symbol(t.code): FakeKernel(4, refused) for t in f.HARMFUL.values()}
    own = {symbol(t.code): FakeKernel(4, f.add) for t in (e.RIGHT, f.UNSENDABLE, f.SAME)}
    device, api = fake_device(own | harmful)
    monkeypatch.setattr(real, "the_device", lambda: device)
    monkeypatch.setattr(CudaDevice, "stands_in", False)
    for name in ("driver", "nvrtc"):
        importlib.import_module(f"cuda.bindings.{name}")
    monkeypatch.setattr(sys, "path", [str(f.stand_in(tmp_path / "bindings")), *sys.path])
    monkeypatch.setenv(TIMEOUT, "2")
    return api


def net(built: tactix.Builder, layers: int = 1) -> Any:
    """Sums of different sizes."""
    made = built.create_network("sums")
    for i in range(layers):
        x = made.add_input(f"x{i}", "f32", (301 + i,))
        (y,) = made.add_layer("tactix.Add", [x, x], name=f"sum{i}")
        made.mark_output(y, f"y{i}")
    return made


def built(
    tactics: list[Tactic], cache: Path | bool = False, layers: int = 1, **fields: Any
) -> tuple[tactix.Plan, list[str]]:
    heard = KeptLog()
    builder = f.builder(tactics, heard)
    plan = builder.build_plan(net(builder, layers), e.config(timing_cache=cache, **fields))
    return plan, heard.warnings


def rows(plan: tactix.Plan, node: str = "sum0") -> dict[str, Any]:
    return {r["tactic"]: r for r in plan.ledger["nodes"][node]["candidates"]}


SAID = {
    "lost": "lost the device when it was tried: CUDA_ERROR_LAUNCH_FAILED",
    "lost_later": "lost the device when it was tried: CUDA_ERROR_LAUNCH_FAILED",
    "exit": "ended the process with exit code 3",
    "hang": "did not end within 2 s",
}


@pytest.mark.parametrize("name", SAID)
def test_who_is_fatal_is_named_and_left_out_and_the_build_goes_on(
    api: FakeApi, tmp_path: Path, name: str
) -> None:
    cache = tmp_path / "timings.json"
    bad = f.HARMFUL[name]
    plan, warnings = built([bad, e.RIGHT], cache)
    found = rows(plan)
    assert found[bad.key]["status"] == "rejected"
    assert SAID[name] in found[bad.key]["reason"]
    assert found["test.right@1"]["status"] == "measured"
    assert found["test.right@1"]["chosen"]
    (told,) = [w for w in warnings if "sum0" in w]
    assert bad.key in told
    assert SAID[name] in told
    assert "left out from now on" in told
    assert any(t.error == float("inf") for t in TimingCache(cache).entries.values())
    again, warnings = built([bad, e.RIGHT], cache)
    assert rows(again)[bad.key]["status"] == "rejected"
    assert rows(again)["test.right@1"]["status"] == "cached"
    assert not warnings


def test_who_is_killed_is_rejected_in_this_build_alone(api: FakeApi, tmp_path: Path) -> None:
    cache = tmp_path / "timings.json"
    bad = f.HARMFUL["killed"]
    plan, _ = built([bad, e.RIGHT], cache)
    assert "was killed with SIGKILL" in rows(plan)[bad.key]["reason"]
    assert rows(plan)["test.right@1"]["chosen"]
    assert all(t.error <= 1 for t in TimingCache(cache).entries.values())


def test_all_of_a_race_are_tried_after_one_was_fatal(api: FakeApi) -> None:
    every = [*f.HARMFUL.values(), e.RIGHT]
    plan, warnings = built(every)
    found = rows(plan)
    assert {k for k, r in found.items() if r["status"] == "rejected"} >= {
        t.key for t in f.HARMFUL.values()
    }
    assert found["test.right@1"]["status"] == "measured"
    assert sum("left out from now on" in w for w in warnings) == len(SAID)


def test_no_more_of_a_tactic_are_tried_once_some_were_fatal(api: FakeApi) -> None:
    bad = f.HARMFUL["exit"]
    plan, _ = built([bad, e.RIGHT], layers=FAILURES + 1)
    reasons = [rows(plan, f"sum{i}")[bad.key]["reason"] for i in range(FAILURES + 1)]
    assert sum("exit code 3" in r for r in reasons) == FAILURES
    assert sum("was not tried" in r for r in reasons) == 1
    assert all(rows(plan, f"sum{i}")["test.right@1"]["chosen"] for i in range(FAILURES + 1))


def test_times_and_errors_come_from_the_process(api: FakeApi) -> None:
    plan, warnings = built([e.RIGHT, e.WRONG])
    assert rows(plan)["test.right@1"]["status"] == "measured"
    assert not api.ran
    assert "its machine code has no kernel" in rows(plan)["test.wrong@1"]["reason"]
    assert not warnings


def test_what_cannot_be_sent_is_tried_in_the_process_of_the_build(api: FakeApi) -> None:
    plan, warnings = built([f.UNSENDABLE, e.RIGHT])
    assert {r["status"] for r in rows(plan).values() if r["tactic"].startswith("test")} == {
        "measured"
    }
    (told,) = warnings
    assert "test.unsendable@1 is tried in the process of the build" in told


def test_a_constant_that_is_large_is_read_there(api: FakeApi) -> None:
    import numpy as np

    heard = KeptLog()
    builder = f.builder([e.RIGHT], heard)
    made = builder.create_network("large")
    x = made.add_input("x", "f32", (100_000,))
    w = made.add_constant(np.linspace(-1, 1, 100_000, dtype=np.float32))
    (y,) = made.add_layer("tactix.Add", [x, w], name="sum0")
    made.mark_output(y, "y")
    plan = builder.build_plan(made, e.config())
    assert rows(plan)["test.right@1"]["status"] == "measured"
    assert not heard.warnings
    assert not api.ran


@pytest.mark.parametrize("how", ["none starts", "exclusive"])
def test_without_a_process_candidates_are_tried_here(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "exclusive":
        monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_MODE", 3)
    else:
        monkeypatch.setattr(device_process, "MODULE", "tactix_isolate.no_such_module")
    plan, warnings = built([e.RIGHT], layers=2)
    assert rows(plan)["test.right@1"]["status"] == "measured"
    assert api.ran
    (told,) = warnings
    assert "candidates are tried in the process of the build" in told
    assert ("compute mode (3)" if how == "exclusive" else "no_such_module") in told


def test_without_another_process_the_rest_of_a_race_is_tried_here(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Worker] = []
    start = Worker._start

    def once(worker: Worker) -> None:
        if started:
            raise NoProcess("no more of them")
        started.append(worker)
        start(worker)

    monkeypatch.setattr(Worker, "_start", once)
    bad = f.HARMFUL["lost"]
    plan, warnings = built([bad, e.RIGHT, f.SAME], layers=2)
    for node in ("sum0", "sum1"):
        found = rows(plan, node)
        assert found["test.right@1"]["status"] == found["test.same@1"]["status"] == "measured"
    assert "lost the device" in rows(plan)[bad.key]["reason"]
    assert "was not tried: one of this tactic" in rows(plan, "sum1")[bad.key]["reason"]
    assert sum("no more of them" in w for w in warnings) == 1


def test_nothing_starts_where_all_is_cached(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "timings.json"
    built([e.RIGHT], cache)

    def begin(process: DeviceProcess) -> None:
        raise AssertionError

    monkeypatch.setattr(DeviceProcess, "begin", begin)
    plan, _ = built([e.RIGHT], cache)
    assert rows(plan)["test.right@1"]["status"] == "cached"


class Listed(SilentProgress):
    def __init__(self, found: list[str]) -> None:
        self.found = found

    def phase(self, name: str, total: int) -> None:
        self.found.append(name)


def test_the_process_starts_beside_the_bids_if_it_is_surely_needed(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[str] = []
    begin = DeviceProcess.begin

    def told(process: DeviceProcess) -> None:
        found.append("process")
        begin(process)

    monkeypatch.setattr(DeviceProcess, "begin", told)
    cache = tmp_path / "timings.json"
    built([e.RIGHT], cache, progress_monitor=Listed(found))
    assert found.index("process") < found.index("bid")
    assert found.count("process") == 1
    found.clear()
    built([e.RIGHT, f.SAME], cache, progress_monitor=Listed(found))
    assert found.index("bid") < found.index("process") < found.index("compile")


class Cancelling(SilentProgress):
    """Stops a build once the first node has raced."""

    def __init__(self) -> None:
        self.raced = 0

    def step(self, name: str, done: int, message: str = "") -> None:
        self.raced += name == "measure"

    def cancelled(self) -> bool:
        return self.raced > 0


def test_a_build_that_is_stopped_ends_as_one_without_a_process(api: FakeApi) -> None:
    monitor = Cancelling()
    plan, _ = built([e.RIGHT], layers=3, progress_monitor=monitor)
    statuses = sorted(rows(plan, f"sum{i}")["test.right@1"]["status"] for i in range(3))
    assert statuses == ["estimated", "estimated", "measured"]
    assert monitor.raced == 1
