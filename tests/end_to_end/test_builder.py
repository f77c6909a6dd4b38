"""The builder's settings and promises, over the built-ins and small packs of the test's own."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.api import configure
from tactix.base.errors import (
    ConfigError,
    ModelImportError,
    NetworkError,
    NoTacticError,
    ShapeError,
    TimingCacheError,
)
from tactix.base.progress import SilentProgress
from tactix.config import BuilderFlag, MemoryPoolType, OptimizationProfile
from tactix.contracts.artifact import KernelArtifact, Launch, Source, scalar, tensor_in, tensor_out
from tactix.contracts.tactic import Reject, Tactic, Variant
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.state import Pace
from tactix.plan import container
from tactix.plugins.hookspecs import hookimpl
from tactix.select.measure import Measurer
from tactix_cpu.compiler import CCompiler
from tactix_sdk.evaluate import evaluate
from tactix_trust import object_cache

WRONG = """void TX_ENTRY(const int64_t* a, int tid, int nt) {
  if (!tid && a[2]) ((float*)a[1])[0] = (float)a[2] + (float)nt;
}"""
RIGHT = """void TX_ENTRY(const int64_t* a, int tid, int nt) {
  for (int64_t i = tid; i < a[2]; i += nt) { float x = ((const float*)a[0])[i]; ((float*)a[1])[i] = x > 0 ? x : 0; }
}"""


class CTactic(Tactic):
    """One C text for every Relu."""

    device, source = "cpu", "test"
    implements = ("pointwise",)

    def __init__(self, key: str, text: str) -> None:
        self.key, self.text = key, "#include <stdint.h>\n" + text

    def variants(self, node: Any, device: Any) -> Any:
        names = [n.layer.key for n in node.body.nodes]
        return [Variant()] if names == ["tactix.Relu@1"] else Reject("only a bare Relu")

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        args = (tensor_in(0), tensor_out(0), scalar(node.outputs[0].spec.numel))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", self.text))


class Pack:
    """A pack of tactics."""

    def __init__(self, *tactics: Tactic) -> None:
        self.tactics = list(tactics)

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return self.tactics


def session(*tactics: Tactic, enable: bool = True) -> tactix.Session:
    return tactix.Session(plugins=[("test", Pack(*tactics))], enable=["test"] if enable else [])


@pytest.fixture
def builder() -> tactix.Builder:
    return tactix.Builder()


def relu(builder: tactix.Builder, shape: tuple[Any, ...] = ("n", 8)) -> NetworkDefinition:
    net = builder.create_network("relu")
    (y,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", shape)], name="relu")
    net.mark_output(y, "y")
    return net


def config(**fields: Any) -> tactix.BuilderConfig:
    return tactix.BuilderConfig(timing_cache=fields.pop("timing_cache", False), **fields)


def rows(plan: tactix.Plan, name: str = "relu") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plan.ledger["nodes"][name]["candidates"]
    return found


def test_a_fast_and_wrong_tactic_is_rejected_and_recorded() -> None:
    built = tactix.Builder(session=session(CTactic("test.wrong@1", WRONG)))
    plan = built.build_plan(relu(built), config())
    wrong = next(r for r in rows(plan) if r["tactic"] == "test.wrong@1")
    assert wrong["status"] == "rejected"
    assert "reference" in wrong["reason"]
    assert not wrong["chosen"]


def test_only_wrong_tactics_are_an_error() -> None:
    built = tactix.Builder(session=session(CTactic("test.wrong@1", WRONG)))
    with pytest.raises(NoTacticError, match=r"every tactic was rejected.*test\.wrong@1"):
        built.build_plan(relu(built), config(tactic_sources={"test"}))


def test_a_third_party_tactic_competes_when_enabled_and_only_then() -> None:
    right = CTactic("test.right@1", RIGHT)
    for enabled in (True, False):
        built = tactix.Builder(session=session(right, enable=enabled))
        tactics = {r["tactic"]: r["status"] for r in rows(built.build_plan(relu(built), config()))}
        assert tactics.get("test.right@1") == ("measured" if enabled else None)
    built = tactix.Builder(session=session(right, enable=False))
    plan = built.build_plan(relu(built), config(tactic_sources={"test"}, enabled={"test"}))
    assert [s.info["tactic"] for s in plan.steps] == ["test.right@1"]


@pytest.mark.parametrize("by_signature", [True, False])
def test_nodes_of_one_signature_share_what_tactics_bid_by_it(by_signature: bool) -> None:
    asked: list[str] = []

    class Asked(CTactic):
        def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
            asked.append(node.name)
            return super().compile(node, variant, ctx)

    tactic = Asked("test.asked@1", RIGHT)
    tactic.by_signature = by_signature
    b = tactix.Builder(session=session(tactic))
    net = b.create_network()
    for name, shape in (("a", ("n", 8)), ("b", ("n", 8)), ("c", ("n", 9))):
        (y,) = net.add_layer("tactix.Relu", [net.add_input(f"{name}x", "f32", shape)], name=name)
        net.mark_output(y)
    b.build_plan(net, config(builder_optimization_level=0))
    assert asked == (["a", "c"] if by_signature else ["a", "b", "c"])


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_that_share_bids_keep_their_own_weights(
    builder: tactix.Builder, threads: int
) -> None:
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((64, 64), dtype=np.float32) for _ in range(3)]
    weights[1][5, 7] = np.inf
    kernels = [rng.standard_normal((16, 16, 3, 3), dtype=np.float32) for _ in range(2)]
    net = builder.create_network()
    x, image = net.add_input("x", "f32", (16, 64)), net.add_input("image", "f32", (1, 16, 28, 28))
    for i, w in enumerate(weights):
        net.mark_output(net.add_layer("tactix.MatMul", [x, net.add_constant(w)])[0], f"y{i}")
    for i, w in enumerate(kernels):
        pads = {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1), "group": 1}
        net.mark_output(
            net.add_layer("tactix.Convolution", [image, net.add_constant(w)], **pads)[0], f"z{i}"
        )
    feeds = {
        "x": np.abs(rng.standard_normal((16, 64), dtype=np.float32)) + np.float32(0.1),
        "image": rng.standard_normal((1, 16, 28, 28), dtype=np.float32),
    }
    want = evaluate(net, feeds)
    for level in (0, 2):
        got = builder.build(net, config(builder_optimization_level=level, threads=threads))(feeds)
        for name, y in want.items():
            assert np.allclose(got[name], y, rtol=1e-4, atol=1e-4), (level, name)


def test_no_tactic_lists_every_reason(builder: tactix.Builder) -> None:
    net = builder.create_network()
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", (2, 3))], name="soft")
    net.mark_output(y, "y")
    with pytest.raises(NoTacticError, match=r"soft.*tactix\.Softmax@1"):
        builder.build_plan(net, config(tactic_sources={"view"}))


def test_no_fallback_names_the_layer(builder: tactix.Builder) -> None:
    with pytest.raises(NoTacticError, match="only the reference"):
        builder.build_plan(
            relu(builder), config(tactic_sources={"numpy"}, flags={tactix.BuilderFlag.NO_FALLBACK})
        )
    plan = builder.build_plan(relu(builder), config(tactic_sources={"numpy"}))
    assert [s.info["tactic"] for s in plan.steps] == ["tactix.numpy@1"]


def test_level_0_measures_nothing_and_level_3_does(builder: tactix.Builder) -> None:
    assert {
        r["status"]
        for r in rows(builder.build_plan(relu(builder), config(builder_optimization_level=0)))
    } == {"estimated"}
    assert {r["status"] for r in rows(builder.build_plan(relu(builder), config()))} == {"measured"}


def test_a_budget_of_nothing_chooses_by_estimate(builder: tactix.Builder) -> None:
    assert {r["status"] for r in rows(builder.build_plan(relu(builder), config(budget=0.0)))} == {
        "estimated"
    }


@pytest.mark.parametrize("size", [1 << 40, (1 << 62) - 1])
def test_sizes_that_no_machine_holds_are_chosen_by_estimate(
    builder: tactix.Builder, size: int
) -> None:
    net = builder.create_network()
    net.mark_output(net.add_layer("tactix.Relu", [net.add_input("x", "f32", ("n", 8))])[0], "y")
    profile = OptimizationProfile().set_shape("x", (1, 8), (size, 8), (size, 8))
    plan = builder.build_plan(net, config(profiles=[profile]))
    assert {r["status"] for r in rows(plan)} == {"estimated"}
    assert container.load(container.dump(plan)).profiles == plan.profiles


def test_frozen_needs_every_timing_and_then_gives_the_same_bytes(
    builder: tactix.Builder, tmp_path: Path
) -> None:
    cache = tmp_path / "timings.json"
    with pytest.raises(TimingCacheError, match="missing"):
        builder.build_plan(relu(builder), config(frozen=True, timing_cache=cache))
    builder.build_plan(relu(builder), config(timing_cache=cache))
    assert json.loads(cache.read_text())["timings"]
    first, second = (
        container.dump(
            tactix.Builder().build_plan(relu(builder), config(frozen=True, timing_cache=cache))
        )
        for _ in range(2)
    )
    assert first == second


class StoppedFrom(SilentProgress):
    """Cancelled from the beginning of a phase on; of ``""`` before any."""

    def __init__(self, phase: str) -> None:
        self.when, self.begun = phase, [""]

    def phase(self, name: str, total: int) -> None:
        self.begun.append(name)

    def cancelled(self) -> bool:
        return self.when in self.begun


@pytest.mark.parametrize("phase", ["", "fuse", "bid", "compile", "measure", "choose", "assemble"])
def test_a_build_that_is_stopped_gives_a_plan(builder: tactix.Builder, phase: str) -> None:
    monitor = StoppedFrom(phase)
    engine = builder.build(relu(builder), config(progress_monitor=monitor, timing_cache=False))
    assert monitor.cancelled()
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(engine(x), np.maximum(x, 0))


class Compiling(StoppedFrom):
    """Kernels that a compiler was called for, by the stage in which that was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
        super().__init__(phase)
        self.found: list[tuple[str, int]] = []
        compile_units = CCompiler._compile_units

        def counted(compiler: CCompiler, units: Any, keys: Any, *more: Any) -> None:
            new = [k for k in keys if object_cache.find(f"{k}.o") is None]
            self.found.append((self.begun[-1], len(new)))
            compile_units(compiler, units, keys, *more)

        monkeypatch.setattr(CCompiler, "_compile_units", counted)


@pytest.mark.compiler
def test_what_estimates_choose_is_compiled_before_a_budget_is_spent(
    builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not CCompiler()._precompiles:
        pytest.skip("objects of single kernels are GCC's")
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    monitor = Compiling(monkeypatch, "measure")  # as if the budget were spent then
    plan = builder.build_plan(
        relu(builder), config(budget=1e9, progress_monitor=monitor, timing_cache=False)
    )
    assert {s.info["status"] for s in plan.steps} == {"estimated"}
    # before any stage a builder begins with the executor, once in a process
    assert [stage for stage, new in monitor.found if new and stage] == ["ahead"]


class Counting(SilentProgress):
    """Steps of each phase, those there are and those that were done."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def phase(self, name: str, total: int) -> None:
        self.totals[name] = total

    def step(self, name: str, done: int, message: str = "") -> None:
        assert self.done.get(name, 0) <= done <= self.totals[name]
        self.done[name] = done


@pytest.mark.compiler
@pytest.mark.parametrize("times", [1, 2])
def test_phases_that_compile_tell_of_each_kernel(
    builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: int
) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    for _ in range(times):  # the second finds objects
        monitor = Counting()
        builder.build_plan(
            relu(builder), config(budget=1e9, progress_monitor=monitor, timing_cache=False)
        )
    for name in ("ahead", "kernels"):
        assert monitor.done[name] == monitor.totals[name] == 1


@pytest.mark.compiler
def test_a_spent_budget_compiles_what_the_plan_needs_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    log = KeptLog()
    builder, monitor = tactix.Builder(log), Compiling(monkeypatch, "never")
    plan = builder.build_plan(
        relu(builder), config(budget=0.0, progress_monitor=monitor, timing_cache=False)
    )
    assert [stage for stage, _ in monitor.found] == ["kernels"]
    assert {s.info["status"] for s in plan.steps} == {"estimated"}
    assert "s beyond the budget of 0 s" in log.warnings[-1]


@pytest.mark.compiler
def test_kernels_that_are_raced_are_told_one_by_one(
    builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    compile_, told = CCompiler.compile, []

    def slowly(self: CCompiler, sources: Any, device: Any) -> Any:
        if not told:  # as where others fail, and all begin again
            for done in (1, 0, len(sources) + 5):
                self.told(done)
        return compile_(self, sources, device)

    class Steps(Counting):
        def step(self, name: str, done: int, message: str = "") -> None:
            super().step(name, done, message)
            if name == "compile":
                told.append(done)

    monkeypatch.setattr(CCompiler, "compile", slowly)
    builder.build_plan(relu(builder), config(progress_monitor=Steps(), timing_cache=False))
    assert len(told) > 1


@pytest.mark.compiler
def test_measuring_leaves_time_for_the_end_of_a_build(
    builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []
    run = Measurer.run
    monkeypatch.setattr(Pace, "closing", property(lambda pace: 1e6 if pace.bid else 0.0))
    monkeypatch.setattr(
        Measurer, "run", lambda self, bids: ends.append(self.deadline) or run(self, bids)
    )
    start = time.monotonic()
    builder.build_plan(relu(builder), config(budget=3e6, timing_cache=False))
    assert start + 2e6 <= ends[0] <= time.monotonic() + 2e6


def test_the_end_of_a_build_takes_about_what_its_beginning_took() -> None:
    assert Pace(0.5, 0.25, 0).closing == 0.75
    assert 0.3 < Pace(weights=440_000_000).closing < 1.5


@pytest.mark.compiler
def test_what_the_plan_needs_is_compiled_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A compiler that was ended when the budget is would begin again at once."""
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    asked: list[bool] = []
    over = Measurer._is_over
    compile_ = CCompiler.compile

    def late(self: CCompiler, sources: Any, device: Any) -> Any:
        monkeypatch.setattr(Measurer, "_is_over", lambda self: True)
        asked.append(self.stopped())
        return compile_(self, sources, device)

    monkeypatch.setattr(CCompiler, "compile", late)
    log = KeptLog()
    builder = tactix.Builder(log)
    plan = builder.build_plan(relu(builder), config(budget=1e9, timing_cache=False))
    monkeypatch.setattr(Measurer, "_is_over", over)
    assert asked[0] is False
    assert {s.info["status"] for s in plan.steps} == {"estimated"}


@pytest.mark.parametrize(
    "sources", [pytest.param(None, marks=pytest.mark.compiler), {"numpy", "view"}]
)
def test_an_output_that_is_a_view_is_written_in_place(
    builder: tactix.Builder, sources: set[str] | None
) -> None:
    net = builder.create_network()
    x = net.add_input("x", "f32", ["n", 2, 3])
    (y,) = net.add_layer("tactix.Softmax", [x])
    (flat,) = net.add_layer("tactix.Reshape", [y], shape=(x.spec.shape[0], 6))
    (tall,) = net.add_layer("tactix.Reshape", [flat], shape=(x.spec.shape[0] * 6, 1))
    net.mark_output(tall, "tall")
    engine = builder.build(net, config(tactic_sources=sources, timing_cache=False))
    assert len(engine.plan.steps) == 1 + (sources is not None)  # references write no views
    data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 2, 3)
    want = np.exp(data) / np.exp(data).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(engine(data), want.reshape(24, 1), rtol=1e-5)
    by_references = tactix.load(container.dump(engine.plan), on_untrusted="references")
    np.testing.assert_allclose(by_references(data), want.reshape(24, 1), rtol=1e-5)


@pytest.mark.compiler
def test_a_tensor_and_its_view_are_outputs_of_their_own(builder: tactix.Builder) -> None:
    net = builder.create_network()
    x = net.add_input("x", "f32", [2, 6])
    (y,) = net.add_layer("tactix.Softmax", [x])
    (tall,) = net.add_layer("tactix.Reshape", [y], shape=(12,))
    (seen,) = net.add_layer("tactix.Reshape", [x], shape=(12,))
    for v, name in ((tall, "tall"), (y, "y"), (seen, "seen")):
        net.mark_output(v, name)
    engine = builder.build(net, config(timing_cache=False))
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    found = engine.create_execution_context().run({"x": data})
    assert [found[k].shape for k in ("tall", "y", "seen")] == [(12,), (2, 6), (12,)]
    np.testing.assert_array_equal(found["tall"], found["y"].reshape(12))
    np.testing.assert_array_equal(found["seen"], data.reshape(12))
    assert not np.shares_memory(found["tall"], found["y"])
    assert len(engine.plan.steps) == 3


@pytest.mark.compiler
def test_an_output_that_is_a_view_has_its_shape_where_data_tells_others(
    builder: tactix.Builder,
) -> None:
    net = builder.create_network()
    x = net.add_input("x", "f32", ["n", 4])
    (where,) = net.add_layer("tactix.NonZero", [x], symbol="k")
    (y,) = net.add_layer("tactix.Softmax", [x])
    (flat,) = net.add_layer("tactix.Reshape", [y], shape=(x.spec.shape[0] * 4,))
    net.mark_output(where, "where")
    net.mark_output(flat, "flat")
    engine = builder.build(net, config(timing_cache=False))
    data = np.float32([[0, 1, 2, 0], [3, 0, 0, 0]])
    for _ in range(3):
        found = engine.create_execution_context().run({"x": data})
        assert (found["where"].shape, found["flat"].shape) == ((2, 3), (8,))
        np.testing.assert_allclose(found["flat"].reshape(2, 4).sum(axis=1), 1, rtol=1e-5)


def test_awkward_outputs(builder: tactix.Builder) -> None:
    """An input, a constant, one tensor twice, and a view as outputs."""
    net = builder.create_network()
    x = net.add_input("x", "f32", ("n", 6))
    (y,) = net.add_layer("tactix.Relu", [x])
    (r,) = net.add_layer("tactix.Reshape", [y], shape=(x.spec.shape[0], 2, 3))
    net.mark_output(x, "same")
    net.mark_output(net.add_constant(np.arange(3, dtype=np.float32)), "constant")
    net.mark_output(y, "first")
    net.mark_output(y, "second")
    net.mark_output(r, "view")
    engine = builder.build(net, config(builder_optimization_level=0))
    a = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)
    got = engine(a)
    want = {
        "same": a,
        "constant": np.arange(3, dtype=np.float32),
        "first": np.maximum(a, 0),
        "second": np.maximum(a, 0),
    }
    want["view"] = want["first"].reshape(4, 2, 3)
    assert list(got) == list(want)
    for k, w in want.items():
        np.testing.assert_array_equal(got[k], w)


def test_empty_and_single_element_shapes(builder: tactix.Builder) -> None:
    engine = builder.build(relu(builder), config(builder_optimization_level=0))
    for n in (0, 1, 17, 0, 3):
        a = np.random.default_rng(n).standard_normal((n, 8), dtype=np.float32)
        np.testing.assert_array_equal(engine(a), np.maximum(a, 0))


def test_bad_settings(builder: tactix.Builder) -> None:
    with pytest.raises(ConfigError, match="0 to 5"):
        builder.build_plan(relu(builder), config(builder_optimization_level=9))
    with pytest.raises(ConfigError, match="no tactic source 'cc'"):
        builder.build_plan(relu(builder), config(tactic_sources={"cc"}))
    profile = tactix.OptimizationProfile().set_shape("z", (1, 8), (2, 8), (3, 8))
    with pytest.raises(ConfigError, match="the inputs are x"):
        builder.build_plan(relu(builder), config(profiles=[profile]))
    profile = tactix.OptimizationProfile().set_shape("x", (1, 8), (2, 8), (3, 9))
    with pytest.raises(ConfigError, match="fixed dimension"):
        builder.build_plan(relu(builder), config(profiles=[profile]))
    with pytest.raises(ConfigError, match="not in order"):
        tactix.OptimizationProfile().set_shape("x", (2, 8), (1, 8), (3, 8))
    with pytest.raises(ConfigError, match="no build option 'levl'"):
        tactix.build("model.onnx", levl=2)


def test_a_shape_outside_the_profile_states_the_profile(builder: tactix.Builder) -> None:
    profile = tactix.OptimizationProfile().set_shape("x", (1, 8), (2, 8), (4, 8))
    engine = builder.build(relu(builder), config(profiles=[profile], builder_optimization_level=0))
    with pytest.raises(tactix.TactixError, match=r"1.*4"):
        engine(np.zeros((5, 8), np.float32))
    np.testing.assert_array_equal(
        engine(np.zeros((4, 8), np.float32)), np.zeros((4, 8), np.float32)
    )


def test_a_network_without_outputs(builder: tactix.Builder) -> None:
    net = builder.create_network("empty")
    net.add_input("x", "f32", (1,))
    with pytest.raises(NetworkError, match="mark_output"):
        builder.build_plan(net, config())


def test_load_or_build_builds_once(tmp_path: Path) -> None:
    model = Path(__file__).parent.parent / "models" / "mlp.onnx"
    x = np.random.default_rng(1).standard_normal((2, 40), dtype=np.float32)
    first = tactix.load_or_build(model, cache=tmp_path, level=0, timing_cache=False)(x)
    (plan,) = tmp_path.glob("*.plan")
    before = plan.stat().st_mtime_ns
    again = tactix.load_or_build(model, cache=tmp_path, level=0, timing_cache=False)
    np.testing.assert_array_equal(again(x), first)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again))(x), first)
    assert plan.stat().st_mtime_ns == before
    tactix.load_or_build(model, cache=tmp_path, level=1, timing_cache=False)
    assert len(list(tmp_path.glob("*.plan"))) == 2


def test_a_full_disk_costs_a_plan_its_file_and_not_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    heard, model = KeptLog(), Path(__file__).parent.parent / "models" / "mlp.onnx"
    options: dict[str, Any] = {"level": 0, "timing_cache": False, "tactic_sources": {"numpy"}}
    engine = tactix.load_or_build(model, cache=tmp_path, logger=heard, **options)
    assert engine(np.zeros((2, 40), np.float32)).shape[0] == 2
    (told,) = [w for w in heard.warnings if "is not kept" in w]
    assert str(tmp_path) in told
    assert "free space there, or name another folder" in told
    with pytest.raises(OSError, match="No space left on device; free space there"):
        engine.save(tmp_path / "a.plan")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_load_or_build_sees_weights_in_other_files(tmp_path: Path) -> None:
    import onnx

    w = np.arange(4, dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])],
        [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.helper.make_model(graph),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )

    def run() -> Any:
        return tactix.load_or_build(path, cache=tmp_path / "cache", level=0, timing_cache=False)(
            np.ones(4, np.float32)
        )

    np.testing.assert_array_equal(run(), w + 1)
    (w * 3).tofile(tmp_path / "w.bin")
    np.testing.assert_array_equal(run(), w * 3 + 1)
    np.testing.assert_array_equal(run(), w * 3 + 1)
    assert len(list((tmp_path / "cache").iterdir())) == 2


MLP = Path(__file__).parents[1] / "models" / "mlp.onnx"


def test_load_or_build_knows_equal_options(tmp_path: Path) -> None:
    """However they are given: sets have an order of their own in each process."""
    code = f"""import sys, tactix
plain = dict(builder_optimization_level=0, timing_cache=False, tactic_sources={{"c", "numpy", "view", "winograd"}})
for given in (plain, dict(config=tactix.BuilderConfig(**plain)), dict(plain, progress=tactix.base.progress.Quiet(
        tactix.base.progress.SilentProgress()))):
    engine = tactix.load_or_build({str(MLP)!r}, cache=sys.argv[1], threads=1, **given)
    assert engine._program.context.threads == 1"""
    for seed in "123":
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, check=True)
    assert len(list(tmp_path.iterdir())) == 1


def test_load_or_build_replaces_what_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"cache": tmp_path / "cache", "level": 0, "timing_cache": False}
    tactix.load_or_build(MLP, **options)
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    tactix.load_or_build(MLP, **options)
    assert "is built again: the file has" in capsys.readouterr().err
    assert len(path.read_bytes()) > len(whole) - 100
    tactix.load_or_build(MLP, **options)
    assert capsys.readouterr().err == ""
    made = container.load(path)
    strange = dataclasses.replace(made, meta={**made.meta, "tactix": "99.0"}, seal=None)
    container.save(strange, path, tactix.Session(group="runtime").signer)
    tactix.load_or_build(MLP, **options)
    assert "is built again: the plan cannot run here" in capsys.readouterr().err


def test_load_or_build_names_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelImportError, match=r"nowhere.onnx"):
        tactix.load_or_build(tmp_path / "nowhere.onnx", cache=tmp_path)
    monkeypatch.setattr("tactix.api.build", lambda *_, **__: pytest.fail("found too late"))
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file"):
        tactix.load_or_build(MLP, cache=tmp_path / "file", level=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flags", BuilderFlag.DEBUG), ("flags", {"fp16"}), ("flags", [BuilderFlag.DEBUG]), ("flags", None),
        ("memory_pool_limits", {"workspace": 5}), ("memory_pool_limits", {MemoryPoolType.WORKSPACE: "5"}),
        ("tactic_sources", "c"), ("tactic_sources", ["c"]), ("tactic_sources", {1}), ("level", "3"), ("level", 2.5),
        ("profiles", [{"x": (1, 3)}]), ("profiles", OptimizationProfile()), ("timing_cache", 5), ("frozen", 5),
        ("frozen", None), ("budget", "60s"), ("budget", None), ("budget", float("nan")), ("threads", "2"),
        ("threads", 1.5), ("device", 5), ("target", None), ("enabled", "acme"), ("layer_precisions", ["*"]),
        ("layer_precisions", {"*": None}), ("plugins_to_serialize", "auto"), ("sign", None),
        ("max_aux_streams", 0.5), ("progress", 5), ("progress_monitor", None),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_told_before_the_import(field: str, value: Any) -> None:
    name = {"level": "builder_optimization_level", "progress": "progress_monitor"}.get(field, field)
    with pytest.raises(ConfigError, match=f"^(a )?{name} "):
        tactix.build("nowhere.onnx", **{field: value})


@pytest.mark.parametrize("name", ["self", "args", "named", "a/b.c:0"])
def test_inputs_of_any_name(name: str) -> None:
    builder = tactix.Builder()
    net = builder.create_network()
    (y,) = net.add_layer("tactix.Relu", [net.add_input(name, "f32", ("n",))])
    net.mark_output(y, "y")
    engine, x = builder.build(net, config()), np.float32([-1, 2])
    for got in (engine(**{name: x}), engine({name: x})):
        np.testing.assert_array_equal(got, [0, 2])


def test_names_of_fields_and_shapes() -> None:
    with pytest.raises(AttributeError, match="optimization_level"):
        config().optimization_level = 3  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="no build option 'levl'"):
        configure(levl=3)
    with pytest.raises(ConfigError, match="by input name"):
        configure(shapes=(1, 3))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"2 shapes of 'x'.*min, opt, max"):
        configure(shapes={"x": ((1, 3), (2, 3))})  # type: ignore[dict-item]
    lists = configure(shapes={"x": ([1, 3], [2, 3], [4, 3])})  # type: ignore[dict-item]
    assert lists.profiles == configure(shapes={"x": ((1, 3), (2, 3), (4, 3))}).profiles
    assert configure(enable="acme").enabled == {"acme"}
    for bad, why in (((-1, 3), "a size below 0"), ((2, 3, 4), "the same number of axes")):
        with pytest.raises(ConfigError, match=f"'x'.*{why}"):
            OptimizationProfile().set_shape("x", bad, (2, 3), (4, 3))
    for junk in (None, 3, (1.5, 3), ("n", 3), "13"):
        with pytest.raises(ShapeError, match=r"x: .* is no shape"):
            OptimizationProfile().set_shape("x", junk, (2, 3), (4, 3))  # type: ignore[arg-type]


def test_lower_precision_is_taken_where_it_is_faster_alone() -> None:
    rng = np.random.default_rng(2)
    builder = tactix.Builder()
    net = builder.create_network()
    w = net.add_constant(rng.standard_normal((1, 1, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [net.add_input("x", "f32", (1, 1, 32, 32)), w])
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(1, 900))
    for size in ((900, 2048), (2048, 2048), (2048, 4)):
        w = net.add_constant(
            rng.standard_normal(size, dtype=np.float32) / np.float32(size[0] ** 0.5)
        )
        (y,) = net.add_layer("tactix.Relu", [net.add_layer("tactix.MatMul", [y, w])[0]])
    net.mark_output(y, "y")

    def plan(*flags: BuilderFlag) -> Any:
        config = tactix.BuilderConfig(
            flags=set(flags), builder_optimization_level=0, timing_cache=False
        )
        return builder.build_plan(net, config)

    wide, lowered = plan(), plan(BuilderFlag.BF16)
    assert lowered.ledger["predicted_seconds"] < wide.ledger["predicted_seconds"]
    kinds = [s.info["kind"] for s in lowered.steps]
    assert "tactix.Convolution@1" in kinds
    assert "tactix.WideMatMul@1" in kinds
    assert "tactix.bf16_matmul" in lowered.ledger["rules"]


class NoWideProducts(Tactic):
    """Anything by its reference but products of float32."""

    key, device, source, implements = "test.narrow@1", "cpu", "test", ("*",)

    def variants(self, node: Any, device: Any) -> Any:
        return Reject("float32") if node.layer.name == "MatMul" else [Variant()]

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        return KernelArtifact("tactix.numpy@1", params=node.meaning)


def test_what_has_no_kernel_in_float32_is_built_in_lower_precision() -> None:
    builder = tactix.Builder(session=session(NoWideProducts()))
    net = builder.create_network()
    w = net.add_constant(np.ones((64, 32), np.float32))
    net.mark_output(*net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("n", 64)), w]))
    settings = config(tactic_sources={"test"}, builder_optimization_level=0)
    with pytest.raises(NoTacticError, match=r"test\.narrow@1: float32"):
        builder.build_plan(net, settings)
    settings.flags = {BuilderFlag.BF16}
    plan = builder.build_plan(net, settings)
    assert any("tactix.WideMatMul@1" in s.info["layers"] for s in plan.steps)


def test_a_device_without_a_precision_says_so_and_computes_in_float32() -> None:
    builder = tactix.Builder(log := KeptLog())
    for flag in (BuilderFlag.FP16, BuilderFlag.TF32):
        made = builder.build_plan(relu(builder), config(flags={flag}))
        assert {o.spec.dtype.value for s in made.steps for o in (*s.inputs, *s.outputs)} == {"f32"}
    told = [m for m in log.lines if "has no kernels" in m]
    assert [m.split("float32 layers in ")[1] for m in told] == [
        f"{name}, which stay float32; there are some for BF16: set that flag"
        for name in ("fp16", "tf32")
    ]


def test_precision_as_a_keyword() -> None:
    assert configure(precision="bf16").flags == {BuilderFlag.BF16}
    given = config(flags={BuilderFlag.DEBUG})
    assert configure(given, precision="fp16").flags == {BuilderFlag.DEBUG, BuilderFlag.FP16}
    assert configure(given).flags == given.flags == {BuilderFlag.DEBUG}
    with pytest.raises(ConfigError, match="fp32, tf32, fp16, bf16, int8 or fp8"):
        configure(precision="int4")
    for precision in ("tf32", "fp16", "bf16", "int8"):
        with pytest.raises(ConfigError, match="EXACT_NUMERICS"):
            configure(precision=precision, flags={BuilderFlag.EXACT_NUMERICS}).check()


def test_loading_imports_no_layers_importers_or_builder(tmp_path: Path) -> None:
    tactix.build(
        Path(__file__).parents[1] / "models" / "mlp.onnx", level=0, timing_cache=False
    ).save(tmp_path / "m")
    code = """import sys, numpy, tactix
e = tactix.load(sys.argv[1])
e(*[numpy.zeros([d if isinstance(d, int) else 1 for d in i.shape], i.dtype.numpy) for i in e.inputs])
print(*sys.modules)"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "tactix_cpu.launcher" in loaded
    assert not loaded & {"tactix.builder", "tactix_ops.layers", "onnx", "email.parser", "difflib"}


def test_exact_numerics_tell_which_rules_they_hold_back() -> None:
    builder = tactix.Builder()
    net = builder.create_network()
    rng = np.random.default_rng(0)
    w, *of_channels = (
        net.add_constant(rng.random(shape, dtype=np.float32))
        for shape in ((4, 2, 3, 3), *((4,),) * 4)
    )
    (y,) = net.add_layer("tactix.Convolution", [net.add_input("x", "f32", (1, 2, 5, 5)), w])
    (y,) = net.add_layer("tactix.BatchNormalization", [y, *of_channels], "norm")
    net.mark_output(y, "y")
    given = config(flags={BuilderFlag.EXACT_NUMERICS})
    plan = builder.build_plan(net, given)
    told = [m for m in plan.ledger["fusion"]["nearly"] if m["node"] == "norm"]
    assert {m["rule"] for m in told} >= {"tactix.norm_into_conv", "tactix.norm_as_pointwise"}
    assert all("exact numerics" in m["reason"] for m in told)
    assert "tactix.norm_into_conv" not in {f["rule"] for f in plan.ledger["fusion"]["fired"]}
