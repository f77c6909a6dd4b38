"""Profiles with kernels of their own: one plan, whose kernels are those of the profile of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_states

import tactix
from tactix.base.errors import ConfigError, LockError, PlanFormatError, ShapeError
from tactix.config import BuilderFlag, OptimizationProfile
from tactix.contracts.tactic import CompileContext, Variant
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix.plan.schema import Plan, validate
from tactix.run.engine import Engine
from tactix_cpu.tactics.matmul.gemm import CpuGemmTactic
from tactix_inspect.layers import LayersComparison, by_reference
from tactix_inspect.replay import StepReplay
from tactix_lock import document, frozen
from tactix_refit.refitter import Refitter
from tactix_tools.cli import main
from tactix_tools.explanation import explain

pytestmark = pytest.mark.compiler

WIDTH = 48
RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((WIDTH, WIDTH), dtype=np.float32) for _ in range(2)]


TILES = [Variant.of(rows=rows, vectors=1, depth=0) for rows in (2, 4)]


def _estimate(monkeypatch: pytest.MonkeyPatch, gain: float) -> None:
    """Two tiles, one of them faster by that share for a few rows, the other for many; faster than
    whatever else bids.
    """

    def cost(self: CpuGemmTactic, work: Any, variant: Variant, ctx: CompileContext) -> float:
        return 1e-12 * (1 + gain * ((variant == TILES[0]) == (ctx.opt["n"] > 4)))

    monkeypatch.setattr(CpuGemmTactic, "variants", lambda self, work, device: TILES)
    monkeypatch.setattr(CpuGemmTactic, "cost", cost)


@pytest.fixture
def opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates by which profiles of few and of many rows want other kernels."""
    _estimate(monkeypatch, 1.0)


def _profile(low: int, opt: int, high: int) -> OptimizationProfile:
    shapes = ((n, WIDTH) for n in (low, opt, high))
    return OptimizationProfile().set_shape("x", *shapes)


STEPS, PROMPTS = (1, 2, 4), (1, 16, 32)


def _network(builder: tactix.Builder) -> NetworkDefinition:
    net = builder.create_network("mlp")
    x = net.add_input("x", "f32", ("n", WIDTH))
    for i, w in enumerate(WEIGHTS):
        (x,) = net.add_layer("tactix.MatMul", [x, net.add_constant(w, f"w{i}")])
        (x,) = net.add_layer("tactix.Tanh", [x])
    net.mark_output(x, "y")
    return net


def _built(*flags: BuilderFlag, **options: Any) -> Engine:
    builder = tactix.Builder()
    return builder.build(_network(builder), _config(*flags, **options))


def _config(
    *flags: BuilderFlag, profiles: Any = (STEPS, PROMPTS), level: int = 0, budget: float = 60.0
) -> tactix.BuilderConfig:
    return tactix.BuilderConfig(
        flags={BuilderFlag.PROFILE_KERNELS, *flags},
        builder_optimization_level=level,
        profiles=[_profile(*p) for p in profiles],
        threads=1,
        budget=budget,
        timing_cache=False,
    )


def _wanted(x: Any) -> Any:
    for w in WEIGHTS:
        x = np.tanh(x @ w)
    return x


def _x(rows: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, WIDTH), dtype=np.float32)


def _check(run: Any, rows: int) -> None:
    np.testing.assert_allclose(run(_x(rows)), _wanted(_x(rows)), rtol=1e-4, atol=1e-5)


def _sets(plan: Plan) -> tuple[Plan, ...]:
    assert plan.kernel_sets
    return plan.steps[0].plans


def _variants(plan: Plan) -> list[str]:
    return [s.info["variant"] for s in plan.steps if s.info["tactic"] == "tactix.c_gemm@1"]


def test_profiles_run_on_kernels_of_their_own(opinion: None) -> None:
    engine = _built()
    assert engine.plan.kernel_sets == (0, 1)
    few, many = _sets(engine.plan)
    assert _variants(few) != _variants(many)
    program = engine._program
    assert [program.at({"n": n}) for n in (1, 4, 5, 32)] == [
        program.bodies[0][k] for k in (0, 0, 1, 1)
    ]
    for rows in (1, 32, 4, 5, 1, 17):
        _check(engine, rows)


def test_one_context_goes_from_profile_to_profile(opinion: None) -> None:
    """The first that takes a shape, or the one that is asked for."""
    engine = _built()
    context = engine.create_execution_context()
    context.shape_cache_size = 1

    def run(x: Any) -> Any:
        return context.run({"x": x})["y"]

    for rows in (1, 16, 2, 32, 1):
        _check(run, rows)
        y = np.empty((rows, WIDTH), np.float32)
        context.set_tensor_address("x", _x(rows))
        context.set_tensor_address("y", y)
        context.execute_async_v3()
        np.testing.assert_allclose(y, _wanted(_x(rows)), rtol=1e-4, atol=1e-5)
    context.set_optimization_profile(1)
    _check(run, 1)
    assert context._active is not None
    assert context._active[0].program is engine._program.bodies[0][1]
    context.set_optimization_profile(0)
    with pytest.raises(ShapeError, match="1 to 4"):
        run(_x(16))


def test_shapes_outside_of_all_profiles_are_refused(opinion: None) -> None:
    with pytest.raises(ShapeError, match="no profile takes n = 33"):
        _built()(_x(33))


def test_memory_is_that_of_the_kernels_that_run(opinion: None) -> None:
    engine = _built()
    assert engine.device_memory_size() == engine.device_memory_size({"x": (32, WIDTH)}) > 0
    size = engine.device_memory_size()
    memory = np.zeros(size + 64, np.uint8)
    context = engine.create_execution_context_without_device_memory()
    context.set_device_memory(-(-memory.ctypes.data // 64) * 64, size)
    for rows in (32, 1):
        _check(lambda x: context.run({"x": x})["y"], rows)


@pytest.mark.parametrize(("gain", "sets"), [(0.02, ()), (0.2, (0, 1))])
def test_kernels_that_gain_little_are_shared(
    monkeypatch: pytest.MonkeyPatch, gain: float, sets: tuple[int, ...]
) -> None:
    _estimate(monkeypatch, gain)
    engine = _built(level=3, budget=0.0)
    assert engine.plan.kernel_sets == sets
    assert len(engine.plan.profiles) == 2
    for rows in (1, 32):
        _check(engine, rows)


def test_profiles_that_agree_share_a_set(opinion: None) -> None:
    engine = _built(profiles=(STEPS, PROMPTS, (1, 2, 48)))
    assert engine.plan.kernel_sets == (0, 1, 0)
    for rows in (3, 30, 48):
        _check(engine, rows)


def test_without_the_flag_the_first_profile_is_tuned_for(opinion: None) -> None:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        builder_optimization_level=0, profiles=[_profile(*STEPS), _profile(*PROMPTS)]
    )
    assert builder.build_plan(_network(builder), config).kernel_sets == ()


def test_what_sets_have_in_common_is_in_the_file_once(opinion: None) -> None:
    plan = _built().plan
    blobs = [{b.blob for b in p.buffers if b.kind == "weight"} for p in _sets(plan)]
    held = {name for name in plan.blobs if any(name in own for own in blobs)}
    assert held == set.union(*blobs)
    raw = container.dump(plan)
    loaded = container.load(raw)
    assert loaded.kernel_sets == (0, 1)
    assert container.dump(loaded) == raw


@pytest.mark.parametrize("flavour", ["default", "dispatch"])
def test_plans_are_loaded(opinion: None, tmp_path: Path, flavour: str) -> None:
    more = (BuilderFlag.VERSION_COMPATIBLE,) if flavour == "dispatch" else ()
    _built(*more).save(tmp_path / "a.plan")
    loaded = tactix.Runtime(flavour=flavour).deserialize(tmp_path / "a.plan")
    for rows in (1, 32, 4):
        _check(loaded, rows)


def test_plans_take_other_weights(opinion: None, tmp_path: Path) -> None:
    engine = _built(BuilderFlag.REFIT)
    context = engine.create_execution_context()
    for rows in (1, 32):
        _check(lambda x: context.run({"x": x})["y"], rows)
    refitter = Refitter(engine)
    refitter.set_named_weights("w0", np.zeros_like(WEIGHTS[0]))
    refitter.refit()
    for rows in (1, 32):
        assert not context.run({"x": _x(rows)})["y"].any()


def test_references_may_run_in_place_of_code(opinion: None) -> None:
    raw = container.dump(_built().plan)
    engine = tactix.load(raw, on_untrusted="references")
    for rows in (1, 32):
        _check(engine, rows)


def test_reports_tell_of_all_sets(
    opinion: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = _built()
    engine.save(tmp_path / "a.plan")
    steps = engine.inspect()["steps"]
    assert [len(body) for body in steps[0]["bodies"]] == [len(p.steps) for p in _sets(engine.plan)]
    names = [row["name"] for row in explain(engine)["nodes"]]
    assert {name[:2] for name in names} == {"0/", "1/"}
    for arguments in (["inspect"], ["explain"], ["diff", str(tmp_path / "a.plan")]):
        command = [*arguments, str(tmp_path / "a.plan"), "--json"]
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)


def test_states_grow_through_all_sets() -> None:
    """A prompt and steps of a decoder."""
    builder = tactix.Builder()
    profiles = [OptimizationProfile(), OptimizationProfile()]
    for profile, new in zip(profiles, ((1, 1, 1), (1, 8, 16)), strict=True):
        profile.set_shape("x", *((2, test_states.HEADS, n, test_states.SIZE) for n in new))
    config = tactix.BuilderConfig(
        flags={BuilderFlag.PROFILE_KERNELS, BuilderFlag.RESERVE_STATES},
        builder_optimization_level=0,
        profiles=profiles,
        threads=1,
    )
    engine = builder.build(test_states._network(builder), config)
    context = engine.create_execution_context()
    context.reserve(24)
    copying = test_states.Copying(test_states._built())
    for k, count in enumerate((8, 1, 1, 5, 1)):
        test_states._same(context, copying, test_states._rows(count, seed=k))


@pytest.mark.parametrize(
    ("flags", "why"),
    [((BuilderFlag.REFIT, BuilderFlag.WEIGHT_STREAMING), "weights stream")],
)
def test_what_cannot_be_together_is_refused(flags: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        _built(*flags)


@pytest.mark.parametrize("profiles", [(STEPS, PROMPTS, (1, 2, 48)), (STEPS, (1, 3, 8))])
def test_a_lock_gives_the_same_bytes(opinion: None, profiles: Any) -> None:
    """Also where profiles share a set, or all of them one."""
    builder = tactix.Builder()
    config = _config(profiles=profiles)
    lock = frozen.make(builder, _network(builder), config)
    settings = frozen.settings(builder.session, lock, _network(builder), _config(profiles=profiles))
    plan = builder.build_plan(_network(builder), settings)
    frozen.compare(plan, lock)
    assert plan.kernel_sets == _built(profiles=profiles).plan.kernel_sets
    assert plan.profiles == _built(profiles=profiles).plan.profiles


def test_locks_know_their_sets(opinion: None, tmp_path: Path) -> None:
    """One of an earlier version knows none; one whose sets are not there is no lock."""
    builder = tactix.Builder()
    text = frozen.make(builder, _network(builder), _config()).text()
    whole = json.loads(text)
    path = tmp_path / "a.lock"
    path.write_text(text)
    assert document.read(path).choices.sets == (0, 1)
    for sets in ([0, 2], [1, 0], ["0"], [0]):
        whole["choices"]["sets"] = sets
        path.write_text(json.dumps(whole))
        with pytest.raises(LockError, match="not a lock"):
            document.read(path)
    earlier = whole["choices"]["bodies"][0]
    del earlier["sets"]
    path.write_text(json.dumps({**whole, "choices": earlier}))
    assert document.read(path).choices.sets == ()


@pytest.mark.parametrize("sets", [[0], [0, 2], [0, "1"], [0, 1, 0], None, [-1, 0]])
def test_sets_that_are_not_there_are_refused(opinion: None, sets: Any) -> None:
    plan = _built().plan
    step = plan.steps[0]
    artifact = replace(step.artifact, params={"kernel_sets": sets})
    with pytest.raises(PlanFormatError):
        validate(replace(plan, steps=(replace(step, artifact=artifact),)))


def test_sets_of_other_inputs_are_refused(opinion: None) -> None:
    plan = _built().plan
    step = plan.steps[0]
    other = replace(step.plans[1], outputs=(replace(step.plans[1].outputs[0], name="z"),))
    with pytest.raises(PlanFormatError, match="other inputs or outputs"):
        validate(replace(plan, steps=(replace(step, plans=(step.plans[0], other)),)))


def test_steps_of_the_set_that_a_shape_takes_are_compared(opinion: None) -> None:
    engine, session = _built(), tactix.Session(group="build")
    sets = _sets(engine.plan)
    for rows, taken in ((2, sets[0]), (16, sets[1])):
        comparison = LayersComparison(engine.plan, {"reference": by_reference()})
        context = engine.create_execution_context()
        context.observer = StepReplay(session, comparison.visit)
        context.run({"x": _x(rows)})
        report = comparison.report()
        assert report.passed
        assert [x.name for x in report.layers] == [s.name for s in taken.steps]
        assert report.count("reference") == len(taken.steps)
        assert {x.plan for x in report.layers} == {list(engine.plan.nested()).index(taken)}
