"""Loops that append to lists, which exporters write as sequences, or to tensors: what has one shape
is stacked, and whatever reads the list reads the stack. Compared with ONNX Runtime and with the
reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_control_flow import build, check, parsed, text

import tactix
from tactix.base.errors import DataError, TactixError
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.compiler

X = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)
BODY = "int64 i, bool c, seq(float[a]) s"


def appending(
    behind: str, results: str, inputs: str = "float[k, 6] x, int64 n", **changed: str
) -> str:
    """A model of a loop that appends Relu of a row of x in each of n iterations, and what reads
    that. ``changed``: the loop's ``before``, ``body``, ``more`` outputs of it, ``given`` trips.
    """
    before = changed.get("before", "z = SequenceEmpty ()")
    body = changed.get("body", "r = Gather (x, i)  q = Relu (r)  t = SequenceInsert (s, q)")
    given = changed.get("given", "n, ")
    return text(
        inputs,
        results,
        f"""{before}
        l = Loop ({given}, z) <
          body = b ({BODY}) => (bool d, seq(float[a]) t) {{ d = Identity (c) {body} }}
        >
        {behind}""",
    )


def sequences_left(engine: tactix.Engine) -> list[str]:
    """Layers of sequences that a plan has, those of bodies included."""
    plans, found = [engine.plan], []
    while plans:
        steps = plans.pop().steps
        plans += (p for s in steps for p in s.plans)
        found += (key for s in steps for key in s.info["layers"] if "Sequence" in key)
    return found


def both(model: str, engine: tactix.Engine, **feeds: Any) -> None:
    """An engine's outputs are ONNX Runtime's, and the reference's."""
    check(engine, model, **feeds)
    network = tactix.Builder().import_model(parsed(model))
    wanted, found = evaluate(network, feeds), engine.create_execution_context().run(feeds)
    for name, y in wanted.items():
        if isinstance(y, list):
            assert [a.shape for a in found[name]] == [a.shape for a in y]
        np.testing.assert_allclose(found[name], y, 1e-5, 1e-5)


READERS = {
    "stacked": ("y = ConcatFromSequence <axis = 0, new_axis = 1> (l)", "float[?, ?] y"),
    "stacked along another axis": (
        "y = ConcatFromSequence <axis = -1, new_axis = 1> (l)",
        "float[?, ?] y",
    ),
    "one behind the other": ("y = ConcatFromSequence <axis = -1> (l)", "float[?] y"),
    "by places": (
        """p = Constant <value = int64 {-1}> ()  o = Constant <value = int32 {0}> ()
        m = SequenceLength (l)  e = Constant <value = int64 {1}> ()  at = Sub (m, e)
        y = SequenceAt (l, p)  w = SequenceAt (l, o)  v = SequenceAt (l, at)""",
        "float[?] y, float[?] w, float[?] v, int64 m",
    ),
    "with one more behind": (
        """p = Constant <value = int64 {0}> ()  row = Gather (x, p)  w = SequenceInsert (l, row)
        m = SequenceLength (w)  y = ConcatFromSequence <axis = 1, new_axis = 1> (w)""",
        "float[?, ?] y, int64 m",
    ),
    "in another loop": (
        """m = SequenceLength (l)  first = ReduceSum <keepdims = 0> (x)
        y, all = Loop (m, , first) <
          body = b2 (int64 j, bool f, float v) => (bool g, float u, float[a] e) {
            g = Identity (f)  e = SequenceAt (l, j)  h = ReduceSum <keepdims = 0> (e)  u = Sub (h, v)
          }
        >""",
        "float y, float[?, ?] all",
    ),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_lists_that_a_loop_fills_are_stacks(reader: tuple[str, str]) -> None:
    model = appending(*reader)
    engine = build(model)
    assert not sequences_left(engine)
    for n in (1, 4, 2, 5, 5):
        both(model, engine, x=X, n=np.array(n))


BEFORE = {
    "two elements": "a = Relu (x)  one = Constant <value = int64 {1}> ()  o = Gather (a, one)"
    "  z = SequenceConstruct (o, o)",
    "the rows of a tensor": "a = Neg (x)  z = SplitToSequence <axis = 0, keepdims = 0> (a)",
    "another loop's rows": """none = SequenceEmpty ()
        z = Loop (n, , none) <
          body = b0 (int64 i0, bool c0, seq(float[a]) s0) => (bool d0, seq(float[a]) t0) {
            d0 = Identity (c0)  r0 = Gather (x, i0)  t0 = SequenceInsert (s0, r0)
          }
        >""",
}
BODIES = {
    "twice": "r = Gather (x, i)  q = Relu (r)  u = SequenceInsert (s, q)  t = SequenceInsert (u, r)",
    "its length": """r = Gather (x, i)  m = SequenceLength (s)  f = Cast <to = 1> (m)
        q = Add (r, f)  u = SequenceInsert (s, q)  m2 = SequenceLength (u)  f2 = Cast <to = 1> (m2)
        q2 = Mul (r, f2)  t = SequenceInsert (u, q2)""",
    "the same twice": "r = Gather (x, i)  u = SequenceInsert (s, r)  t = SequenceInsert (u, r)",
    "a constant": "r = Constant <value = float[6] {1, 2, 3, 4, 5, 6}> ()  t = SequenceInsert (s, r)",
    "the iteration": "e = Constant <value = int64[1] {6}> ()  f = Cast <to = 1> (i)"
    "  r = Expand (f, e)  t = SequenceInsert (s, r)",
}
STACKED = READERS["stacked"]


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_lists_that_hold_something_and_what_an_iteration_appends(before: str, body: str) -> None:
    model = appending(*STACKED, before=before, body=body)
    engine = build(model)
    assert not sequences_left(engine)
    for n in (2, 1, 5):
        both(model, engine, x=X, n=np.array(n))


def test_other_outputs_of_the_loop_keep_their_places() -> None:
    model = text(
        "float[k, 6] x, int64 n, float[6] h",
        "float[?, ?] y, float[6] g, int64[?] w, float[?, ?] all",
        """z = SequenceEmpty ()  z2 = SequenceEmpty <dtype = 7> ()
        l, g, l2, all = Loop (n, , z, h, z2) <
          body = b (int64 i, bool c, seq(float[a]) s, float[6] v, seq(int64) s2)
              => (bool d, seq(float[a]) t, float[6] u, seq(int64) t2, float[6] u3) {
            d = Identity (c)  r = Gather (x, i)  u = Add (r, v)  t = SequenceInsert (s, u)
            t2 = SequenceInsert (s2, i)  u3 = Neg (u)
          }
        >
        y = ConcatFromSequence <axis = 0, new_axis = 1> (l)
        w = ConcatFromSequence <axis = 0, new_axis = 1> (l2)""",
    )
    engine = build(model)
    assert not sequences_left(engine)
    for n in (3, 1, 5):
        both(model, engine, x=X, n=np.array(n), h=X[2])


def test_a_list_that_its_body_ends() -> None:
    body = """r = Gather (x, i)  t = SequenceInsert (s, r)
        m = ReduceMax <keepdims = 0> (r)  d = Less (m, top)"""
    model = appending(*STACKED, "float[k, 6] x, float top", body=body, given=", ").replace(
        "{ d = Identity (c)", "{"
    )
    engine = build(model)
    assert not sequences_left(engine)
    for row in (0, 3, 1, 4):
        x = np.array(X)
        x[row, 2] = 9
        both(model, engine, x=x, top=np.array(8, np.float32))


def test_a_list_that_its_length_ends() -> None:
    body = """r = Gather (x, i)  t = SequenceInsert (s, r)  m = SequenceLength (t)
        d = Less (m, n)"""
    model = appending(*STACKED, body=body, given=", ").replace("{ d = Identity (c)", "{")
    engine = build(model)
    assert not sequences_left(engine)
    for n in (3, 1, 5, 0):
        both(model, engine, x=X, n=np.array(n))


GUARDED = text(
    "float[k, 6] x, int64 n",
    "float[?, ?] y",
    """e = Constant <value = int64 {0}> ()  some = Greater (n, e)
    y = If (some) <
      then_branch = yes () => (float[p, q] u) {
        z = SequenceEmpty ()
        l = Loop (n, , z) <
          body = b (int64 i, bool c, seq(float[a]) s) => (bool d, seq(float[a]) t) {
            d = Identity (c)  r = Gather (x, i)  t = SequenceInsert (s, r)
          }
        >
        u = ConcatFromSequence <axis = 0, new_axis = 1> (l)
      },
      else_branch = no () => (float[v, w] o) { o = Neg (x) }
    >""",
)
BEHIND_GUARD = appending(
    """e = Constant <value = int64 {0}> ()  m = SequenceLength (l)  some = Greater (m, e)
    y = If (some) <
      then_branch = yes () => (float[p, q] u) {
        u = ConcatFromSequence <axis = 0, new_axis = 1> (l)
      },
      else_branch = no () => (float[v, w] o) { o = Neg (x) }
    >""",
    "float[?, ?] y",
)
OF_SHAPE = BEHIND_GUARD.replace("Loop (n", "Loop (h").replace(
    "z = SequenceEmpty ()",
    "z = SequenceEmpty ()  k1 = Shape (x)  g = Constant <value = int64 {0}> ()  h = Gather (k1, g)",
)


@pytest.mark.parametrize(
    "model", [GUARDED, BEHIND_GUARD, OF_SHAPE], ids=["inside", "around", "of shape"]
)
def test_a_branch_that_keeps_from_an_empty_list(model: str) -> None:
    engine = build(model)
    assert not sequences_left(engine)
    for n in (2, 0, 3, 0, 0, 1):
        x = X[:n] if model is OF_SHAPE else X
        both(model, engine, x=x, n=np.array(n))


EMPTY, NOTHING = appending(*STACKED), "an empty sequence has nothing to concatenate"


def test_an_empty_list_has_nothing_to_concatenate() -> None:
    engine = build(EMPTY)
    for n in (0, 3, 0, 2, 2, -1):
        if n > 0:
            both(EMPTY, engine, x=X, n=np.array(n))
            continue
        with pytest.raises(TactixError, match=NOTHING):
            engine(x=X, n=np.array(n))
    zero = "none = Constant <value = int64 {0}> ()  z = Seq"
    never = build(EMPTY.replace("z = Seq", zero).replace("Loop (n", "Loop (none"))
    with pytest.raises(TactixError, match=NOTHING):
        never(x=X, n=np.array(2))


def test_a_place_out_of_range() -> None:
    model = appending("y = SequenceAt (l, p)", "float[?] y", "float[k, 6] x, int64 n, int64 p")
    engine = build(model)
    for n, p in ((3, 2), (3, 3), (3, -3), (3, -4), (0, 0), (1, -1)):
        feeds = {"x": X, "n": np.array(n), "p": np.array(p)}
        if -n <= p < n:
            both(model, engine, **feeds)
            continue
        with pytest.raises(DataError, match=f"{p}"):
            engine(**feeds)


def test_a_list_that_is_an_output_stays_a_sequence() -> None:
    model = appending("", "seq(float[a]) l")
    engine = build(model)
    assert sequences_left(engine) == ["tactix.SplitToSequence@1"]
    kept = []
    for n in (2, 3, 0, 2, 2):
        x = X + len(kept)
        feeds = {"x": x, "n": np.array(n)}
        kept.append((engine(**feeds), np.maximum(x[:n], 0)))
    for found, wanted in kept:  # what an earlier run gave is its own
        assert isinstance(found, list)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_list_of_numbers_that_is_an_output() -> None:
    body = "r = Gather (x, i)  q = ReduceSum <keepdims = 0> (r)  t = SequenceInsert (s, q)"
    model = appending("", "seq(float) l", body=body).replace("seq(float[a])", "seq(float)")
    found = build(model)(x=X, n=np.array(3))
    assert [(type(y), y.shape, y.dtype) for y in found] == 3 * [(np.ndarray, (), np.float32)]
    np.testing.assert_allclose(found, X[:3].sum(1), 1e-5)


NESTED = text(
    "float[k, 6] x, int64 n",
    "float[?, ?, ?] y",
    """z = SequenceEmpty ()  three = Constant <value = int64 {3}> ()
    l = Loop (n, , z) <
      body = b (int64 i, bool c, seq(float[?, ?]) s) => (bool d, seq(float[?, ?]) t) {
        d = Identity (c)  r = Gather (x, i)  z1 = SequenceEmpty ()
        l1 = Loop (three, , z1) <
          body = b1 (int64 i1, bool c1, seq(float[?]) s1) => (bool d1, seq(float[?]) t1) {
            d1 = Identity (c1)  f = Cast <to = 1> (i1)  r1 = Add (r, f)
            t1 = SequenceInsert (s1, r1)
          }
        >
        rows = ConcatFromSequence <axis = 1, new_axis = 1> (l1)
        t = SequenceInsert (s, rows)
      }
    >
    y = ConcatFromSequence <axis = 1, new_axis = 1> (l)""",
)
ROWS = "rows = ConcatFromSequence <axis = 1, new_axis = 1> (l1)"
COUNTED_INSIDE = (
    NESTED.replace(ROWS, "m = SequenceLength (l1)  mf = Cast <to = 1> (m)  rows = Mul (r, mf)")
    .replace("Loop (three", "Loop (i")
    .replace("float[?, ?", "float[?")
)


@pytest.mark.parametrize("model", [NESTED, COUNTED_INSIDE], ids=["known", "counted"])
def test_lists_in_lists(model: str) -> None:
    engine = build(model)
    assert not sequences_left(engine)
    for n in (1, 5, 2, 2, 3):
        both(model, engine, x=X, n=np.array(n))


LEFT = {
    "shapes that differ": (
        "e = Constant <value = int64[1] {1}> ()  j = Add (i, e)  r = Gather (x, i)"
        "  z0 = Constant <value = int64[1] {0}> ()  q = Slice (r, z0, j)  t = SequenceInsert (s, q)"
    ),
    "a place": "r = Gather (x, i)  t = SequenceInsert (s, r, first)",
    "it is read": "r = Gather (x, i)  t = SequenceInsert (s, r)  l0 = Constant <value = int64 {-1}> ()"
    "  w = SequenceAt (t, l0)  m = ReduceMax <keepdims = 0> (w)  top = Constant <value = float {9}> ()"
    "  d = Less (m, top)",
    "it is two states": "r = Gather (x, i)  t = SequenceInsert (s, r)  t2 = Identity (t)",
    "some iterations append": """r = Gather (x, i)  m = ReduceSum <keepdims = 0> (r)
        zero = Constant <value = float {0}> ()  w = Greater (m, zero)
        t = If (w) <
            then_branch = yes () => (seq(float[a]) t1) { t1 = SequenceInsert (s, r) },
            else_branch = no () => (seq(float[a]) t2) { t2 = Identity (s) }
        >""",
    "rows and others before": "r = Gather (x, i)  t = SequenceInsert (s, r)",
}


@pytest.mark.parametrize("reason", LEFT)
def test_other_lists_stay_sequences(reason: str) -> None:
    before = "first = Constant <value = int64 {0}> ()  z = SequenceEmpty ()"
    if reason == "rows and others before":
        before = "e0 = Constant <value = float[2] {1, 2}> ()  z = SequenceConstruct (e0)"
    joined = "y = ConcatFromSequence <axis = 0> (l)"
    model = appending(joined, "float[?] y", before=before, body=LEFT[reason])
    if reason == "it is read":
        model = model.replace("d = Identity (c)", "")
    if reason == "it is two states":
        model = model.replace("l = Loop (n, , z)", "l, l2 = Loop (n, , z, z)")
        model = model.replace("seq(float[a]) s)", "seq(float[a]) s, seq(float[a]) s2)")
        model = model.replace("seq(float[a]) t)", "seq(float[a]) t, seq(float[a]) t2)")
    engine = build(model)
    assert sequences_left(engine)
    for n in (1, 4, 5):
        both(model, engine, x=abs(X), n=np.array(n))


# -- tensors that a loop makes longer ------------------------------------------------------------


def lengthening(body: str, results: str = "float[?, ?] y", **changed: str) -> str:
    """A model of a loop whose state is the first columns of x, which ``body`` makes longer."""
    before = changed.get("before", "two = Constant <value = int64[1] {2}> ()")
    axes = "o = Constant <value = int64[1] {1}> ()  w0 = Constant <value = int64[1] {0}> ()"
    return text(
        changed.get("inputs", "float[k, 6] x, int64 n"),
        results,
        f"""{axes}  {before}  z = Slice (x, w0, two, o)
        {changed.get("made", "y")} = Loop ({changed.get("given", "n, ")}, z) <
          body = b (int64 i, bool c, float[k, a] s) => (bool d, float[k, e] t{changed.get("more", "")})
            {{ {body}  d = {changed.get("ends", "Identity (c)")} }}
        >""",
    )


def longer_inside(engine: tactix.Engine) -> bool:
    """Whether a body of a plan still takes a state whose size changes."""
    return any(v.name == "s" for s in engine.plan.steps for p in s.plans for v in p.inputs)


COLUMN = "r = Gather <axis = 1> (x, i)  q = Unsqueeze (r, o)  "
LENGTHENED = {
    "a column": (COLUMN + "t = Concat <axis = 1> (s, q)", {}),
    "an axis from the end": (COLUMN + "t = Concat <axis = -1> (s, q)", {}),
    "nothing before": (
        COLUMN + "t = Concat <axis = 1> (s, q)",
        {"before": "two = Constant <value = int64[1] {0}> ()"},
    ),
    "two in one": (COLUMN + "t = Concat <axis = 1> (s, q, x)", {}),
    "two in turn": (
        COLUMN + "u = Concat <axis = 1> (s, q)  m = Neg (x)  t = Concat <axis = 1> (u, m, q)",
        {},
    ),
    "its length": (
        COLUMN
        + """sh = Shape (s)  at = Constant <value = int64 {1}> ()  m = Gather (sh, at)
        f = Cast <to = 1> (m)  v = Mul (q, f)  u = Concat <axis = 1> (s, v)
        sh2 = Shape <start = 1> (u)  f2 = Cast <to = 1> (sh2)  v2 = Mul (q, f2)
        t = Concat <axis = 1> (u, v2)""",
        {},
    ),
    "ended by its length": (
        COLUMN
        + """t = Concat <axis = 1> (s, q)  sh = Shape (t)  at = Constant <value = int64 {1}> ()
        m = Gather (sh, at)  top = Add (n, at)""",
        {"ends": "Less (m, top)", "given": ", "},
    ),
}


@pytest.mark.parametrize("case", LENGTHENED.values(), ids=LENGTHENED.keys())
def test_tensors_that_a_loop_makes_longer_are_stacks(case: tuple[str, dict[str, str]]) -> None:
    body, changed = case
    model = lengthening(body, **changed)
    engine = build(model)
    assert not longer_inside(engine)
    for n in (2, 1, 5, 5):
        both(model, engine, x=X, n=np.array(n))
    both(model, engine, x=X[:2], n=np.array(3))
    if not changed.get("given"):
        both(model, engine, x=X, n=np.array(0))


ORDER = """r = Gather <axis = 1> (x, i)  q = Unsqueeze (r, o)  k = Shape <end = 1> (x)
    v, best = TopK (r, k)  """
PICKED = {
    "and appended": ORDER + "u = Gather <axis = 0> (s, best)  t = Concat <axis = 1> (u, q)",
    "behind what is appended": ORDER
    + "u = Concat <axis = 1> (s, q)  t = Gather <axis = -2> (u, best)",
    "twice": ORDER
    + """u = Gather <axis = 0> (s, best)  m = Neg (x)  w = Concat <axis = 1> (u, q, m)
        up, worst = TopK <largest = 0> (r, k)  w2 = Gather <axis = 0> (w, worst)
        t = Concat <axis = 1> (w2, q)""",
    "by int32, from the end": ORDER
    + """one = Constant <value = int64 {1}> ()  b1 = Add (best, one)  back = Neg (b1)
        b32 = Cast <to = 6> (back)  u = Gather <axis = 0> (s, b32)  t = Concat <axis = 1> (u, q)""",
}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("body", PICKED.values(), ids=PICKED.keys())
def test_a_loop_goes_on_with_slices_that_it_picks(body: str, before: int) -> None:
    """As a beam search does with the best of its sequences."""
    model = lengthening(body, before=f"two = Constant <value = int64[1] {{{before}}}> ()")
    engine = build(model)
    assert not longer_inside(engine)
    for n in (2, 1, 5, 5, 0):
        both(model, engine, x=X, n=np.array(n))
    both(model, engine, x=X[:3], n=np.array(4))


def test_states_beside_one_that_grows_keep_their_places() -> None:
    model = lengthening(
        COLUMN + "t = Concat <axis = 1> (s, q)  p = Add (v, q)  e2 = Neg (q)",
        "float[?, ?] y, float[?, ?] last, float[?, ?, ?] all",
        made="y, last, all",
        given="n, , h, z",
        inputs="float[k, 6] x, int64 n, float[k, 1] h",
    )
    model = model.replace("float[k, a] s)", "float[k, 1] v, float[k, a] s)")
    model = model.replace("float[k, e] t)", "float[k, 1] p, float[k, e] t, float[k, 1] e2)")
    model = model.replace("y, last, all = Loop", "last, y, all = Loop").replace(
        ", h, z, z)", ", h, z)"
    )
    engine = build(model)
    assert not longer_inside(engine)
    for n in (3, 1, 4):
        both(model, engine, x=X, n=np.array(n), h=X[:, :1])


STILL_STATES = {
    "it is read": COLUMN + "m = ReduceSum <keepdims = 1> (s, o)  w = Add (q, m)"
    "  t = Concat <axis = 1> (s, w)",
    "in front": COLUMN + "t = Concat <axis = 1> (q, s)",
    "itself": "t = Concat <axis = 1> (s, s)",
    "of changing size": "j = Add (i, o)  q = Slice (x, w0, j, o)  t = Concat <axis = 1> (s, q)",
    "some iterations": COLUMN
    + """m = ReduceSum <keepdims = 0> (q)  zero = Constant <value = float {0}> ()
        w = Greater (m, zero)
        t = If (w) <
            then_branch = yes () => (float[k, e1] t1) { t1 = Concat <axis = 1> (s, q) },
            else_branch = no () => (float[k, e2] t2) { t2 = Identity (s) }
        >""",
}


@pytest.mark.parametrize("body", STILL_STATES.values(), ids=STILL_STATES.keys())
def test_what_else_a_body_does_with_a_tensor_leaves_it_a_state(body: str) -> None:
    model = lengthening(body)
    engine = build(model)
    assert longer_inside(engine)
    for n in (3, 1, 2):
        both(model, engine, x=X, n=np.array(n))
