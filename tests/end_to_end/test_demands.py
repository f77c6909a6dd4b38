"""What shapes must fulfil: a run at others is refused before a kernel reads past a tensor, and
answers stay right.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import tactix
from tactix.base.errors import PlanFormatError, ShapeError, TactixError, UnsupportedOperator

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def built(text: str) -> tactix.Engine:
    return tactix.build(model(text), level=0, timing_cache=False)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


MISFITS = {
    "squeeze": ("(float[n, 4] x) => (float[4] y) { a = Constant <value_ints=[0]> ()  y = Squeeze (x, a) }",
                [zeros(3, 4)], "n must be 1, and n is 3"),
    "squeeze of all": ("(float[n, 4] x) => (float[n, 4] y) { y = Squeeze (x) }",
                       [zeros(1, 4)], "n must not be 1, and n is 1"),
    "reshape": ("(float[n, 4] x) => (float[2, 6] y) { s = Constant <value_ints=[2, 6]> ()  y = Reshape (x, s) }",
                [zeros(5, 4)], r"4\*n must be 12, and n is 5"),
    "product": ("(float[n, 4] x, float[m, 2] y) => (float[n, 2] z) { z = MatMul (x, y) }",
                [zeros(3, 4), zeros(2, 2)], "4 must be m, and m is 2"),
    "join": ("(float[n, 4] x, float[m, 2] y) => (float[n, 6] z) { z = Concat <axis=1> (x, y) }",
             [zeros(3, 4), zeros(4, 2)], "n must be m, and m is 4, n is 3"),
    "broadcast": ("(float[n] x, float[4] y) => (float[4] z) { z = Add (x, y) }",
                  [zeros(3), zeros(4)], "n and 4 must be equal, or one of them 1, and n is 3"),
    "resize": ("""(float[1, 1, n, 4] x) => (float[1, 1, 7, 4] y) {
                    s = Constant <value_ints=[1, 1, 7, 4]> ()  y = Resize (x, , , s) }""",
               [zeros(1, 1, 0, 4)], "n must be at least 1, and n is 0"),
    "computed": ("""(float[n, 4] x) => (int64[2] y) {
                      z = NonZero (x)  t = Transpose (z)  a = Constant <value_ints=[0]> ()  y = Squeeze (t, a) }""",
                 [np.ones((1, 4), np.float32)], "NonZero_0 must be 1, and NonZero_0 is 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    text, inputs, said = MISFITS[name]
    engine = built("g " + text)
    with pytest.raises(ShapeError, match=said):
        engine(*inputs)
    engine.save(tmp_path / "a.plan")
    with pytest.raises(ShapeError, match=said):
        tactix.load(tmp_path / "a.plan")(*inputs)


def test_shapes_that_fit_are_taken_before_and_after() -> None:
    engine = built("g " + MISFITS["computed"][0])
    x = np.float32([[0, 0, 3, 0]])
    for _ in range(2):
        np.testing.assert_array_equal(engine(x), [0, 2])
        with pytest.raises(ShapeError):
            engine(np.float32([[0, 1, 3, 0]]))


def test_what_must_hold_in_a_branch_is_asked_where_it_runs() -> None:
    text = """
    g (float[n, 4] x, bool c) => (float[a, b] y) {
      s = Constant <value_ints=[2, 6]> ()
      y = If (c) < then_branch = t () => (float[2, 6] u) { u = Reshape (x, s) },
                   else_branch = e () => (float[n, 4] v) { v = Neg (x) } >
    }"""
    engine = built(text)
    assert engine(zeros(5, 4), np.array(False)).shape == (5, 4)
    assert engine(zeros(3, 4), np.array(True)).shape == (2, 6)
    with pytest.raises(ShapeError, match="must be 12"):
        engine(zeros(5, 4), np.array(True))


@pytest.mark.parametrize(
    "rows",
    [
        "x",
        [["a", 1]],
        [["a", "n", "<", 1]],
        [["a", "stranger", "==", 1]],
        [["a", {}, "==", 1]],
        [[1, 1, "==", 1]],
    ],
)
def test_demands_that_make_no_sense_are_refused(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tactix.plan import container

    builder = tactix.Builder()
    plan = builder.build_plan(
        builder.import_model(model("g (float[n] x) => (float[n] y) { y = Neg (x) }"))
    )
    damaged = replace(plan, meta={**plan.meta, "demands": rows})
    with pytest.raises(PlanFormatError, match="is not written"):
        container.dump(damaged)
    monkeypatch.setattr(container, "_check_readable", lambda text, blobs: None)
    data = container.dump(damaged)
    with pytest.raises(PlanFormatError):
        tactix.Runtime(on_untrusted="allow").deserialize(bytes(data))


# -- branches of different ranks -----------------------------------------------------------------

SCALED = """
g (float[n, 3] x, float d, bool c) => (float[a, b] y) {
  step = If (c) < then_branch = t () => (float u) { u = Neg (d) },
                  else_branch = e () => (float[1] v) { o = Constant <value_ints=[0]> ()  v = Unsqueeze (d, o) } >
  %s
}"""


def branches(use: str) -> str:
    return SCALED % use


@pytest.mark.parametrize(
    "use",
    [
        "y = Mul (x, step)",
        "half = Div (step, d)  twice = Add (half, half)  y = Mul (twice, x)",
        "s = Constant <value_ints=[1, -1]> ()  row = Reshape (step, s)  y = Mul (x, row)",
        "z = CastLike (x, step)  k = Size (step)  f = CastLike (k, x)  y = Mul (z, f)",
        "u = If (c) < then_branch = t2 () => (float[a, b] w) { w = Mul (x, step) },"
        " else_branch = e2 () => (float[a, b] q) { q = Add (x, step) } >  y = Neg (u)",
        "u = If (c) < then_branch = t2 () => (float[a] w) { w = Neg (step) },"
        " else_branch = e2 () => (float[a] q) { q = Add (step, d) } >  y = Add (u, x)",
    ],
)
def test_ranks_that_broadcasting_levels(use: str) -> None:
    from onnx.reference import ReferenceEvaluator

    text = branches(use)
    engine, oracle = built(text), ReferenceEvaluator(model(text))
    for c in (True, False):
        feed = {"x": np.float32([[1, 2, 3], [4, 5, 6]]), "d": np.float32(0.5), "c": np.array(c)}
        np.testing.assert_allclose(engine(**feed), oracle.run(None, feed)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("use", "who"),
    [
        ("y = Neg (step)", "output 'y'"),
        ("k = Shape (step)  f = CastLike (k, x)  y = Mul (x, f)", "Shape"),
        ("s = Constant <value_ints=[0]> ()  row = Unsqueeze (step, s)  y = Mul (x, row)", "Unsqueeze"),
        ("s = Constant <value_ints=[0, 1]> ()  m = Reshape (step, s)  y = Mul (x, m)", "Reshape"),
        ("k = Shape (x)  y = Expand (step, k)", "Expand"),
        ("n1 = Constant <value_int=2> ()  go = Constant <value = bool {1}> ()  l = Loop (n1, go, d) <"
         " body = b (int64 i, bool g, float p) => (bool g2, float q) { g2 = Identity (g)  q = Mul (p, step) }>"
         "  y = Mul (x, l)", "body"),
    ],
)  # fmt: skip
def test_ranks_that_would_show_are_refused(use: str, who: str) -> None:
    with pytest.raises(UnsupportedOperator, match=who) as e:
        built(branches(use))
    assert "has rank 0 or 1, by which branch of an If runs" in str(e.value)
    assert "both branches have one rank" in str(e.value)
    assert isinstance(e.value, TactixError)


def test_lengths_that_data_tells_twice_have_guesses_that_fit() -> None:
    """A build evaluates shapes at guesses: one of these lengths is twice the other."""
    text = """g (float[4] x, float[6] m) => (float[k] y) {
        a = NonZero (x)  b = NonZero (m)  c = Concat <axis=1> (a, a)
        d = Add (c, b)  e = Cast <to=1> (d)  z = Constant <value_ints=[-1]> ()  y = Reshape (e, z) }"""
    engine = built(text)
    x, m = np.array([1, 0, 1, 0], np.float32), np.array([0, 1, 1, 1, 1, 0], np.float32)
    assert engine(x, m).tolist() == [1, 4, 3, 6]
    with pytest.raises(ShapeError):
        engine(np.ones(4, np.float32), m)


def test_a_convolution_of_channels_that_a_shape_tells_has_a_kernel() -> None:
    text = """g (float[1, c, 5] x) => (float[1, 2, 3] y) {
        s = Constant <value_ints=[2, 3, 3]> ()  o = ConstantOfShape <value: tensor = float[1] {2}> (s)
        y = Conv (x, o) }"""
    engine = built(text)
    assert [s.info["source"] for s in engine.plan.steps] == ["c"]
    np.testing.assert_array_equal(engine(np.ones((1, 3, 5), np.float32)), np.full((1, 2, 3), 18.0))
    with pytest.raises(ShapeError, match="c must be 3"):
        engine(zeros(1, 4, 5))
