"""Loops whose runs of the body follow each other in one native call, compared with ONNX Runtime,
and what cannot run so.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_control_flow import build, check, rand, text

import tactix
from tactix.base.errors import ExecutionError
from tactix.contracts.program import Iteration
from tactix_cpu import launcher
from tactix_cpu.programs import ElfProgram
from tactix_ops import growing_loops
from tactix_runtime import dynamic_shapes, growth

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler


class Turns(list[tuple[int, int, int]]):
    """Native calls of loops: first run, the one before which to end, and where it ended.
    ``whole``: how many were made of whole plans instead, and ``ended``: how many of them before
    their end, as there was no room.
    """

    whole = ended = 0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    seen, iterate, call = Turns(), ElfProgram.iterate, ElfProgram.__call__

    def counting(self: ElfProgram, iteration: Iteration, start: int, stop: int) -> int:
        made = iterate(self, iteration, start, stop)
        seen.append((start, stop, made))
        return made

    def counting_whole(self: ElfProgram) -> int | None:
        stopped = call(self)
        seen.whole += 1
        seen.ended += stopped is not None
        return stopped

    monkeypatch.setattr(ElfProgram, "iterate", counting)
    monkeypatch.setattr(ElfProgram, "__call__", counting_whole)
    return seen


SWAPPED = text(
    "float[n] a, float[n] b, int64 times, bool go",
    "float[n] x, float[n] y, float[k, n] sums, int64[k] numbers",
    """
    x, y, sums, numbers = Loop (times, go, a, b) <
      body = body (int64 i, bool c, float[n] p, float[n] q)
          => (bool d, float[n] r, float[n] s, float[n] t, int64 j) {
        d = Identity (c)
        r = Identity (q)
        s = Add (p, b)
        t = Add (p, q)
        j = Identity (i)
      }
    >
    """,
)
"""States that change places, an outer value, and two stacks."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 5, 64])
def test_states_change_places_and_rows_are_stacked(turns: Turns, n: int, threads: int) -> None:
    engine = build(SWAPPED, threads=threads)
    for times in (1, 2, 3, 50):
        a, b = rand(n, seed=1), rand(n, seed=2)
        with engine.create_execution_context() as context:  # whose first run is step by step
            check(in_context(context), SWAPPED, a=a, b=b, times=np.array(times), go=np.array(True))
        assert turns[-1] == (0, times, times)
    assert not turns.whole


KEPT = text(
    "float[n, 4] a, int64 times",
    "float[n, 4] x",
    """
    x = Loop (times, , a) <
      body = body (int64 i, bool c, float[n, 4] p) => (bool d, float[n, 4] r) {
        d = Identity (c)
        s = Add (p, a)
        r = Relu (s)
      }
    >
    """,
)


@pytest.mark.parametrize(("model", "given"), [(KEPT, ""), (SWAPPED, "go")], ids=["state", "stacks"])
def test_shapes_in_turns_are_native_calls_each(turns: Turns, model: str, given: str) -> None:
    """From their third turn on; others are run step by step between."""
    engine, times = build(model), np.array(3)
    more = {"go": np.array(True)} if given else {}

    def turn(n: int) -> None:
        shape = (n,) if given else (n, 4)
        both = {"a": rand(*shape, seed=n), **({"b": rand(*shape, seed=2)} if given else {})}
        check(engine, model, **both, times=times, **more)

    for n in (2, 5, 0, 3) * 3:
        turn(n)
    steps, whole = len(turns), turns.whole
    for n in (2, 5, 0, 3) * 2:
        turn(n)
    assert (len(turns), turns.whole) == (steps, whole + 8)
    for n in range(10, 50):
        turn(n)
    assert turns.whole == whole + 8
    turn(5)
    engine.close()


def test_memory_that_is_large_is_not_kept_for_every_shape(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_shapes, "SMALL_BYTES", -1)
    engine = build(KEPT)
    for n in (2, 5) * 4:
        check(engine, KEPT, a=rand(n, 4), times=np.array(3))
    assert not turns.whole


def in_context(context: tactix.ExecutionContext) -> Callable[..., Any]:
    return lambda **feeds: context.run(feeds)


@pytest.mark.parametrize(("times", "go"), [(0, True), (3, False), (-1, True)])
def test_a_loop_of_no_runs_gives_the_given_states(turns: Turns, times: int, go: bool) -> None:
    """Of ONNX Runtime the stacks then have no second axis."""
    a, b = rand(3, seed=1), rand(3, seed=2)
    found = build(SWAPPED)(a, b, np.array(times), np.array(go))
    np.testing.assert_array_equal(found["x"], a)
    np.testing.assert_array_equal(found["y"], b)
    assert (found["sums"].shape, found["numbers"].shape) == ((0, 3), (0,))
    assert not turns
    assert not np.shares_memory(found["x"], a)


STOPPING = text(
    "float[2] a, int64 times, float limit",
    "float[2] x, float[k, 2] rows",
    """
    x, rows = Loop (times, , a) <
      body = body (int64 i, bool c, float[2] p) => (bool d, float[2] r, float[2] row) {
        two = Constant <value = float {2}> ()
        r = Mul (p, two)
        m = ReduceMax <keepdims = 0> (r)
        d = Less (m, limit)
        row = Neg (r)
      }
    >
    """,
)


def test_a_body_ends_the_loop(turns: Turns) -> None:
    engine, a = build(STOPPING), np.array([1, -1], np.float32)
    for limit, runs in ((0, 1), (3, 2), (1000, 10), (1e30, 20)):
        feeds = {"a": a, "times": np.array(20), "limit": np.array(limit, np.float32)}
        with engine.create_execution_context() as context:  # whose first run is step by step
            check(in_context(context), STOPPING, **feeds)
        assert turns[-1] == (0, 20, runs)


def test_stacks_grow_where_nobody_says_how_many_runs_there_are(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tactix_ops.steady_loops.FIRST_BYTES", 24)
    engine, a = build(STOPPING), np.array([1, -1], np.float32)
    endless = np.array(np.iinfo(np.int64).max)
    found = check(engine, STOPPING, a=a, times=endless, limit=np.array(2**40, np.float32))
    assert found["rows"].shape == (40, 2)
    assert turns == [(0, 3, 3), (3, 6, 6), (6, 12, 12), (12, 24, 24), (24, 48, 40)]


def test_stacks_beyond_all_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tactix_ops.steady_loops.FIRST_BYTES", 1 << 62)
    engine, a = build(STOPPING), np.ones(2, np.float32)
    endless = np.array(np.iinfo(np.int64).max)
    with pytest.raises(ExecutionError, match="cannot allocate"):
        engine(a, endless, np.array(3, np.float32))


def test_an_executor_of_an_earlier_version_runs_step_by_step(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a plan which was loaded before."""
    engine = build(SWAPPED)
    feeds = {"a": rand(4, seed=1), "b": rand(4, seed=2), "times": np.array(5), "go": np.array(True)}
    check(engine, SWAPPED, **feeds)
    monkeypatch.setattr(launcher._executors[launcher.ABI], "advance", None)
    turns.clear()
    check(build(SWAPPED), SWAPPED, **feeds)
    assert not turns


SLICED = text(
    "float[b] h, float[t, b] x, float[b, t] y, float[b] w",
    "float[b] last, float[b, t] rows, float[t, b] sums",
    """
    last, rows, sums = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],
        scan_input_directions = [0, 1], scan_output_axes = [1, 0], scan_output_directions = [0, 1],
      body = body (float[b] p, float[b] u, float[b] v) => (float[b] q, float[b] r, float[b] s) {
        m = Mul (p, w)
        q = Add (m, u)
        r = Sub (q, v)
        s = Add (q, v)
      }
    > (h, x, y)
    """,
)


@pytest.mark.parametrize(("t", "b"), [(1, 3), (7, 1), (30, 4)])
def test_slices_and_stacks_go_both_ways_along_any_axis(turns: Turns, t: int, b: int) -> None:
    engine = build(SLICED)
    feeds = {"h": rand(b), "x": rand(t, b, seed=1), "y": rand(b, t, seed=2), "w": rand(b, seed=3)}
    for factor in (1, 2):
        check(engine, SLICED, **{**feeds, "w": feeds["w"] * factor})
        assert turns[-1] == (0, t, t)


def test_slices_without_elements(turns: Turns) -> None:
    """ONNX Runtime ends the process."""
    found = build(SLICED)(rand(0), rand(5, 0), rand(0, 5), rand(0))
    assert [found[y].shape for y in ("last", "rows", "sums")] == [(0,), (0, 5), (5, 0)]
    assert turns == [(0, 5, 5)]


def test_slices_of_different_lengths_are_refused() -> None:
    engine = build(SLICED.replace("float[b, t] y", "float[b, u] y"))
    with pytest.raises(ExecutionError, match=r"is (shorter|longer) than argument"):
        engine(rand(2), rand(3, 2), rand(2, 4), rand(2))


NESTED = text(
    "float[4] x, int64 outer",
    "float[4] y",
    """
    three = Constant <value = int64 {3}> ()
    y = Loop (outer, , x) <
      body = body (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
        d = Identity (c)
        w = Loop (three, , v) <
          body = inner (int64 j, bool e, float[4] u) => (bool f, float[4] z) {
            f = Identity (e)
            k = Cast <to = 1> (i)
            s = Add (u, k)
            z = Mul (s, x)
          }
        >
      }
    >
    """,
)


def test_a_loop_in_a_loop_is_one_native_call_and_inspect_says_so(turns: Turns) -> None:
    engine = build(NESTED)
    for outer in (5, 1, 0, 2):
        check(engine, NESTED, x=rand(4) / 2, outer=np.array(outer))
    assert (turns, turns.whole) == ([(0, 5, 5)], 3)
    (outer,) = engine.inspect()["steps"]
    (inner,) = [s for s in outer["bodies"][0] if "bodies" in s]
    assert outer["body_runs"] == inner["body_runs"] == ["one native call"]


def test_results_are_of_their_own_and_a_loop_leaves_nothing_behind(turns: Turns) -> None:
    """Runs of one context, with states at addresses that were used before."""
    engine = build(SWAPPED)
    known: list[Any] = []
    for times in (3, 4, 3):
        a, b = rand(8, seed=times), rand(8, seed=times + 1)
        found = check(engine, SWAPPED, a=a, b=b, times=np.array(times), go=np.array(True))
        known.append((found["x"], found["x"].copy()))
    for x, copy in known:
        np.testing.assert_array_equal(x, copy)
    arrays = [x for x, _ in known]
    assert not any(np.shares_memory(a, b) for a, b in pairwise(arrays))


GATHERED = text(
    "float[5] x, int64 times, int64 first",
    "float y",
    """
    zero = Constant <value = float {0}> ()
    y = Loop (times, , zero) <
      body = body (int64 i, bool c, float s) => (bool d, float t) {
        d = Identity (c)
        at = Add (i, first)
        e = Gather (x, at)
        t = Add (s, e)
      }
    >
    """,
)


def test_an_index_out_of_range_ends_the_loop_and_names_the_step(turns: Turns) -> None:
    engine, x = build(GATHERED), rand(5)
    with pytest.raises(ExecutionError, match="out of range"):
        engine(x, np.array(1 << 40), np.array(0))
    check(engine, GATHERED, x=x, times=np.array(5), first=np.array(0))
    check(engine, GATHERED, x=x, times=np.array(2), first=np.array(3))
    with pytest.raises(ExecutionError, match=r"Gather.* out of range"):
        engine(x, np.array(1 << 40), np.array(0))
    check(engine, GATHERED, x=x, times=np.array(1), first=np.array(4))
    assert (turns, turns.whole) == ([], 3)


SCATTERED = text(
    "float[n] x, int64[k] at, float[k] more, int64 times",
    "float[n] y, float[n] z",
    """
    y, z = Loop (times, , x, x) <
      body = body (int64 i, bool c, float[n] s, float[n] u)
          => (bool d, float[n] t, float[n] v) {
        d = Identity (c)
        step = Mul (i, two)
        here = Add (at, step)
        t = ScatterElements <reduction = "add"> (s, here, more)
        w = ScatterElements (u, here, more)
        v = Add (w, u)
      }
    >
    """,
).replace("y, z = Loop", "two = Constant <value = int64 {2}> ()  y, z = Loop", 1)


def test_a_state_that_is_changed_in_place_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, iterate = list[Iteration](), ElfProgram.iterate

    def noting(self: ElfProgram, iteration: Iteration, start: int, stop: int) -> int:
        seen.append(iteration)
        return iterate(self, iteration, start, stop)

    monkeypatch.setattr(ElfProgram, "iterate", noting)
    engine, x = build(SCATTERED), rand(12)
    given = x.copy()
    for times in (1, 2, 5):
        at, more = np.array([0, 3]), rand(2, seed=times)
        check(engine, SCATTERED, x=x, at=at, more=more, times=np.array(times))
    np.testing.assert_array_equal(x, given)
    places = [[m.places for m in iteration.moves] for iteration in seen]
    for read, written, other, _ in places:
        assert read == written
        assert len(set(read)) == 1
        assert len(set(other)) == 2


ENDLESS = text(
    "float x",
    "float y",
    """
    y = Loop (, , x) <
      body = body (int64 i, bool c, float s) => (bool d, float t) { d = Identity (c)  t = Neg (s) }
    >
    """,
)


def test_a_signal_ends_a_loop_without_end() -> None:
    def stop(*_: object) -> None:
        raise InterruptedError("the signal came")

    engine, x = build(ENDLESS), rand()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.5)
        with pytest.raises(InterruptedError, match="the signal came"):
            engine(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


JOINED = text(
    "float[n] x, float[m] more, int64 times",
    "float[k] y",
    """
    y = Loop (times, , x) <
      body = body (int64 i, bool c, float[a] s) => (bool d, float[b] t) {
        d = Identity (c)
        u = Concat <axis = 0> (s, more)
        t = Mul (u, two)
      }
    >
    """,
).replace("y = Loop", "two = Constant <value = float {2}> ()  y = Loop", 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_states_that_grow_or_stay_follow_each_other(turns: Turns, threads: int) -> None:
    engine = build(JOINED, threads=threads)
    for n, m, times in ((3, 2, 4), (3, 0, 4), (3, 1, 4), (0, 1, 4), (3, 1, 4), (3, 2, 1)):
        turns.clear()
        check(engine, JOINED, x=rand(n), more=rand(m), times=np.array(times))
        assert turns == [(0, times, times)]


CACHED = text(
    "float[b, n, 4] cache, float[b, 4] x, float[4] w, int64 times, float limit",
    "float[b, k, 4] y, float[b, 4] z, int64[r] numbers, float[r, b] rows",
    """
    one = Constant <value = int64[1] {1}> ()
    y, z, numbers, rows = Loop (times, , cache, x) <
      body = body (int64 i, bool c, float[b, m, 4] past, float[b, 4] u)
          => (bool d, float[b, l, 4] present, float[b, 4] v, int64 j, float[b] row) {
        j = Identity (i)
        scaled = Mul (u, w)
        each = Unsqueeze (scaled, one)
        present = Concat <axis = 1> (past, each)
        turned = Transpose <perm = [0, 2, 1]> (present)
        seen = MatMul (each, turned)
        shares = Softmax <axis = -1> (seen)
        found = MatMul (shares, present)
        v = Squeeze (found, one)
        row = ReduceSum <keepdims = 0> (v, one)
        all = ReduceSum <keepdims = 0> (row)
        k = Cast <to = 1> (i)
        bar = Mul (k, limit)
        d = Greater (all, bar)
      }
    >
    """,
)
FOREVER = 1 << 40


def cached(batch: int, length: int, times: int, limit: float) -> dict[str, Any]:
    return {
        "cache": np.abs(rand(batch, length, 4)),
        "x": np.abs(rand(batch, 4)) + np.float32(1),
        "w": np.float32([0.98, 0.9, 0.97, 0.99]),
        "times": np.array(times),
        "limit": np.array(limit, np.float32),
    }


def test_a_cache_that_is_read_grows_in_one_native_call(turns: Turns) -> None:
    engine = build(CACHED)
    for batch, length, times in ((1, 3, 5), (2, 0, 64), (1, 3, 5), (1, 1, 1), (3, 2, 40)):
        turns.clear()
        check(engine, CACHED, **cached(batch, length, times, -1.0))
        assert turns == [(0, times, times)]


def test_what_outgrows_its_room_gets_more_and_keeps_it(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_loops, "FIRST_RUNS", 20)
    engine = build(CACHED)
    given = cached(2, 3, 100, -1.0)
    check(engine, CACHED, **given)
    assert turns == [(0, 20, 20), (20, 80, 80), (80, 100, 100)]
    turns.clear()
    check(engine, CACHED, **cached(1, 3, 100, -1.0))
    assert turns == [(0, 100, 100)]


def test_a_body_ends_a_loop_whose_states_grow(turns: Turns) -> None:
    engine = build(CACHED)
    made = []
    for limit, batch in ((1e9, 1), (0.4, 1), (0.05, 1), (0.06, 3)):
        turns.clear()
        with engine.create_execution_context() as context:  # whose first run is step by step
            found = check(in_context(context), CACHED, **cached(batch, 2, FOREVER, limit))
        made.append(len(found["numbers"]))
        assert turns[-1][2] == made[-1]
    assert 1 < min(made) < growing_loops.FIRST_RUNS < max(made)


def test_a_cache_that_grows_is_part_of_the_whole_plan_from_the_second_run_on(turns: Turns) -> None:
    engine = build(CACHED)
    counts = (5, 5, 1, 2, 64, 3, 40)
    for times in counts:
        check(engine, CACHED, **cached(2, 3, times, -1.0))
    assert (turns, turns.whole, turns.ended) == ([(0, 5, 5)], len(counts) - 1, 0)


@pytest.mark.parametrize("length", [0, 3])
def test_a_whole_plan_gives_a_cache_to_which_nothing_was_joined(turns: Turns, length: int) -> None:
    """Of ONNX Runtime the stacks then have no second axis."""
    engine = build(CACHED)
    for times in (7, 7, 0, 9, 0):
        given = cached(2, length, times, -1.0)
        if times:
            check(engine, CACHED, **given)
            continue
        found = engine(given)
        np.testing.assert_array_equal(found["y"], given["cache"])
        np.testing.assert_array_equal(found["z"], given["x"])
        assert (found["numbers"].shape, found["rows"].shape) == ((0,), (0, 2))
    assert (turns.whole, turns.ended) == (4, 0)


def test_a_body_ends_a_growing_loop_of_a_whole_plan(turns: Turns) -> None:
    """Before as many runs as were made the last time, and behind them."""
    engine, made = build(CACHED), []
    for limit in (0.05, 0.05, 1e9, 0.4, 0.1, 0.05, 0.4):
        found = check(engine, CACHED, **cached(1, 2, FOREVER, limit))
        made.append(len(found["numbers"]))
    assert (turns.whole, turns.ended) == (6, 0)
    assert len(set(made)) > 3


def test_runs_for_which_a_whole_plan_has_no_room_are_made_again_with_more(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tactix_ops.native_control.FIRST_RUNS", 4)
    monkeypatch.setattr(growth, "LEAST_RUNS", 1)
    engine = build(CACHED)
    for times in (3, 3, 2, 90, 90, 100, 1, 400, 400, 90):
        check(engine, CACHED, **cached(2, 3, times, -1.0))
    assert turns.ended == 2
    assert turns.whole == 2 + turns.ended + 5


def test_caches_of_a_few_shapes_in_turns_are_native_calls_each(turns: Turns) -> None:
    engine, shapes = build(CACHED), ((1, 3), (2, 0), (1, 5), (3, 1))
    for k, (batch, length) in enumerate(shapes * 4):
        check(engine, CACHED, **cached(batch, length, 1 + 7 * k % 60, -1.0))
    steps, whole = len(turns), turns.whole
    for k, (batch, length) in enumerate(shapes * 3):
        check(engine, CACHED, **cached(batch, length, 60 - k, -1.0))
    assert (len(turns), turns.whole, turns.ended) == (steps, whole + 12, 0)
    for length in range(10, 40):
        check(engine, CACHED, **cached(2, length, 4, -1.0))
    assert turns.whole == whole + 12
    check(engine, CACHED, **cached(3, 1, 9, -1.0))
    engine.close()


def test_large_caches_are_not_kept_for_every_shape(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_shapes, "SMALL_BYTES", 30_000)
    engine = build(CACHED)
    for batch in (40, 39) * 4:
        check(engine, CACHED, **cached(batch, 2, 3, -1.0))
    assert not turns.whole


def test_results_of_growing_loops_are_of_their_own(turns: Turns) -> None:
    engine, known = build(CACHED), list[tuple[Any, Any]]()
    for times in (40, 40, 39, 1, 40):
        found = check(engine, CACHED, **cached(2, 3, times, -1.0))
        known += [(y, y.copy()) for y in found.values()]
    for y, copy in known:
        np.testing.assert_array_equal(y, copy)
    assert turns.whole == 4


def test_contexts_grow_caches_at_once() -> None:
    engine = build(CACHED)
    feeds = [cached(2, 3, times, -1.0) for times in (3, 50, 17)]
    wanted = [engine.create_execution_context().run(f) for f in feeds]
    faults = list[str]()

    def work() -> None:
        context = engine.create_execution_context()
        for _ in range(30):
            for given, want in zip(feeds, wanted, strict=True):
                found = context.run(given)
                faults.extend(n for n in want if not np.array_equal(found[n], want[n]))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_an_executor_that_knows_no_growing_parts_runs_them_step_by_step(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build(CACHED)
    monkeypatch.setattr(launcher._executors[launcher.ABI], "kinds_of_parts", 7)
    for _ in range(3):
        check(engine, CACHED, **cached(2, 3, 5, -1.0))
    assert (turns, turns.whole) == ([(0, 5, 5)] * 3, 0)


CACHES_INSIDE = text(
    "float[n, 4] cache, float[4] x, int64 times, int64 outer",
    "float[4] y, float[k] most",
    """
    zero = Constant <value = int64[1] {0}> ()
    y, most = Loop (outer, , x) <
      body = body (int64 i, bool c, float[4] v) => (bool d, float[4] w, float high) {
        d = Identity (c)
        often = Add (i, times)
        grown = Loop (often, , cache) <
          body = inner (int64 j, bool e, float[m, 4] past) => (bool f, float[l, 4] present) {
            f = Identity (e)
            seen = ReduceMean <axes = [0], keepdims = 1> (past)
            row = Add (seen, v)
            present = Concat <axis = 0> (past, row)
          }
        >
        sum = ReduceSum <keepdims = 0> (grown, zero)
        w = Tanh (sum)
        high = ReduceMax <keepdims = 0> (grown)
      }
    >
    """,
)
"""In each run of a loop another number of rows that are joined to a cache."""


def test_a_loop_whose_states_grow_is_native_inside_of_a_loop(turns: Turns) -> None:
    engine = build(CACHES_INSIDE)
    (outer,) = [s for s in engine.inspect()["steps"] if "bodies" in s]
    assert outer["body_runs"] == ["one native call"]
    given = {"cache": rand(3, 4), "x": rand(4, seed=1), "times": np.array(2)}
    check(engine, CACHES_INSIDE, **given, outer=np.array(3))
    turns.clear()
    turns.whole = 0
    for times, runs in ((2, 3), (1, 20), (40, 1), (0, 5)):
        check(engine, CACHES_INSIDE, **{**given, "times": np.array(times)}, outer=np.array(runs))
    assert (turns, turns.whole, turns.ended) == ([], 4, 0)


def test_states_of_which_there_is_no_room_for_many_are_run_step_by_step(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "MOST_BYTES", 1000)
    engine = build(CACHED)
    check(engine, CACHED, **cached(1, 3, 30, -1.0))
    check(engine, CACHED, **cached(1, 50, 30, -1.0))
    assert [done for *_, done in turns] == [30]


@pytest.mark.parametrize("grown", ["Concat <axis = 0> (s, s)", "Slice (s, one, far)"])
def test_states_that_grow_otherwise_are_run_step_by_step(turns: Turns, grown: str) -> None:
    """By another number in each run, or by less than nothing."""
    model = text(
        "float[n] x, int64 times",
        "float[k] y",
        """
        one = Constant <value = int64[1] {1}> ()
        far = Constant <value = int64[1] {1000}> ()
        y = Loop (times, , x) <
          body = body (int64 i, bool c, float[a] s) => (bool d, float[b] t) {
            d = Identity (c)
            t = GROWN
          }
        >
        """.replace("GROWN", grown),
    )
    engine = build(model)
    for n in (5, 4):
        check(engine, model, x=rand(n), times=np.array(3))
    assert turns == []


def test_an_index_out_of_range_ends_a_loop_whose_states_grow(turns: Turns) -> None:
    model = text(
        "float[n] x, int64 times",
        "float[k] y",
        """
        y = Loop (times, , x) <
          body = body (int64 i, bool c, float[a] s) => (bool d, float[b] t) {
            d = Identity (c)
            at = Add (i, three)
            e = Gather (s, at)
            t = Concat <axis = 0> (s, e)
          }
        >
        """,
    ).replace("y = Loop", "three = Constant <value = int64[1] {3}> ()  y = Loop", 1)
    engine = build(model)
    check(engine, model, x=rand(4), times=np.array(9))
    with pytest.raises(ExecutionError, match=r"Gather.* out of range"):
        engine(rand(3), np.array(2))
    check(engine, model, x=rand(5), times=np.array(70))
    assert [done for *_, done in turns] == [9, 64, 70]
