"""Loops that stack rows of which only running tells the number, and branches of different shapes:
native from the second run on, compared with the numpy reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_nests import Nest, feeds
from test_control_flow import parsed, rand, text

import tactix
from tactix.contracts.program import Iteration
from tactix_cpu import launcher
from tactix_cpu.programs import ElfProgram
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.compiler


class Calls:
    """Native calls of whole plans, ``ended`` those of them that ended as there was no room, and
    ``loops`` those of single loops.
    """

    def __init__(self) -> None:
        self.whole = self.ended = self.loops = 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    seen, call, iterate = Calls(), ElfProgram.__call__, ElfProgram.iterate

    def whole(self: ElfProgram) -> int | None:
        stopped = call(self)
        seen.whole += 1
        seen.ended += stopped is not None
        return stopped

    def loop(self: ElfProgram, iteration: Iteration, start: int, stop: int) -> int:
        seen.loops += 1
        return iterate(self, iteration, start, stop)

    monkeypatch.setattr(ElfProgram, "__call__", whole)
    monkeypatch.setattr(ElfProgram, "iterate", loop)
    return seen


class Checked:
    """A model whose runs are compared with the reference: content, dtypes and shapes."""

    def __init__(self, model: Any, threads: int = 1) -> None:
        builder = tactix.Builder()
        config = tactix.BuilderConfig(
            timing_cache=False, builder_optimization_level=0, threads=threads
        )
        self.network = tactix.Builder().import_model(model)
        self.engine = builder.build(builder.import_model(model), config)
        self.context = self.engine.create_execution_context()

    def __call__(self, **feeds: Any) -> dict[str, Any]:
        feeds = {io.name: feeds[io.name] for io in self.engine.inputs}
        want, got = evaluate(self.network, feeds), self.context.run(feeds)
        for name, y in got.items():
            assert (y.shape, y.dtype) == (want[name].shape, want[name].dtype), name
            rounding = 1e-2 if y.dtype.itemsize == 2 else 1e-5
            a, b = (x.astype(np.complex128) for x in (y, want[name]))
            np.testing.assert_allclose(a, b, rounding, rounding, err_msg=name)
        return got


ROWS = text(
    "float[n] x, float[n] more, int64 times, bool go, float limit",
    "float[n] last, float[k, n] rows, int64[k] numbers, bool[k] signs, float16[k, n] halves, float[n, k] turned",
    """
    two = Constant <value = float {2}> ()
    last, rows, numbers, signs, halves = Loop (times, go, x) <
      body = body (int64 i, bool c, float[n] v)
          => (bool d, float[n] w, float[n] row, int64 number, bool sign, float16[n] half) {
        w = Add (v, more)
        f = Cast <to = 1> (i)
        d = Less (f, limit)
        row = Mul (w, two)
        number = Mul (i, i)
        sign = Not (d)
        half = Cast <to = 10> (row)
      }
    >
    turned = Transpose <perm = [1, 0]> (rows)
    """,
)
"""Stacks of four dtypes, one of which is read behind the loop, of as many rows as are asked for, or
as ``limit`` lets there be.
"""
MANY = 1e9


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_rows_of_several_types(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, n: int, threads: int
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    run = Checked(parsed(ROWS), threads)
    given = {"x": rand(n, seed=1), "more": rand(n, seed=2), "go": np.array(True)}
    for times, limit in [(3, MANY), (3, MANY), (0, MANY), (1, MANY), (9, 4), (20, -1), (-2, 1)]:
        told = {"times": np.array(times), "limit": np.array(limit, np.float32)}
        run(**given, **told)
        run(**{**given, "go": np.array(False)}, **told)
    assert (calls.whole, calls.ended, calls.loops) == (13, 0, 1)


def test_rows_get_more_room_as_they_become_more(calls: Calls) -> None:
    run = Checked(parsed(ROWS))
    x, limit = rand(7), np.array(MANY, np.float32)
    for times in (2, 2, 60, 60, 61, 2000, 2000, 2100, 0, 5):
        run(x=x, more=x, times=np.array(times), go=np.array(True), limit=limit)
    assert (calls.whole, calls.ended) == (9, 2)


def test_a_loop_without_end_stops_where_its_body_says_so(calls: Calls) -> None:
    run = Checked(parsed(ROWS))
    endless = np.array(np.iinfo(np.int64).max)
    for limit in (3, 4, 300, 290, 7):
        told = {"times": endless, "limit": np.array(limit, np.float32)}
        found = run(x=rand(3), more=rand(3), go=np.array(True), **told)
        assert len(found["rows"]) == limit + 1
    assert (calls.whole, calls.ended) == (4, 1)


def test_results_are_of_their_own(calls: Calls) -> None:
    run = Checked(parsed(ROWS))
    known: list[tuple[Any, Any]] = []
    for times in (40, 40, 39, 1, 40):
        told = {"times": np.array(times), "limit": np.array(MANY, np.float32)}
        found = run(x=rand(9, seed=times), more=rand(9), go=np.array(True), **told)
        known += [(y, y.copy()) for y in found.values()]
    for y, copy in known:
        np.testing.assert_array_equal(y, copy)


def test_an_executor_of_an_earlier_version_runs_step_by_step(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Checked(parsed(ROWS))
    monkeypatch.setattr(launcher._executors[launcher.ABI], "kinds_of_parts", 5)
    for times in (3, 3, 4):
        told = {"times": np.array(times), "limit": np.array(MANY, np.float32)}
        run(x=rand(3), more=rand(3), go=np.array(True), **told)
    assert (calls.whole, calls.loops) == (0, 3)


BEHIND = text(
    "float[n] x, int64 times, int64 again, bool which",
    "float[m] y, float[a, n] z",
    """
    zero = Constant <value = int64[1] {0}> ()
    u, r = Loop (times, , x) <
      body = first (int64 i, bool c, float[n] v) => (bool d, float[n] w, float[n] row) {
        d = Identity (c)
        w = Neg (v)
        row = Add (v, x)
      }
    >
    total = ReduceSum <keepdims = 0> (r, zero)
    t, s = Loop (again, , total) <
      body = second (int64 i, bool c, float[n] v) => (bool d, float[n] w, float[n] row) {
        d = Identity (c)
        w = Tanh (v)
        row = Sub (v, x)
      }
    >
    both = Concat <axis = 0> (r, s)
    z = If (which) <
      then_branch = yes () => (float[b, n] p) { p = Relu (both) },
      else_branch = no () => (float[b, n] q) { q = Neg (both) }
    >
    above = Greater (z, x)
    places = NonZero (above)
    at = Cast <to = 1> (places)
    y = ReduceMax <axes = [0], keepdims = 0> (at)
    """,
).replace(""""" : 17""", """"" : 17""")
"""Two loops, a branch over all their rows, and a size that tells how many of those are positive."""


def test_what_lies_behind_a_loop_follows_its_rows(calls: Calls) -> None:
    """What has bodies is bound for one number of rows; it is made step by step at others."""
    run = Checked(parsed(BEHIND))
    for times, again, which in [(2, 1, 1), (2, 1, 1), (2, 1, 0), (2, 1, 1), (0, 3, 1), (3, 0, 0)]:
        told = {"times": np.array(times), "again": np.array(again)}
        run(x=rand(5, seed=times), **told, which=np.array(bool(which)))
    assert calls.whole > 3


INSIDE = text(
    "float[n] x, int64 outer, int64 modulus",
    "float[n] y, float[a, n] sums, int64[a] counts",
    """
    zero = Constant <value = int64[1] {0}> ()
    one = Constant <value = int64 {1}> ()
    y, sums, counts = Loop (outer, , x) <
      body = body (int64 i, bool c, float[n] v)
          => (bool d, float[n] w, float[n] sum, int64 count) {
        d = Identity (c)
        often = Mod (i, modulus)
        u, rows = Loop (often, , v) <
          body = inner (int64 j, bool e, float[n] p) => (bool f, float[n] q, float[n] row) {
            f = Identity (e)
            q = Add (p, x)
            row = Neg (q)
          }
        >
        sum = ReduceSum <keepdims = 0> (rows, zero)
        w = Tanh (sum)
        above = Greater (v, x)
        places = NonZero (above)
        size = Shape (places)
        count = Gather <axis = 0> (size, one)
      }
    >
    """,
)
"""In each run of a loop another number of rows, and of elements that are found."""


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_and_steps_that_tell_sizes_are_native_inside_of_a_loop(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    run = Checked(parsed(INSIDE), threads)
    (outer,) = [s for s in run.engine.inspect()["steps"] if "bodies" in s]
    assert outer["body_runs"] == ["one native call"]
    given = {"x": rand(6), "modulus": np.array(5)}
    for outer_runs in (0, 0, 1, 7, 20):
        run(**given, outer=np.array(outer_runs))
    assert (calls.whole, calls.ended) == (4, 0)
    for modulus in (90, 90, 100, 3):
        run(x=given["x"], outer=np.array(110), modulus=np.array(modulus))
    assert calls.ended >= 1
    calls.whole = calls.ended = 0
    for _ in range(2):
        run(x=given["x"], outer=np.array(110), modulus=np.array(100))
    assert calls.whole >= 1


BRANCHES = text(
    "float[n, 4] x, bool which",
    "float[m, k] y, float16[j] h, float[k] sums, int64[a, b] places",
    """
    w = Constant <value = float[4, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3}> ()
    few = Constant <value = float16[2] {1, 2}> ()
    one = Constant <value = float16[1] {3}> ()
    size = Constant <value = int64[1] {2000}> ()
    many = Expand (one, size)
    zero = Constant <value = int64[1] {0}> ()
    y, r = If (which) <
      then_branch = yes () => (float[a, b] t, float16[c] u) {
        p = MatMul (x, w)
        t = Tanh (p)
        u = Neg (many)
      },
      else_branch = no () => (float[d, e] f, float16[g] h) {
        f = Concat <axis = 0> (x, x, x, x, x)
        h = Neg (few)
      }
    >
    h = Neg (r)
    sums = ReduceSum <keepdims = 0> (y, zero)
    above = Greater (y, sums)
    places = NonZero (above)
    """,
)
"""Two results, each of which is larger in another branch, and what follows from their shapes."""


@pytest.mark.parametrize("threads", [1, 2])
def test_branches_of_different_shapes_and_what_lies_behind_them(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    run = Checked(parsed(BRANCHES), threads)
    for n in (2, 3, 0, 90):
        calls.whole = calls.ended = 0
        for which in (True, False, True, True, False, False, True, False, False, True):
            run(x=rand(n, 4, seed=n), which=np.array(which))
        assert calls.whole > calls.ended


CHOICES = text(
    "float[n] x, int64 times, int64 modulus",
    "float[n] y, float[k] rows",
    """
    zero = Constant <value = int64[1] {0}> ()
    nought = Constant <value = int64 {0}> ()
    y, rows = Loop (times, , x) <
      body = body (int64 i, bool c, float[n] v) => (bool d, float[n] w, float row) {
        d = Identity (c)
        left = Mod (i, modulus)
        first = Equal (left, nought)
        r = If (first) <
          then_branch = yes () => (float[a] t) { t = Concat <axis = 0> (v, x, v) },
          else_branch = no () => (float[b] e) { e = Neg (x) }
        >
        row = ReduceSum <keepdims = 0> (r, zero)
        u = Tanh (row)
        w = Add (v, u)
      }
    >
    """,
)


@pytest.mark.parametrize("threads", [1, 2])
def test_branches_of_different_shapes_are_native_inside_of_a_loop(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    run = Checked(parsed(CHOICES), threads)
    (outer,) = [s for s in run.engine.inspect()["steps"] if "bodies" in s]
    assert outer["body_runs"] == ["one native call"]
    run(x=rand(5), times=np.array(7), modulus=np.array(3))
    calls.whole = calls.ended = 0
    for times in (7, 9, 0, 1, 20):
        run(x=rand(5), times=np.array(times), modulus=np.array(3))
    assert (calls.whole, calls.ended) == (5, 0)


@pytest.mark.parametrize("seed", range(8))
def test_random_nests(calls: Calls, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    threads = 1 + seed % 2
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    run = Checked(Nest(seed, open_rows=True).model(), threads)
    for number, (n, t) in enumerate([(3, 2), (3, 2), (3, 2), (1, 1), (5, 4), (5, 4), (3, 2)]):
        run(**feeds(number, n, t))
    assert calls.whole
