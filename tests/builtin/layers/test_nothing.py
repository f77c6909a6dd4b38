"""Reductions over no elements, by all tactics, against onnx's reference; ArgMax and ArgMin where
there is nothing; convolutions whose window does not fit; TopK of more than there is.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import tactix
from tactix.base.errors import ExecutionError, ModelImportError, ShapeError

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def ran(text: str, x: Any, **options: Any) -> Any:
    engine = tactix.build(
        onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return engine(x)


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op: str, sources: Any) -> None:
    for shape, axes in (((0, 3), [0]), ((0, 3), [0, 1]), ((2, 0), [0])):
        text = f"g (float[n, m] x) => (float[p, q] y) {{ a = Constant <value_ints={axes}> ()  y = Reduce{op} (x, a) }}"
        x = np.zeros(shape, np.float32)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            want = ReferenceEvaluator(onnx.parser.parse_model(HEAD + text)).run(None, {"x": x})[0]
        got = ran(text, x, tactic_sources=sources)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dims", ["n, m", "fixed"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op: str, dims: str, last: int) -> None:
    """onnx's reference raises for a result without elements, where numpy would; ONNX Runtime gives
    it.
    """
    for shape, axis, want in (
        ((0, 0), 0, (1, 0)),
        ((0, 0), 1, (0, 1)),
        ((3, 0), 0, (1, 0)),
        ((0, 3), 1, (0, 1)),
    ):
        declared = dims if dims != "fixed" else ", ".join(map(str, shape))
        attrs = f"axis={axis}, select_last_index={last}"
        text = f"g (float[{declared}] x) => (int64[p, q] y) {{ y = {op} <{attrs}> (x) }}"
        got = ran(text, np.zeros(shape, np.float32))
        assert (got.dtype, got.shape) == (np.int64, want)
    with pytest.raises(
        ExecutionError, match=r"axis 0 of a tensor .* has no elements to choose from"
    ):
        ran(
            f"g (float[n, m] x) => (int64[p, q] y) {{ y = {op} (x) }}", np.zeros((0, 3), np.float32)
        )


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
def test_a_convolution_with_a_window_that_does_not_fit(sources: Any) -> None:
    text = (
        "g (float[n, 2, h, 5] x, float[3, 2, 3, 3] w) => (float[n, 3, p, 3] y) { y = Conv (x, w) }"
    )
    engine = tactix.build(
        onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False, tactic_sources=sources
    )
    w = np.ones((3, 2, 3, 3), np.float32)
    for n, height, want in ((2, 2, (2, 3, 0, 3)), (0, 2, (0, 3, 0, 3)), (2, 3, (2, 3, 1, 3))):
        assert engine(np.ones((n, 2, height, 5), np.float32), w).shape == want


@pytest.mark.parametrize("k", [-1, 4])
def test_more_elements_than_there_are_cannot_be_the_best(k: int) -> None:
    text = "g (float[n] x, int64[1] k) => (float[m] y, int64[m] i) { y, i = TopK (x, k) }"
    engine = tactix.build(onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False)
    x = np.arange(3, dtype=np.float32)
    assert engine(x, np.array([3]))["y"].tolist() == [2, 1, 0]
    with pytest.raises(
        ExecutionError, match=f"{k} elements of axis 0, which has 3.* Give a k from 0"
    ):
        engine(x, np.array([k]))


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
def test_an_open_axis_of_fewer_elements_than_are_chosen_is_told(sources: Any) -> None:
    text = (
        "g (float[2, n] x) => (float[2, m] y, int64[2, m] i) <int64[1] k = {5}> "
        "{ [best] y, i = TopK (x, k) }"
    )
    engine = tactix.build(
        onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False, tactic_sources=sources
    )
    assert engine(np.ones((2, 5), np.float32))["y"].shape == (2, 5)
    with pytest.raises(ShapeError, match=r"best: .*k asks for 5 elements of axis 1.*n is 4"):
        engine(np.ones((2, 4), np.float32))


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pooling_with_a_window_that_does_not_fit(op: str, sources: Any) -> None:
    text = (
        "g (float[n, 2, h, 5] x) => (float[n, 2, p, 3] y) "
        f"{{ y = {op} <kernel_shape = [3, 3]> (x) }}"
    )
    engine = tactix.build(
        onnx.parser.parse_model(HEAD + text), level=0, timing_cache=False, tactic_sources=sources
    )
    for n, height, want in ((2, 2, (2, 2, 0, 3)), (0, 2, (0, 2, 0, 3)), (2, 3, (2, 2, 1, 3))):
        assert engine(np.ones((n, 2, height, 5), np.float32)).shape == want


CONV = (
    f"(float[1, 2, h, 5] x) => (float[1, 3, p, q] y) <float[3, 2, 4, 3] w = {{{', '.join('1' * 72)}}}> "
    "{ [c1] y = Conv <pads=[1, 0, 0, 0]> (x, w) }"
)
WINDOW = r"a window of 4 \(kernel 4, dilation 1\) does not fit spatial axis 0 of %s with pads of %s"
TOO_SMALL = [
    (CONV, 1, WINDOW % ("h", "1 and 0")),
    (
        "(float[1, 2, h, 5] x) => (float[1, 2, p, q] y) { [c1] y = MaxPool <kernel_shape=[4, 3]> (x) }",
        2,
        WINDOW % ("h", "0 and 0"),
    ),
    (
        "(float[1, 2, h, 5] x) => (float[1, 2, p, q] y) { a = Relu (x) b = Concat <axis=2> (a, x) "
        "[c1] y = AveragePool <kernel_shape=[4, 3]> (b) }",
        1,
        WINDOW % (r"2\*h", "0 and 0"),
    ),
    (
        "(float[1, h] x) => (float[1, p] y) <int64[4] n = {0, -3, 0, -2}> { [c1] y = Pad (x, n) }",
        4,
        "pads of -3 and -2 take more than axis 1 of h has",
    ),
]


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
@pytest.mark.parametrize(("text", "height", "why"), TOO_SMALL)
def test_an_open_axis_that_is_too_small_is_told_with_node_window_and_pads(
    text: str, height: int, why: str, sources: Any
) -> None:
    model = onnx.parser.parse_model(HEAD + "g " + text)
    engine = tactix.build(model, level=0, timing_cache=False, tactic_sources=sources)
    shape = [height if isinstance(d, str) else d for d in map(_size, engine.inputs[0].shape)]
    with pytest.raises(ShapeError, match=f"c1: .*{why}.*h is {height}.* Give inputs of other"):
        engine(np.ones(shape, np.float32))


def _size(d: Any) -> int | str:
    return d if isinstance(d, int) else str(d)


def test_what_is_said_of_a_window_is_in_the_file(tmp_path: Path) -> None:
    engine = tactix.build(onnx.parser.parse_model(HEAD + "g " + CONV), level=0, timing_cache=False)
    engine.save(tmp_path / "a.plan")
    with pytest.raises(ShapeError, match=r"c1: .*kernel 4, dilation 1"):
        tactix.load(tmp_path / "a.plan")(np.ones((1, 2, 1, 5), np.float32))


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("Conv <kernel_shape=[7]> (x, w)", WINDOW.replace("4", "7") % ("4", "0 and 0")),
        ("ConvTranspose <pads=[9, 8]> (x, w)", "pads of 9 and 8 take more than there is"),
    ],
)
def test_a_fixed_axis_that_is_too_small_is_told_with_the_cure(node: str, why: str) -> None:
    text = f"g (float[1, 2, 4] x, float[2, 2, 7] w) => (float[1, 2, p] y) {{ y = {node} }}"
    with pytest.raises(ModelImportError, match=why):
        tactix.build(onnx.parser.parse_model(HEAD + text), level=0)


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
@pytest.mark.parametrize(
    ("op", "of_none"), [("GlobalMaxPool", -np.inf), ("GlobalAveragePool", np.nan)]
)
def test_a_global_pooling_of_nothing(op: str, of_none: float, sources: Any) -> None:
    text = f"g (float[n, 2, h, 3] x) => (float[n, 2, 1, 1] y) {{ y = {op} (x) }}"
    got = ran(text, np.zeros((1, 2, 0, 3), np.float32), tactic_sources=sources)
    np.testing.assert_array_equal(got, np.full((1, 2, 1, 1), of_none, np.float32))


@pytest.mark.parametrize("sources", [None, {"numpy"}], ids=["all", "numpy"])
def test_no_number_is_more_and_less_than_all_others(sources: Any) -> None:
    """As numpy and onnx's reference have it; ONNX Runtime passes over some."""
    x = np.array([[1, np.nan, 3, 2], [np.nan, 1, np.nan, 0], [5, 4, 3, np.nan]], np.float32)
    for op in ("ArgMax", "ArgMin"):
        text = f"g (float[3, 4] x) => (int64[3] y) {{ y = {op} <axis=1, keepdims=0> (x) }}"
        assert ran(text, x, tactic_sources=sources).tolist() == [1, 0, 3]
    text = "g (float[1, 3, 4] x) => (float[1, 3, 2] y) { y = MaxPool <kernel_shape=[3]> (x) }"
    want = np.array([[[np.nan] * 2, [np.nan] * 2, [5, np.nan]]], np.float32)
    np.testing.assert_array_equal(ran(text, x[None], tactic_sources=sources), want)
