"""Small graphs whose answers once differed from those of ONNX Runtime, or that were refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node
from small_models import agree, engine, model

from tactix.words.errors import ModelImportError

F = np.float32
RNG = np.random.default_rng(0)


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 15, 16])
def test_regions_have_no_half_pixel_before_opset_16(opset: int, mode: str) -> None:
    fields = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5, "mode": mode}
    inputs = {"x": (F, (1, 2, 8, 8)), "r": (F, (3, 4)), "b": (np.int64, (3,))}
    m = model([node("RoiAlign", ["x", "r", "b"], ["y"], **fields)], inputs, ["y"], opset=opset)
    regions = np.array([[0, 0, 5, 5], [1, 2, 7, 6], [3, 3, 3.5, 3.25]], F)
    agree(m, {"x": random(1, 2, 8, 8), "r": regions, "b": np.zeros(3, np.int64)})


@pytest.mark.parametrize(("size", "scale"), [(8, 0.7), (10, 0.6), (7, 0.3), (5, 1.3), (6, 2.0)])
def test_the_first_resize_rounds_up_where_it_shrinks(size: int, scale: float) -> None:
    nodes = [node("Resize", ["x", "s"], ["y"], mode="nearest")]
    m = model(nodes, {"x": (F, (1, 1, 6, size))}, ["y"], {"s": np.array([1, 1, 1.5, scale], F)}, opset=10)
    agree(m, {"x": random(1, 1, 6, size)})
    late = model(nodes, {"x": (F, (1, 1, 6, size)), "s": (F, (4,))}, ["y"], opset=10)
    agree(late, {"x": random(1, 1, 6, size), "s": np.array([1, 1, 1.5, scale], F)})


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("to", [TensorProto.UINT32, TensorProto.UINT64])
def test_negative_floats_wrap_as_unsigned_integers(to: int, source: Any, count: int) -> None:
    values = np.resize(np.array([-1.5, -3, 2.7, -60000, 40000, 0.9, -0.9], source), count)
    m = model([node("Cast", ["x"], ["y"], to=to)], {"x": (source, ("n",))}, ["y"])
    agree(m, {"x": values})
    folded = model([node("Cast", ["c"], ["z"], to=to), node("Add", ["z", "x"], ["y"])],
                   {"x": (onnx.helper.tensor_dtype_to_np_dtype(to), (count,))}, ["y"], {"c": values})  # fmt: skip
    agree(folded, {"x": np.ones(count, onnx.helper.tensor_dtype_to_np_dtype(to))})


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "with_pads", "size"),
    [(1280, 1280, 0, 0, 7), (9, 9, 0, 0, 7), (12, 12, 2, 0, 5), (12, 12, 2, 1, 5), (9, 3, 0, 0, 7), (3, 2, 0, 0, 4)],
)
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_may_be_larger_than_its_axis_in_ceil_mode(
    op: str, kernel: int, stride: int, pad: int, with_pads: int, size: int
) -> None:
    own = {"count_include_pad": with_pads} if op == "AveragePool" else {}
    fields = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": 1, **own}
    for shape in ([1, 20, size, size], ["n", 20, "h", "w"]):
        m = model([node(op, ["x"], ["y"], **fields)], {"x": (F, shape)}, ["y"])
        agree(m, {"x": random(1, 20, size, size)})


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_that_fits_nowhere_is_refused(op: str) -> None:
    m = model([node(op, ["x"], ["y"], kernel_shape=[9, 9])], {"x": (F, (1, 2, 7, 7))}, ["y"])
    with pytest.raises(ModelImportError, match="a window of 9 does not fit axis 0 of 7"):
        engine(m)
