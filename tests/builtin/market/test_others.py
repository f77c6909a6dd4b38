"""What other processes take of the machine while candidates are timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tactix_builtin.market import others


def clock(monkeypatch: pytest.MonkeyPatch, busy: list[float], own: list[float], cores: int = 2) -> None:
    monkeypatch.setattr(others, "busy", lambda: busy.pop(0))
    monkeypatch.setattr(others, "own", lambda: own.pop(0))
    times = [0.0, 10.0]
    monkeypatch.setattr(others.time, "perf_counter", lambda: times.pop(0))
    monkeypatch.setattr(others.os, "cpu_count", lambda: cores)


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
def test_delays(monkeypatch: pytest.MonkeyPatch, busy: list[float], own: list[float], delay: float) -> None:
    clock(monkeypatch, busy, own)
    assert others.Others().delay() == pytest.approx(delay)


def test_what_the_system_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 20 5000 7 1 2 3 0 0\ncpu0 1 2 3\n")
    monkeypatch.setattr(others, "STAT", stat)
    monkeypatch.setattr(others.os, "sysconf", lambda name: 100, raising=False)
    assert others.busy() == pytest.approx(1.36)
    monkeypatch.setattr(others, "STAT", tmp_path / "none")
    assert others.busy() == -1.0


def test_busy_machines_have_more_near_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    import tactix

    def spreads(delay: float) -> list[Any]:
        monkeypatch.setattr(others.Others, "delay", lambda self: delay)
        builder = tactix.Builder()
        net = builder.create_network("product")
        w = np.random.default_rng(0).standard_normal((256, 64), np.float32)
        (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", (60, 256)), net.add_constant(w)])
        net.mark_output(y, "y")
        plan = builder.build_plan(net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=3))
        (node,) = plan.ledger["nodes"].values()
        return [c for c in node["candidates"] if c["status"] == "measured"]

    assert all(c["spread"] >= 5.0 for c in spreads(5.0))
    assert sum(c.get("near_tie", False) for c in spreads(1e6)) == len(spreads(0.0)) - 1
