"""Builds in int8 compute in integers where that is faster, and where it is wished."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import quantized_networks as networks
from kept_log import KeptLog

from tactix import BuilderFlag, Calibration
from tactix.api import configure
from tactix.base.logger import Severity
from tactix.builder import Builder
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix.select.precision import NOT_FASTER
from tactix_cpu.compiler import CCompiler
from tactix_isolate.bench import CpuBench

compiled = pytest.mark.skipif(bool(CCompiler().available()), reason="no C compiler")
LEVELS = ["", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8"]
"""The first is this machine."""


@dataclass
class Clock:
    """Seconds of products by their names as floats and as integers; all else takes one."""

    floats: dict[str, float]
    integers: dict[str, float]
    held: list[tuple[Any, float]] = field(default_factory=list)

    def prepare(self, bench: Any, node: Any, *more: Any) -> Any:
        runnable, outputs = super(CpuBench, bench).prepare(node, *more)
        anchor = node.anchor.layer.name if node.anchor else ""
        names = {"MatMul": self.floats, "IntegerMatMul": self.integers}.get(anchor, {})
        found = [s for name, s in names.items() if name in re.split(r"[ /+]+", node.name)]
        self.held.append((runnable, found[0] if found else 1.0))
        return runnable, outputs

    def measure(self, bench: Any, runnable: Any, times: int) -> float:
        return next(s for r, s in self.held if r is runnable) * times * 1e-3


def chain(builder: Builder) -> NetworkDefinition:
    """Two products, ``first`` and ``second``, with what cannot be rounded with them between."""
    rng = np.random.default_rng(3)
    net = builder.create_network("chain")
    y = net.add_input("x", "f32", (8, 16))
    for name, size in (("first", 48), ("second", 24)):
        w = net.add_constant(rng.standard_normal((y.spec.shape[1], size), np.float32))
        (y,) = net.add_layer("tactix.MatMul", [y, w], name)
        (y,) = net.add_layer("tactix.Softmax", [y], f"{name}_soft")
    net.mark_output(y, "y")
    return net


def built(
    monkeypatch: pytest.MonkeyPatch, log: KeptLog, integers: dict[str, float], **wishes: str
) -> Plan:
    clock = Clock({"first": 9.0, "second": 9.0}, integers)
    monkeypatch.setattr(CpuBench, "prepare", lambda *a: clock.prepare(*a), raising=False)
    monkeypatch.setattr(CpuBench, "measure", lambda *a: clock.measure(*a))
    monkeypatch.setattr(CpuBench, "delay", lambda self: 0.0)
    monkeypatch.setattr(CpuBench, "watch", lambda self: lambda: 0.0)
    builder = Builder(log)
    calibration = Calibration(
        [{"x": np.random.default_rng(1).standard_normal((8, 16), np.float32)}]
    )
    options = {"level": 1, "timing_cache": False, "threads": 1}
    config = configure(None, precision="int8", calibration=calibration, **options)
    for name, precision in wishes.items():
        config.set_layer_precision(name, precision)
    return builder.build_plan(chain(builder), config)


@compiled
def test_what_gains_no_time_stays_float(monkeypatch: pytest.MonkeyPatch) -> None:
    log = KeptLog(Severity.INFO)
    plan = built(monkeypatch, log, {"first": 2.0, "second": 9.5})
    found = plan.ledger["precision"]
    assert found["lowered"] == ["first"]
    assert found["wide"] == {"second": NOT_FASTER}, "9.5 is above 9"
    times = found["times"]["second"]
    assert times["lowered"] > times["wide"]
    line = "1 of 2 products in int8; 1 stay float: it is not faster (1 layer)"
    assert line in log.of(Severity.INFO)


@compiled
def test_if_no_product_gains_all_stay_float(monkeypatch: pytest.MonkeyPatch) -> None:
    log = KeptLog()
    plan = built(monkeypatch, log, {"first": 20.0, "second": 20.0})
    assert plan.ledger["precision"]["lowered"] == []
    said = "nothing is computed in int8: it is not faster (2 layers)"
    assert said in [text.partition(". ")[0] for text in log.warnings]
    assert not any("quantize" in s.name for s in plan.steps)


@compiled
def test_wishes_count_before_time(monkeypatch: pytest.MonkeyPatch) -> None:
    integers = {"first": 2.0, "second": 20.0}
    plan = built(monkeypatch, KeptLog(), integers, second="int8", first="fp32")
    found = plan.ledger["precision"]
    assert found["lowered"] == ["second"]
    assert found["wide"] == {"first": "it is wished to be fp32"}


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("lower", [set(), {BuilderFlag.BF16}])
def test_no_build_is_predicted_slower_than_without_integers(
    target: str, lower: set[BuilderFlag]
) -> None:
    builder = Builder()

    def predicted(*more: BuilderFlag) -> float:
        config = configure(None, level=0, timing_cache=False, threads=1, target=target)
        config.flags |= {*lower, *more}
        config.calibration = Calibration(networks.samples(1)) if more else None
        plan = builder.build_plan(networks.residual(builder), config)
        return float(plan.ledger["predicted_seconds"])

    assert predicted(BuilderFlag.INT8) <= predicted()
