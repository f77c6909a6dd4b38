"""Branches and loops in each other run natively, to any depth: random ones, compared with ONNX
Runtime.
"""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from control_nests import Nest, feeds
from test_control_flow import check, parsed, rand, text

import tactix
from tactix.base.errors import ExecutionError
from tactix.contracts.allocator import Allocator
from tactix.run.memory import Memory
from tactix_cpu.programs import ElfProgram
from tactix_runtime.weave import Weave
from tactix_sdk.evaluate import evaluate

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler


class Whole(list[ElfProgram]):
    """Native calls of whole plans."""


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Whole:
    seen, call = Whole(), ElfProgram.__call__

    def noting(self: ElfProgram) -> int | None:
        seen.append(self)
        return call(self)

    monkeypatch.setattr(ElfProgram, "__call__", noting)
    return seen


def build(model: Any, threads: int = 1) -> tactix.Engine:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, threads=threads)
    return builder.build(builder.import_model(model), config)


@pytest.mark.parametrize("seed", range(8))
def test_random_nests(whole: Whole, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The first run at a shape goes step by step, the second is one native call."""
    threads = 1 + seed % 2
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    model = Nest(seed).model()
    engine, network = build(model, threads), tactix.Builder().import_model(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for run, (n, t) in enumerate([(3, 2), (3, 2), (3, 2), (1, 1), (5, 4), (5, 4), (3, 2), (3, 2)]):
        given = feeds(run, n, t)
        given = {io.name: given[io.name] for io in engine.inputs}
        want = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
        got, expected = engine(**given), evaluate(network, given)
        for name, w in zip(names, want, strict=True):
            rounding = 1e-2 if name[0] in "fh" else 0
            for other in (w, expected[name]):
                assert got[name].dtype == other.dtype
                np.testing.assert_allclose(got[name], other, rounding, rounding, err_msg=name)
    assert len(whole) == 4


LEAVING = text(
    "float[3] x, int64 outer, bool more",
    "float[3] y, float[3] z",
    """
    two = Constant <value = float {2}> ()
    seven = Constant <value = int64 {7}> ()
    y, z = Loop (outer, more, x, x) <
      body = body (int64 i, bool c, float[3] v, float[3] u)
          => (bool d, float[3] w, float[3] t) {
        d = Identity (c)
        w, a = Loop (seven, more, v, u) <
          body = inner (int64 j, bool e, float[3] p, float[3] q)
              => (bool f, float[3] r, float[3] s) {
            f = Less (j, i)
            r = Sub (q, x)
            s = Mul (p, two)
          }
        >
        t = If (more) <
          then_branch = yes () => (float[3] g) { g = Neg (a) },
          else_branch = no () => (float[3] h) { h = Identity (x) }
        >
      }
    >
    """,
)
"""An inner loop of one run more than the outer one has made, of which two states change places."""


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_that_end_early_inside_of_loops(whole: Whole, threads: int) -> None:
    engine = build(parsed(LEAVING), threads)
    for outer, more in [(3, True), (0, True), (1, True), (2, True), (9, True), (4, False)]:
        check(engine, LEAVING, x=rand(3), outer=np.array(outer), more=np.array(more))
    assert len(whole) == 5


EITHER = text(
    "float[n] x, bool which",
    "float[m] y",
    """
    four = Constant <value = float[4] {1, 2, 3, 4}> ()
    r = If (which) <
      then_branch = yes () => (float[a] t) { t = Neg (x) },
      else_branch = no () => (float[b] e) { e = Relu (four) }
    >
    y = Add (r, r)
    """,
)


def test_branches_of_different_shapes_are_native(whole: Whole) -> None:
    engine = build(parsed(EITHER))
    for n in (4, 3, 4, 0):
        whole.clear()
        for which in (True, False, True, False):
            y = check(engine, EITHER, x=rand(n), which=np.array(which))["y"]
            assert y.shape == ((n,) if which else (4,))
        assert (len(whole), len(set(whole))) == (3, 1)


STEPWISE = text(
    "float[2] x, int64 outer",
    "float[2] y",
    """
    three = Constant <value = int64 {3}> ()
    y = Loop (outer, , x) <
      body = body (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
        d = Identity (c)
        rows = Loop (three, c) <
          body = inner (int64 j, bool e) => (bool f, float[2] row) {
            f = Less (j, i)
            row = Neg (v)
          }
        >
        at = Constant <value = int64[1] {0}> ()
        w = ReduceSum <keepdims = 0> (rows, at)
      }
    >
    """,
)


def test_rows_whose_number_only_running_tells_are_native_in_a_loop_around(whole: Whole) -> None:
    engine = build(parsed(STEPWISE))
    for _ in range(3):
        whole.clear()
        check(engine, STEPWISE, x=rand(2), outer=np.array(4))
    assert len(whole) == 1
    (outer,) = engine.inspect()["steps"]
    (inner,) = [s for s in outer["bodies"][0] if "bodies" in s]
    assert outer["body_runs"] == inner["body_runs"] == ["one native call"]


def test_a_loop_of_another_number_of_runs_than_there_is_room_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = build(parsed(STEPWISE))
    monkeypatch.setattr("tactix_ops.native_control._Nesting.runs", lambda _: 2)
    for outer in (2, 4):
        with pytest.raises(ExecutionError, match="another number of times"):
            engine(rand(2), np.array(outer))


SELECTED = text(
    "TYPE[n] x, bool which, int64 times",
    "TYPE[n] y, bool z",
    """
    y, z = Loop (times, , x, which) <
      body = body (int64 i, bool c, TYPE[n] v, bool b) => (bool d, TYPE[n] w, bool u) {
        d = Identity (c)
        w = If (b) <
          then_branch = yes () => (TYPE[n] t) { t = Add (v, x) },
          else_branch = no () => (TYPE[n] e) { f = Cast <to = 1> (v) g = Neg (f) e = CastLike (g, v) }
        >
        u = Not (b)
      }
    >
    """,
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double", "int32", "int8"])
def test_states_of_other_types(whole: Whole, dtype: str) -> None:
    """Against the reference, as ONNX Runtime has no kernel for some."""
    model = parsed(SELECTED.replace("TYPE", dtype))
    engine, network = build(model), tactix.Builder().import_model(model)
    for times in (3, 3, 0, 4):
        x = (8 * rand(5)).astype(network.inputs[0].spec.dtype.numpy)
        given = {"x": x, "which": np.array(True), "times": np.array(times)}
        want, got = evaluate(network, given), engine(**given)
        np.testing.assert_allclose(
            got["y"].astype(np.float64), want["y"].astype(np.float64), rtol=1e-2
        )
        assert (got["y"].dtype, got["z"]) == (want["y"].dtype, want["z"])
    assert len(whole) == 3


ENDLESS = text(
    "float x, int64 times",
    "float y",
    """
    y = Loop (times, , x) <
      body = outer (int64 i, bool c, float v) => (bool d, float w) {
        d = Identity (c)
        w = Loop ( , , v) <
          body = body (int64 j, bool e, float s) => (bool f, float t) {
            f = Less (j, times)
            t = Neg (s)
          }
        >
      }
    >
    """,
)


def test_a_signal_ends_loops_in_each_other_and_nothing_stays_of_them() -> None:
    def stop(*_: object) -> None:
        raise InterruptedError("the signal came")

    engine = build(parsed(ENDLESS))
    for _ in range(2):
        check(engine, ENDLESS, x=rand(), times=np.array(2))
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.5)
        with pytest.raises(InterruptedError, match="the signal came"):
            engine(rand(), np.array(1 << 40))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    check(engine, ENDLESS, x=rand(), times=np.array(3))


def test_a_profiled_run_goes_step_by_step(whole: Whole) -> None:
    class Noting:
        def __init__(self) -> None:
            self.names: list[str] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.names.append(layer_name)

    engine = build(parsed(LEAVING))
    context, noting = engine.create_execution_context(), Noting()
    feed = {"x": rand(3), "outer": np.array(3), "more": np.array(True)}
    first, again = context.run(feed), context.run(feed)
    context.profiler = noting
    profiled = context.run(feed)
    assert noting.names == [s["name"] for s in engine.inspect()["steps"]]
    for name in ("y", "z"):
        np.testing.assert_array_equal(first[name], again[name])
        np.testing.assert_array_equal(first[name], profiled[name])
    assert len(whole) == 1


def test_whole_runs_take_no_memory_beside_that_of_runs_step_by_step(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, allocate = list[int](), Memory.allocate

    def noting(allocator: Allocator, size: int) -> Memory:
        taken.append(size)
        return allocate(allocator, size)

    monkeypatch.setattr(Memory, "allocate", noting)
    engine = build(parsed(LEAVING))
    feed = {"x": rand(3), "outer": np.array(3), "more": np.array(True)}
    engine(**feed)
    by_steps = list(taken)
    for _ in range(3):
        engine(**feed)
    assert (taken, len(whole)) == (by_steps, 3)


GROWING = text(
    "float[n] x, bool which",
    "float[k] y",
    """
    three = Constant <value = int64 {3}> ()
    y = Loop (three, , x) <
      body = body (int64 i, bool c, float[a] s) => (bool d, float[b] t) {
        d = Identity (c)
        u = If (which) <
          then_branch = yes () => (float[e] g) { g = Neg (s) },
          else_branch = no () => (float[f] h) { h = Relu (s) }
        >
        t = Concat <axis = 0> (u, x)
      }
    >
    """,
)


def test_what_grows_with_a_branch_is_not_bound_for_runs_that_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A branch is bound at sizes that stay."""
    engine, bound = build(parsed(GROWING)), list[object]()
    woven = Weave._woven

    def noting(self: Weave, *args: Any) -> Any:
        bound.append(args[1])
        return woven(self, *args)

    monkeypatch.setattr(Weave, "_woven", noting)
    for n, which in ((2, True), (2, False), (3, True)):
        check(engine, GROWING, x=rand(n), which=np.array(which))
    assert bound == [[(2,), ()]]  # of the whole plan alone, in the second run at a shape
