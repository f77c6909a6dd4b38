"""Whole plans beside each other, on a device whose clock is made up: gaps between launches show in
a network alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from cuda_steps import BLOCK, LAUNCHER
from fake_driver import FakeApi, FakeKernel, fake_device
from test_bench import view

import tactix
from tactix.base.dims import ceildiv
from tactix.base.errors import AllocationError, TimingCacheError
from tactix.base.progress import SilentProgress
from tactix.contracts.artifact import (
    KernelArtifact,
    Launch,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.tactic import Tactic
from tactix.pipeline.state import BuildState
from tactix.plan import container
from tactix.plugins.hookspecs import hookimpl
from tactix.select.bench import Expected
from tactix_codegen.compiling import symbol
from tactix_codegen.cuda.target import target
from tactix_cuda import device as real
from tactix_cuda import whole_plan_tuning
from tactix_cuda.device import CudaDevice
from tactix_cuda.nvrtc import why_missing
from tactix_tools import cli

MODELS = Path(__file__).parents[2] / "models"

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

ONE = e.SumTactic("test.one@1", "+")


class TwoLaunches(e.SumTactic):
    """The sum by way of a workspace."""

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        n = node.outputs[0].spec.numel
        grid = (ceildiv(n, BLOCK),)
        args = [
            (tensor_in(0), tensor_in(1), out, scalar(n)) for out in (workspace(), tensor_out(0))
        ]
        launches = tuple(Launch(a, grid, (BLOCK,)) for a in args)
        return KernelArtifact(LAUNCHER, launches, self.code, workspace=4 * n)


TWO = TwoLaunches("test.two@1", " + ")
"""Another text, so that its kernel has another name."""


VENDORS = e.SumTactic("test.vendors@1", "+  ")
VENDORS.vendor = True


class Pack:
    def __init__(self, *tactics: Tactic) -> None:
        self.tactics = list(tactics)

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return self.tactics


def add(grid: Sequence[int], x: int, y: int, z: int, n: int) -> None:
    view(z, (n,), np.float32)[...] = view(x, (n,), np.float32) + view(y, (n,), np.float32)


class Everything(dict[str, FakeKernel]):
    """Kernels of any name, which do nothing; their times differ by their names."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__()
        self.seconds = seconds

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> FakeKernel:
        self.seconds.setdefault(name, 1e-6 + 1e-9 * (zlib.crc32(name.encode()) % 1000))
        return FakeKernel(0)


class Clock:
    """Seconds by kernel; in a network a launch takes ``gap`` more, and vendors' kernels ``heat``
    times their time.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, gap: float, here: bool = True, heat: float = 1.0
    ) -> None:
        self.device, self.api = fake_device(
            {symbol(t.code): FakeKernel(4, add) for t in (ONE, TWO, VENDORS)}
        )
        self.heat = {symbol(VENDORS.code): heat}
        if not here:
            self.api.fail["cuInit"] = 500
        self.seconds, self.gap, self.whole = (
            {symbol(ONE.code): 3e-6, symbol(TWO.code): 1e-6},
            gap,
            0,
        )
        self.seconds[symbol(VENDORS.code)] = 3e-6
        monkeypatch.setattr(
            FakeApi,
            "_cuDeviceGetName",
            lambda api, size, device: (b"NVIDIA H200".ljust(size, b"\0"),),
        )
        monkeypatch.setattr(CudaDevice, "measure", self.measure)
        monkeypatch.setattr(real, "the_device", lambda: self.device)

    def measure(self, runnable: Any, times: int) -> float:
        before = len(self.api.ran)
        runnable.repeat(1)
        ran = self.api.ran[before:]
        network = len({r.args for r in ran}) > 2
        self.whole += network
        heat = {r.symbol: self.heat.get(r.symbol, 1.0) if network else 1.0 for r in ran}
        return times * sum(
            self.seconds[r.symbol] * heat[r.symbol] + self.gap * network for r in ran
        )


def build(*tactics: Tactic, **fields: Any) -> tactix.Plan:
    session = tactix.Session(plugins=[("test", Pack(*(tactics or (ONE, TWO))))], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]
    built = tactix.Builder(session=session)
    return built.build_plan(e.sums(built), e.config(**fields))


def chosen(plan: tactix.Plan) -> set[str]:
    return {s.info["tactic"] for s in plan.steps}


@pytest.mark.parametrize(("gap", "winner"), [(0.1e-6, TWO), (5e-6, ONE)])
def test_the_whole_decides(monkeypatch: pytest.MonkeyPatch, gap: float, winner: Tactic) -> None:
    """Two launches of 1 us against one of 3 us: better alone; in a network that depends on the gap."""
    clock = Clock(monkeypatch, gap)
    plan = build()
    assert chosen(plan) == {winner.key}
    rows = plan.ledger["whole_plans"]
    assert len(rows) == 2
    assert [r["chosen"] for r in rows].index(True) == min((0, 1), key=lambda i: rows[i]["seconds"])
    assert clock.whole == 2 * 5


def test_a_charge_for_each_launch_is_part_of_the_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch, 0.0)
    rows = {r["charge"]: r["predicted_seconds"] for r in build().ledger["whole_plans"]}
    assert rows == pytest.approx(
        {1.0: 4 * (2e-6 + 2 * CudaDevice.costs.launch), 4.0: 4 * (3e-6 + 4 * 7e-7)}
    )


@pytest.mark.parametrize(("alone", "heat", "winner"), [
    (1.04, 0.9, VENDORS), (1.04, 1.0, ONE), (0.96, 1.2, ONE), (0.96, 1.0, VENDORS), (1.2, 0.5, ONE),
])  # fmt: skip
def test_vendors_kernels_that_are_near_are_tried_in_the_whole(
    monkeypatch: pytest.MonkeyPatch, alone: float, heat: float, winner: Tactic
) -> None:
    """Where launches are little. What is a fifth slower alone is not."""
    clock = Clock(monkeypatch, 0.0, heat=heat)
    clock.seconds[symbol(VENDORS.code)] = alone * 3e-6
    monkeypatch.setattr(whole_plan_tuning, "NOTABLE", 0.9)
    plan = build(ONE, VENDORS)
    assert chosen(plan) == {winner.key}
    rows = {r["vendors"]: r["predicted_seconds"] for r in plan.ledger.get("whole_plans", [])}
    others = {1.04: {0.93: alone}, 0.96: {1.07: 1.0}, 1.2: {}}[alone]
    launches = 4 * CudaDevice.costs.launch
    want = {1.0: min(1.0, alone), **others} if others else {}
    assert rows == pytest.approx({way: 4 * 3e-6 * times + launches for way, times in want.items()})


@pytest.mark.parametrize("gap", [0.1e-6, 5e-6])
def test_a_frozen_build_without_the_device_gives_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gap: float
) -> None:
    Clock(monkeypatch, gap)
    cache = tmp_path / "timings.json"
    here = build(timing_cache=cache)
    assert here.device["name"] == target("h200").name
    clock = Clock(monkeypatch, gap, here=False)
    there = build(timing_cache=cache, target="h200", frozen=True)
    assert not clock.api.ran
    for a, b in zip(there.steps, here.steps, strict=True):
        assert (a.name, a.artifact, a.info) == (b.name, b.artifact, {**b.info, "status": "cached"})
    assert there.ledger["whole_plans"] == here.ledger["whole_plans"]
    with pytest.raises(TimingCacheError, match="every timing"):
        build(timing_cache=cache, target="sm_90", frozen=True)


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A network of the tests with the built-in tactics, whose results are taken on trust: nothing
    here runs them.
    """
    model, cache, out = MODELS / "lenet.onnx", tmp_path / "timings.json", tmp_path / "plan"
    clock = Clock(monkeypatch, 0.0)
    clock.api.kernels = Everything(clock.seconds)
    monkeypatch.setattr(Expected, "departure", lambda *given: 0.0)
    built = tactix.Builder()
    config = tactix.BuilderConfig(device="tactix.cuda@1", timing_cache=cache)
    here = built.build_plan(built.import_model(model), config)
    statuses = {c["status"] for n in here.ledger["nodes"].values() for c in n["candidates"]}
    assert "measured" in statuses
    Clock(monkeypatch, 0.0, here=False)
    asked = ["--device", "cuda", "--target", "h200", "--timing-cache", str(cache), "--frozen"]
    assert cli.main(["build", str(model), "-o", str(out), *asked]) == 0
    there = container.load(out)
    chosen = [
        [(s.name, s.info["tactic"], s.info["variant"], s.artifact.code) for s in p.steps]
        for p in (here, there)
    ]
    assert chosen[0] == chosen[1]
    assert there.ledger.get("whole_plans") == here.ledger.get("whole_plans")
    assert cli.main(["build", str(model), "-o", str(out), *asked, "-O", "5"]) != 0


def test_a_frozen_build_needs_the_timings_of_whole_plans(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Clock(monkeypatch, 0.0)
    cache = tmp_path / "timings.json"
    build(timing_cache=cache)
    monkeypatch.setattr(
        whole_plan_tuning, "LAUNCHES", (whole_plan_tuning.Way(0.0), whole_plan_tuning.Way(1000.0))
    )
    monkeypatch.setattr(whole_plan_tuning, "_key", lambda attempt: f"{attempt.choice.seconds}")
    with pytest.raises(TimingCacheError, match="every timing"):
        build(timing_cache=cache, frozen=True)


@pytest.mark.parametrize(
    "reason", ["memory", "cancelled", "the budget is spent", "launches are little"]
)
def test_predictions_decide_where_whole_plans_are_not_timed(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    clock = Clock(monkeypatch, 5e-6)
    if reason == "memory":
        monkeypatch.setattr(whole_plan_tuning, "whole", refuse)
    if reason == "the budget is spent":
        monkeypatch.setattr(BuildState, "is_over", True)
    if reason == "launches are little":
        monkeypatch.setattr(whole_plan_tuning, "NOTABLE", 0.9)
    plan = build(progress_monitor=Stopped() if reason == "cancelled" else SilentProgress())
    assert clock.whole == 0
    want = [] if reason == "launches are little" else [None, None]
    assert [f["seconds"] for f in plan.ledger.get("whole_plans", [])] == want
    assert chosen(plan) == {TWO.key}  # 2 us and two charges, against 3 us and one


def refuse(*given: Any) -> Any:
    raise AllocationError("no more")


class Stopped(SilentProgress):
    """From when all has been measured."""

    measured = False

    def finish(self, name: str) -> None:
        self.measured = self.measured or name == "measure"

    def cancelled(self) -> bool:
        return self.measured
