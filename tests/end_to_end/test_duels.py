"""Precision is decided by times of one session: what was cached under another load is timed again
with what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.plan.schema import Plan
from tactix_cpu.compiler import CCompiler
from tactix_isolate.bench import CpuBench

pytestmark = pytest.mark.skipif(bool(CCompiler().available()), reason="no C compiler")


@dataclass
class Clock:
    """Seconds of products, lowered and not, times the load of the machine."""

    wide: float = 1e-3
    lowered: float = 2e-3
    load: float = 1.0
    seconds: dict[int, float] = field(default_factory=dict)
    held: list[Any] = field(default_factory=list)

    def prepare(self, bench: Any, node: Any, *more: Any) -> Any:
        runnable, outputs = super(CpuBench, bench).prepare(node, *more)
        products = {"tactix.MatMul@1": self.wide, "tactix.WideMatMul@1": self.lowered}
        self.seconds[id(runnable)] = products.get(node.kind, 1e-6)
        self.held.append(runnable)
        return runnable, outputs

    def measure(self, bench: Any, runnable: Any, times: int) -> float:
        return self.seconds[id(runnable)] * times * self.load


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(CpuBench, "prepare", lambda *a: made.prepare(*a), raising=False)
    monkeypatch.setattr(CpuBench, "measure", lambda *a: made.measure(*a))
    monkeypatch.setattr(CpuBench, "delay", lambda self: 0.0)
    monkeypatch.setattr(CpuBench, "watch", lambda self: lambda: 0.0)
    return made


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Plan]:
    """A plan of one product, by a cache that all builds share."""

    def made(precision: str, level: int = 1, **options: Any) -> Plan:
        builder = tactix.Builder()
        net = builder.create_network("product")
        w = net.add_constant(np.random.default_rng(3).standard_normal((64, 192), np.float32))
        (y,) = net.add_layer(
            "tactix.MatMul", [net.add_input("x", "f32", (32, 64)), w], name="product"
        )
        net.mark_output(net.add_layer("tactix.Softmax", [y], name="last")[0], "y")
        flags = {tactix.BuilderFlag.BF16} if precision == "bf16" else set()
        config = tactix.BuilderConfig(
            flags=flags,
            timing_cache=tmp_path / "timings.json",
            builder_optimization_level=level,
            threads=1,
            **options,
        )
        return builder.build_plan(net, config)

    return made


@pytest.mark.parametrize(("wide", "lowered", "load"), [(1e-3, 2e-3, 3.0), (2e-3, 1e-3, 1 / 3)])
def test_a_session_under_another_load_decides_nothing(
    clock: Clock, build: Callable[..., Plan], wide: float, lowered: float, load: float
) -> None:
    clock.wide, clock.lowered, clock.load = wide, lowered, load
    build("fp32")
    clock.load = 1.0
    precision = build("bf16").ledger["precision"]
    assert precision["lowered"] == (["product"] if lowered < wide else [])
    times = precision["times"]["product"]
    assert times["source"] == "measured"
    assert times["lowered"] / times["wide"] == pytest.approx(lowered / wide, rel=0.01)


def test_what_was_timed_in_turns_is_not_timed_again(
    clock: Clock, build: Callable[..., Plan]
) -> None:
    first = build("bf16")
    count, clock.load = len(clock.held), 7.0
    again = build("bf16")
    assert len(clock.held) == count
    assert again.ledger["precision"]["times"]["product"]["source"] == "cached"
    assert again.ledger["precision"]["lowered"] == first.ledger["precision"]["lowered"]
    frozen = build("bf16", frozen=True)
    assert [s.name for s in frozen.steps] == [s.name for s in first.steps]


def test_what_others_delayed_is_timed_in_turns_again_on_a_quiet_machine(
    clock: Clock, build: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.wide, clock.lowered = 1e-3, 2e-3
    for delay, source in [(3.0, "measured"), (2.0, "cached"), (0.0, "measured"), (0.0, "cached")]:
        monkeypatch.setattr(CpuBench, "delay", lambda self, delay=delay: delay)
        times = build("bf16").ledger["precision"]["times"]["product"]
        assert times["source"] == source


def test_rivals_of_what_is_new_run_again(clock: Clock, build: Callable[..., Plan]) -> None:
    clock.load = 3.0
    build("fp32")
    clock.load = 1.0
    rows = build("fp32", level=3).ledger["nodes"]["product"]["candidates"]
    timed = [r for r in rows if r["status"] in ("measured", "cached")]
    assert len(timed) > 1
    assert {r["status"] for r in timed} == {"measured"}
    assert all(r["seconds"] == pytest.approx(1e-3) for r in timed)
