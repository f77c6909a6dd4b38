"""Profiles: every step is told once a run, with what it does; as a table, JSON and a trace."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.contracts.artifact import Source
from tactix.contracts.launcher import StepSpan
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.segments import SpanProfiler, Spans
from tactix_inspect import peaks, profiling
from tactix_inspect.nvtx_ranges import NvtxSteps
from tactix_inspect.profile import PlanProfile, StepTime
from tactix_inspect.trace import trace
from tactix_tools.cli import PLAN, USAGE, main

MODELS = Path(__file__).parents[2] / "models"
LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, int64 times) => (float[n] y, float[k] z) {
  go = Constant <value = bool {1}> ()
  y = Loop (times, go, x) <body = b (int64 i, bool c, float[a] s) => (bool d, float[b] e) {
    d = Identity (c)
    e = Sin (s)
  }>
  where = NonZero (y)
  flat = Squeeze (where)
  z = Gather (y, flat)
}
"""


@pytest.fixture(scope="module")
def lenet() -> tactix.Engine:
    return tactix.build(MODELS / "lenet.onnx", level=0, threads=2, timing_cache=False)


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((1, 1, 28, 28), dtype=np.float32)}


@pytest.fixture(scope="module")
def found(lenet: tactix.Engine, image: dict[str, Any]) -> profiling.ProfiledRuns:
    return profiling.observed(lenet, image, runs=5)


def test_a_profile_tells_of_each_step(
    lenet: tactix.Engine, image: dict[str, Any], found: profiling.ProfiledRuns
) -> None:
    p = profiling.told(lenet, image, found, None)
    assert [s.name for s in p.steps] == [s.name for s in lenet.plan.steps]
    assert [s.index for s in p.steps] == list(range(len(p.steps)))
    assert p.runs == 5
    assert all(0 <= s.low <= s.seconds <= s.high for s in p.steps)
    assert sum(s.seconds for s in p.steps) == p.in_steps
    assert [s.start for s in p.steps] == sorted(s.start for s in p.steps)
    assert (p.roofline, p.no_roofline) == (None, "it was not asked for")
    assert PlanProfile.from_json(json.loads(json.dumps(p.to_json()))) == p


def test_operations_and_bytes_are_those_of_the_layers(
    lenet: tactix.Engine, image: dict[str, Any], found: profiling.ProfiledRuns
) -> None:
    first, *_, last = profiling.told(lenet, image, found, None).steps
    w, y = 6 * 1 * 5 * 5, 6 * 28 * 28
    assert 2 * y * 25 <= first.flops <= 2 * y * 25 + 4 * y  # and the bias and the Relu
    pooled = y // 4  # by the step or by the next one
    assert 4 * (28 * 28 + w + pooled) <= first.nbytes < 16 * (28 * 28 + w + y)
    assert first.makes[0] in {"/Relu_output_0", "/MaxPool_output_0"}
    assert (last.flops, last.nbytes) == (0, 2 * 4 * 10)


@pytest.mark.compiler
def test_native_steps_are_stamped_on_each_thread(
    monkeypatch: pytest.MonkeyPatch, lenet: tactix.Engine, image: dict[str, Any]
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "1")
    kept = _spans(lenet, image)
    if not any(s.threads for s in kept):
        pytest.skip("the kernels are numpy's: there is no compiler")
    assert [len(s.threads) for s in kept] == [2] * len(lenet.plan.steps)
    for span, after in pairwise(kept):
        assert span.end == after.begin
    for s in kept:
        assert all(0 <= worked <= s.seconds * 1.01 + 1e-7 for worked in s.threads)
        assert all(s.begin <= begun + 1e-9 for begun in s.begun)


def test_an_executor_without_timestamps_is_timed_step_by_step(
    monkeypatch: pytest.MonkeyPatch, lenet: tactix.Engine, image: dict[str, Any]
) -> None:
    before = lenet(image["x"])
    for launcher in lenet._program.launchers.values():
        monkeypatch.setattr(type(launcher), "link_timed", lambda *_: None)
    kept = _spans(lenet, image)
    assert len(kept) == len(lenet.plan.steps)
    assert not any(s.threads for s in kept)
    p = profiling.profile(lenet, image, runs=3)
    assert p.method == "one step after the other, by the host's clock"
    np.testing.assert_array_equal(lenet(image["x"]), before)


def _spans(engine: tactix.Engine, feed: dict[str, Any]) -> list[StepSpan]:
    class Kept(SpanProfiler):
        def __init__(self) -> None:
            self.spans: list[StepSpan] = []

        def report_spans(self, plan: Plan, first: int, spans: Spans) -> None:
            assert first == len(self.spans)
            self.spans += spans()

    context = engine.create_execution_context()
    context.profiler = kept = Kept()
    context.run(feed)
    return kept.spans


def test_steps_of_bodies_and_produced_steps_are_told() -> None:
    import onnx.parser

    engine = tactix.build(onnx.parser.parse_model(LOOP), level=0, timing_cache=False)
    feed = {"x": np.arange(4, dtype=np.float32), "times": np.array(3)}
    p = profiling.profile(engine, feed, runs=3)
    (loop,) = [s for s in engine.plan.steps if s.plans]
    own = [s for s in p.steps if not s.inside]
    assert sorted(s.index for s in own) == list(range(len(engine.plan.steps)))
    inner = [s for s in p.steps if s.inside]
    assert {s.inside for s in inner} == {loop.name}
    assert {s.times for s in inner} == {3.0}
    assert "steps of branches and loops in runs of their own, step by step from" in p.method
    names = [s.name for s in p.steps]
    assert names.index(loop.name) < min(names.index(s.name) for s in inner)
    assert p.in_steps <= p.seconds * (1 + 1e-9), "as a native call the run takes no longer"
    assert sum(s.seconds for s in own) == p.in_steps


def test_steps_with_bodies_take_what_others_leave_of_a_run() -> None:
    plan = SimpleNamespace(
        steps=(SimpleNamespace(plans=()), SimpleNamespace(plans=("body",))),
        produced={1: frozenset()},
        kernel_sets=(),
    )

    def step(index: int, seconds: float, inside: str = "") -> StepTime:
        return StepTime(index, "s", "", "", seconds, seconds, seconds, 0.0, inside=inside)

    measured = [step(0, 2.0), step(1, 8.0), step(0, 5.0, "s")]
    told = profiling.fitted(plan, measured, 8.0)  # type: ignore[arg-type]
    assert [s.seconds for s in told] == [2.0, 6.0, 5.0]
    assert told[1].low == 6.0
    same = profiling.fitted(plan, measured, 12.0)  # type: ignore[arg-type]
    assert list(same) == measured, "a call around steps is none of theirs"


def test_a_trace_has_the_steps_of_a_run_and_what_is_in_memory(
    lenet: tactix.Engine, image: dict[str, Any], found: profiling.ProfiledRuns
) -> None:
    events = trace(lenet.plan, {"x": (1, 1, 28, 28)}, found)["traceEvents"]
    steps = [e for e in events if e["ph"] == "X"]
    assert {e["name"] for e in steps} == {s.name for s in lenet.plan.steps}
    assert all(e["dur"] >= 0 and e["pid"] == 1 for e in steps)
    arena = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert len(arena) == len(lenet.plan.steps)
    assert max(arena) > 0
    assert [e["args"]["bytes"] for e in events if e["ph"] == "i"] == [40]


@pytest.mark.compiler
def test_peaks_are_measured_once(lenet: tactix.Engine) -> None:
    session = Session()
    found = peaks.measured(session, lenet.device, lenet.allocator, 1, 1 << 16)
    if isinstance(found, peaks.NoRoofline):
        pytest.skip(found.why)
    assert found.flops["f32"] > 0
    assert found.nbytes > 0
    assert peaks.measured(session, lenet.device, lenet.allocator, 1, 1 << 16) is found


def test_peaks_are_the_best_of_rounds_until_two_are_alike() -> None:
    rates = {"f32": iter([50.0, 99.0, 70.0, 100.0, 1.0]), "read": iter([8.0] * 9)}
    told = {kind: r.__next__ for kind, r in rates.items()}
    assert peaks.steady(told) == ({"f32": 100.0, "read": 8.0}, pytest.approx(0.01))
    assert next(rates["f32"]) == 1.0, "no more rounds than it takes"
    never = iter(range(1, 99))
    best, spread = peaks.steady({"f32": lambda: 2.0 ** next(never)})
    assert (best["f32"], spread) == (2.0**peaks.MOST_ROUNDS, 0.5)


def test_without_a_compiler_there_is_no_roofline(lenet: tactix.Engine) -> None:
    class Bare:
        def active_compilers(self) -> list[Any]:
            return []

    bare: Any = Bare()

    found = peaks.measured(bare, lenet.device, lenet.allocator, 1, 0)
    assert found == peaks.NoRoofline("no installed plugin compiles 'c'")


@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_90", "sm_90a"])
def test_peaks_of_gpus_compile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tactix_codegen.cuda.target import target
    from tactix_cuda import nvrtc

    if why := nvrtc.why_missing():
        pytest.skip(why)
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    source = peaks.SOURCES["cuda"]
    kernels = [
        peaks.PeakKernel(source, m, 1 << 14, 1) for m in (*source.macros.values(), "PEAK_READ")
    ]
    codes = [k.artifact(nvrtc.NvrtcCompiler.launcher, 132).code for k in kernels]
    texts = [c for c in codes if isinstance(c, Source)]
    made = nvrtc.NvrtcCompiler().compile(texts, target(name))
    assert len({b.blob for b in made}) == len(kernels)


def test_ranges_of_nvtx_are_pushed_around_steps(
    monkeypatch: pytest.MonkeyPatch, lenet: tactix.Engine, image: dict[str, Any]
) -> None:
    import sys
    import types

    told: list[str] = []
    fake: Any = types.ModuleType("nvtx")
    fake.push_range, fake.pop_range = told.append, lambda: told.append("end")
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    context = lenet.create_execution_context()
    context.observer = NvtxSteps()
    context.run(image)
    names = [s.name for s in lenet.plan.steps]
    assert told == [word for name in names for word in (name, "end")]
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(tactix.TactixError, match="pip install nvtx"):
        NvtxSteps()


def test_the_command_prints_a_table_and_writes_files(
    lenet: tactix.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, out, traced = (tmp_path / name for name in ("x.plan", "p.json", "t.json"))
    lenet.save(plan)
    quick = ["--runs", "2", "--no-roofline"]
    assert main(["profile", str(plan), *quick, "-o", str(out), "--trace", str(traced)]) == 0
    said = capsys.readouterr().out
    assert "no roofline: it was not asked for" in said
    assert "; 2 runs" in said
    assert all(word in said for word in ("of it in steps", "with timestamps", "share", "FLOPs"))
    p = PlanProfile.from_json(json.loads(out.read_text()))
    assert len(p.plan) == 64
    assert p.shapes == {"x": (1, 1, 28, 28)}
    assert json.loads(traced.read_text())["traceEvents"]
    assert main(["profile", str(plan), *quick, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "tactix profile"


def test_bad_arguments_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "x.plan"
    plan.write_bytes(b"neither a plan nor a model")
    assert main(["profile", str(plan), "--trace", str(tmp_path)]) == USAGE
    assert "Name another place with --trace" in " ".join(capsys.readouterr().err.split())
    assert main(["profile", str(plan)]) == PLAN
    assert "x.plan" in capsys.readouterr().err
