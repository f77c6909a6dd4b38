"""Values that only running gives and that make no sense: one typed error with the node, the reason
and, where there is one, the cure. Numpy's says the layer and what it was given too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import tactix
from tactix.base.errors import AllocationError, ExecutionError, ModelImportError
from tactix.contracts.reference import shown

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'
X = np.arange(6, dtype=np.float32).reshape(3, 2)

RESHAPE = "float[3, 2] x, int64[2] s) => (float[p, q] y) { [bad] y = Reshape (x, s) }"
RANGE = "{0} a, {0} b, {0} c) => ({0}[n] y) {{ [bad] y = Range (a, b, c) }}"
COMPRESS = "float[3, 2] x, bool[n] c) => (float[m, 2] y) { [bad] y = Compress <axis=0> (x, c) }"
REVERSE = "float[3, 2] x, int64[2] n) => (float[3, 2] y) { [bad] y = ReverseSequence (x, n) }"
SLICE = "float[3, 2] x, int64[1] a, int64[1] b, int64[1] c) => (float[p, q] y) { [bad] y = Slice (x, a, b, a, c) }"
ONE_HOT = "int64[2] x, int64 d, float[2] v) => (float[2, n] y) { [bad] y = OneHot (x, d, v) }"
EXPAND = "float[3, 2] x, int64[2] s) => (float[p, q] y) { [bad] y = Expand (x, s) }"
FILL = "int64[2] s) => (float[p, q] y) { [bad] y = ConstantOfShape (s) }"

PAD = "float[4] x, int64[2] r) => (float[p] y) { [bad] y = Pad (x, r) }"


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def whole(value: int) -> Any:
    return np.array(value, np.int64)


CASES = [
    (RESHAPE, [X, i64(4, 4)], r"6 elements do not go into the shape(:.* 16\.| \(4, 4\).*\[4, 4\])"),
    (RESHAPE, [X, i64(-1, -1)], r"do not go into the shape(: .* -1 too| \(-1, -1\))"),
    (RESHAPE, [X, i64(-2, 3)], r"do not go into the shape(: .* of -2| \(-2, 3\))"),
    (RESHAPE, [X, i64(-1, 4)], r"do not go into the shape(: .* 4\.| \(-1, 4\)).* Give dims"),
    (RANGE.format("int64"), [whole(0), whole(5), whole(0)], "step is 0.* Give a step"),
    (RANGE.format("float"), [np.float32(v) for v in (0, 5, 0)], "step is 0.* Give a step"),
    (RANGE.format("float"), [np.float32(v) for v in (0, np.inf, 1)], "there is no number of elements"),
    (COMPRESS, [X, np.ones(5, bool)], "the condition of 5 asks for slices behind the last of 3.* Give one"),
    (REVERSE, [X, i64(4, 1)], "a length of 4 along axis 0, which has 3.* Give lengths"),
    (REVERSE, [X, i64(3, -1)], "a length of -1 along axis 0, which has 3"),
    (SLICE, [X, i64(0), i64(1), i64(0)], "the step along axis 0 is 0.* Give less or more than 0"),
    (PAD, [X[:2].ravel(), i64(-1, -5)], "pads take more than axis 0 of 4 has.* Give pads that leave"),
    (ONE_HOT, [i64(1, 2), whole(-3), np.ones(2, np.float32)], "the depth is -3.* Give 0 or more"),
    (EXPAND, [X, i64(4, 5)], r"broadcast.*; it was given f32\(3, 2\), i64\(2,\) \[4, 5\]"),
    (FILL, [i64(-3, 2)], "negative dimensions are not allowed.*-3"),
]  # fmt: skip


BEYOND = 1 << 62
TILE = "float[4] x, int64[1] r) => (float[p] y) { [bad] y = Tile (x, r) }"
SIZES = [
    (FILL, [i64(0, BEYOND)]),  # no element, and yet numpy has no such array
    (FILL, [i64(BEYOND, BEYOND)]),
    (TILE, [X[:2].ravel(), i64(BEYOND)]),  # with 4 elements these would be 0, 4 and less than 0
    (TILE, [X[:2].ravel(), i64(BEYOND + 1)]),
    (TILE, [X[:2].ravel(), i64(BEYOND // 2)]),
    (PAD, [X[:2].ravel(), i64(BEYOND, BEYOND)]),
    (PAD, [X[:2].ravel(), i64(2 * BEYOND - 1, 2 * BEYOND - 1)]),  # 4 and this would be 2
    (PAD, [X[:2].ravel(), i64(-2 * BEYOND, -2 * BEYOND)]),  # 4 and this would be 4
    (ONE_HOT, [i64(1, 2), whole(BEYOND), np.ones(2, np.float32)]),
]


@pytest.mark.parametrize(("text", "given"), SIZES)
def test_sizes_beyond_the_integers_are_refused(text: str, given: list[Any]) -> None:
    engine = tactix.build(onnx.parser.parse_model(HEAD + "g (" + text), level=0)
    with pytest.raises((ExecutionError, AllocationError), match=r"^bad: "):
        engine(*given)


@pytest.mark.parametrize(("text", "given", "why"), CASES)
def test_a_value_that_makes_no_sense_is_told(text: str, given: list[Any], why: str) -> None:
    model = onnx.parser.parse_model(HEAD + "g (" + text)
    engine = tactix.build(model, level=0, timing_cache=False)
    with pytest.raises(ExecutionError, match=rf"^bad: .*{why}") as e:
        engine(*given)
    assert "Error: " not in str(e.value)


def test_what_fits_is_taken() -> None:
    for text, given, want in (
        (RESHAPE, [X, i64(-1, 3)], X.reshape(2, 3)),
        (RESHAPE, [X, i64(0, 0)], X),
        (COMPRESS, [X, np.array([1, 0, 1, 0], bool)], X[[0, 2]]),
        (REVERSE, [X, i64(0, 3)], np.stack([X[:, 0], X[::-1, 1]], axis=1)),
        (RANGE.format("int64"), [whole(7), whole(0), whole(-3)], i64(7, 4, 1)),
    ):
        engine = tactix.build(onnx.parser.parse_model(HEAD + "g (" + text), level=0)
        np.testing.assert_array_equal(engine(*given), want)


@pytest.mark.parametrize("kind", ["int64", "float"])
def test_a_constant_step_of_nothing_is_refused_when_it_is_imported(kind: str) -> None:
    constants = ", ".join(f"{kind} {name} = {{{value}}}" for name, value in zip("abc", (0, 5, 0)))
    text = f"g (float x) => ({kind}[n] y) <{constants}> {{ y = Range (a, b, c) }}"
    with pytest.raises(ModelImportError, match="the step is 0: it leads nowhere from 0"):
        tactix.build(onnx.parser.parse_model(HEAD + text))


def test_inputs_are_told_shortly() -> None:
    assert shown(None) == "nothing"
    assert shown(["a", "b"]) == "a list of 2"
    assert shown(np.zeros(9, np.float16)) == "f16(9,)"
    assert shown(np.array(["text"], object)) == "str(1,)"
    assert shown(np.array([1, 2], "datetime64[s]")) == "datetime64[s](2,)"


def test_a_shape_that_is_not_as_declared_names_what_is_known_of_it() -> None:
    text = "g (float[2, n] x, int64[q] r) => (float[p, q] y) { [bad] y = Tile (x, r) }"
    engine = tactix.build(onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False)
    with pytest.raises(ExecutionError, match=r"^bad: ") as e:
        engine(np.ones((2, 3), np.float32), i64(1, 2, 3))
    assert not str(e.value).rstrip().endswith("at")
