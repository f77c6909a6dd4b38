"""What other processes take of the machine while candidates are timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.progress import SilentProgress
from tactix_isolate import machine_load
from tactix_isolate.bench import CpuBench


def clock(
    monkeypatch: pytest.MonkeyPatch, busy: list[float], own: list[float], cores: int = 2
) -> None:
    monkeypatch.setattr(machine_load, "busy", lambda: busy.pop(0))
    monkeypatch.setattr(machine_load, "own", lambda: own.pop(0))
    times = [0.0, 10.0]
    monkeypatch.setattr(machine_load.time, "perf_counter", lambda: times.pop(0))
    monkeypatch.setattr(machine_load, "usable_cores", lambda: cores)


@pytest.mark.parametrize(
    ("busy", "own", "delay"),
    [
        ([100.0, 110.0], [5.0, 15.0], 0.0),  # this process alone
        ([100.0, 120.0], [5.0, 15.0], 1.0),  # one of two cores was others'
        ([100.0, 111.0], [5.0, 15.0], 0.0),  # too little to matter
        ([100.0, 119.0], [5.0, 5.0], 2.0),  # all but a tenth of the machine
        ([-1.0], [5.0], 0.0),  # nothing tells
    ],
)
def test_delays(
    monkeypatch: pytest.MonkeyPatch, busy: list[float], own: list[float], delay: float
) -> None:
    clock(monkeypatch, busy, own)
    assert machine_load.OtherProcesses().delay() == pytest.approx(delay)


def test_what_the_system_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    rows = ["cpu  900 0 0 0 0 0 0 0 0 0", "cpu0 100 10 20 5000 7 1 2 3 0 0"]
    rows += ["cpu1 500 0 0 5000 0 0 0 0 0 0", "cpu2 4 0 0 5000 0 0 0 0 0 0", "btime 17"]
    stat.write_text("\n".join(rows))
    monkeypatch.setattr(machine_load, "STAT", stat)
    monkeypatch.setattr(machine_load.os, "sysconf", lambda name: 100, raising=False)
    cores = {0}
    monkeypatch.setattr(machine_load.os, "sched_getaffinity", lambda pid: cores, raising=False)
    assert machine_load.busy() == pytest.approx(1.36)
    cores.add(2)
    assert machine_load.busy() == pytest.approx(1.4), "others' cores do not count"
    monkeypatch.setattr(machine_load, "STAT", tmp_path / "none")
    assert machine_load.busy() == -1.0


def built(monkeypatch: pytest.MonkeyPatch, delay: float, **options: Any) -> list[Any]:
    """Candidates of a product that have a time, in a build on a machine so busy."""
    monkeypatch.setattr(machine_load.OtherProcesses, "delay", lambda self: delay)
    builder = tactix.Builder()
    net = builder.create_network("product")
    w = np.random.default_rng(0).standard_normal((256, 64), np.float32)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", (60, 256)), net.add_constant(w)]
    )
    net.mark_output(y, "y")
    plan = builder.build_plan(net, tactix.BuilderConfig(builder_optimization_level=3, **options))
    (node,) = plan.ledger["nodes"].values()
    return [c for c in node["candidates"] if c["status"] in ("measured", "cached")]


class Stopped(SilentProgress):
    """Stops measuring where it begins."""

    measuring = False

    def phase(self, name: str, total: int) -> None:
        self.measuring = self.measuring or name == "measure"

    def cancelled(self) -> bool:
        return self.measuring


def states(candidates: list[Any]) -> set[str]:
    return {c["status"] for c in candidates}


def test_what_was_timed_on_a_busy_machine_is_timed_again_once_on_a_quiet_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "timings.json"
    assert states(built(monkeypatch, 5.0, timing_cache=cache)) == {"measured"}
    again = built(monkeypatch, 4.0, timing_cache=cache)
    assert states(again) == {"cached"}, "it is no quieter"
    assert all(c["spread"] >= 5.0 for c in again), "the doubt is kept"
    for options in ({"frozen": True}, {"budget": 0.0}, {"progress_monitor": Stopped()}):
        kept = built(monkeypatch, 0.0, timing_cache=cache, **options)
        assert states(kept) == {"cached"}, "a doubtful time is better than none"
        assert [c["seconds"] for c in kept] == [c["seconds"] for c in again]
    assert states(built(monkeypatch, 0.0, timing_cache=cache)) == {"measured"}
    assert states(built(monkeypatch, 0.0, timing_cache=cache)) == {"cached"}
    assert not any(row[3] for row in json.loads(cache.read_text())["timings"].values())


def test_a_burst_of_load_is_noted_with_what_it_delayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a long build it is a small part."""
    cache = tmp_path / "timings.json"
    watch = CpuBench.watch
    monkeypatch.setattr(CpuBench, "watch", lambda self: lambda: 5.0)
    burst = built(monkeypatch, 0.0, timing_cache=cache)
    assert all(c["spread"] >= 5.0 for c in burst)
    assert states(built(monkeypatch, 4.0, timing_cache=cache)) == {"cached"}
    monkeypatch.setattr(CpuBench, "watch", watch)
    assert states(built(monkeypatch, 0.0, timing_cache=cache)) == {"measured"}
    assert states(built(monkeypatch, 0.0, timing_cache=cache)) == {"cached"}


def test_a_moment_shorter_than_a_few_ticks_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, [100.0, 100.01], [5.0, 5.0])
    times = [0.0, 0.03]
    monkeypatch.setattr(machine_load.time, "perf_counter", lambda: times.pop(0))
    assert machine_load.OtherProcesses().delay() == 0.0


def test_busy_machines_have_more_near_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    def spreads(delay: float) -> list[Any]:
        return built(monkeypatch, delay, timing_cache=False)

    assert all(c["spread"] >= 5.0 for c in spreads(5.0))
    assert sum(c.get("near_tie", False) for c in spreads(1e6)) == len(spreads(0.0)) - 1
