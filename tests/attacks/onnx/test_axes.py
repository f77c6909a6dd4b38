"""Axes beyond the rank, and axes named twice: never wrapped, never dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node
from onnx_hostile import ints, model

import tactix
from tactix_sdk.evaluate import evaluate

Refusal = Callable[[Any], tactix.TactixError]
F = np.float32
SHAPE = [1, 3, 4]


def one(
    op: str,
    *constants: Any,
    opset: int = 18,
    domain: str = "",
    outputs: int = 1,
    first: Any = None,
    **attrs: Any,
) -> Any:
    """A model of one node over x of SHAPE, or over a constant, and further constants; None leaves
    an input out.
    """
    given = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    names = ["x", *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    inputs: dict[str, Any] = {"x": SHAPE}
    if first is not None:
        inputs, given["x"] = {}, first
    results = ["y", "z"][:outputs]
    node = make_node(op, names, results, name="it", domain=domain, **attrs)
    m = model([node], inputs, constants=given, opset=opset)
    m.opset_import.add(domain="com.microsoft", version=1)
    return m


REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceSumSquare",
)  # fmt: skip


def reduced(op: str, by_input: bool) -> Callable[[list[int]], Any]:
    return lambda axes: one(op, ints(*axes), opset=18) if by_input else one(op, opset=11, axes=axes)


LISTS: dict[str, Callable[[list[int]], Any]] = {
    **{f"{op}, input": reduced(op, True) for op in REDUCTIONS},
    **{f"{op}, attribute": reduced(op, False) for op in REDUCTIONS},
    "Squeeze, input": lambda axes: one("Squeeze", ints(*axes), opset=13),
    "Squeeze, attribute": lambda axes: one("Squeeze", opset=11, axes=axes),
    "Unsqueeze, input": lambda axes: one("Unsqueeze", ints(*axes), opset=13),
    "Unsqueeze, attribute": lambda axes: one("Unsqueeze", opset=11, axes=axes),
    "Slice, input": lambda axes: one(
        "Slice", ints(*[0] * len(axes)), ints(*[1] * len(axes)), ints(*axes), opset=13
    ),
    "Slice, attribute": lambda axes: one(
        "Slice", opset=9, starts=[0] * len(axes), ends=[1] * len(axes), axes=axes
    ),
    "Pad, input": lambda axes: one("Pad", ints(*[1] * 2 * len(axes)), np.zeros((), F), ints(*axes)),
    "Resize, attribute": lambda axes: one("Resize", None, None, ints(*[8] * len(axes)), axes=axes),
}
"""Models by the way they are given axes."""


@pytest.mark.parametrize(
    "axes", [[7], [-9], [1 << 40], [-(1 << 63)], [0, 7], [0, 0], [0, -3], [1, 1, 1]], ids=str
)
@pytest.mark.parametrize("name", LISTS)
def test_axes_that_are_none_are_refused(name: str, axes: list[int], refusal: Refusal) -> None:
    if name.startswith("Unsqueeze") and axes == [0, -3]:
        axes = [0, -5]
    text = str(refusal(LISTS[name](axes)))
    assert "'it'" in text
    assert "axis" in text or "axes" in text


@pytest.mark.parametrize("name", LISTS)
def test_axes_that_are_there_are_taken(name: str, builder: tactix.Builder) -> None:
    assert builder.import_model(LISTS[name]([0])).outputs
    assert builder.import_model(LISTS[name]([-3])).outputs


SINGLE: dict[str, Callable[[int], Any]] = {
    "Gather": lambda a: one("Gather", ints(0), axis=a),
    "GatherElements": lambda a: one("GatherElements", np.zeros(SHAPE, np.int64), axis=a),
    "ScatterElements": lambda a: one(
        "ScatterElements", np.zeros(SHAPE, np.int64), np.zeros(SHAPE, F), axis=a
    ),
    "Scatter": lambda a: one(
        "Scatter", np.zeros(SHAPE, np.int64), np.zeros(SHAPE, F), axis=a, opset=9
    ),
    "OneHot": lambda a: one("OneHot", np.int64(5), np.zeros(2, F), axis=a - 1 if a < 0 else a + 1),
    "Concat": lambda a: one("Concat", np.zeros(SHAPE, F), axis=a),
    "Split": lambda a: one("Split", axis=a, num_outputs=1),
    "Flatten": lambda a: one("Flatten", axis=a if a < 0 else a + 1),
    "Softmax": lambda a: one("Softmax", axis=a),
    "Softmax over all axes behind": lambda a: one("Softmax", axis=a, opset=11),
    "LogSoftmax": lambda a: one("LogSoftmax", axis=a),
    "Hardmax": lambda a: one("Hardmax", axis=a),
    "LayerNormalization": lambda a: one("LayerNormalization", np.ones(4, F), axis=a),
    "RMSNormalization": lambda a: one("RMSNormalization", np.ones(4, F), axis=a, opset=23),
    "SimplifiedLayerNormalization": lambda a: one(
        "SimplifiedLayerNormalization", np.ones(4, F), axis=a, domain="com.microsoft"
    ),
    "TopK": lambda a: one("TopK", ints(1), axis=a, outputs=2),
    "ArgMax": lambda a: one("ArgMax", axis=a),
    "CumSum": lambda a: one("CumSum", np.int64(a)),
    "Compress": lambda a: one("Compress", np.ones(1, bool), axis=a),
    "Unique": lambda a: one("Unique", axis=a),
    "DequantizeLinear": lambda a: one(
        "DequantizeLinear", np.ones(3, F), axis=a, opset=13, first=np.zeros(SHAPE, np.int8)
    ),
    "QuantizeLinear": lambda a: one(
        "QuantizeLinear", np.ones(3, F), np.zeros(3, np.int8), axis=a, opset=13
    ),
    "DFT, attribute": lambda a: one("DFT", axis=a, opset=17),
    "DFT, input": lambda a: one("DFT", None, np.int64(a), opset=20),
}
"""Models by operator: axes -3 to 2 are there (one more for new axes)."""


@pytest.mark.parametrize("axis", [3, 7, -4, -9, 1 << 40, -(1 << 63)])
@pytest.mark.parametrize("name", SINGLE)
def test_an_axis_that_is_none_is_refused(name: str, axis: int, refusal: Refusal) -> None:
    if axis == -(1 << 63):
        axis += name == "OneHot"
    assert "'it'" in str(refusal(SINGLE[name](axis)))


def test_the_axis_of_one_scale_for_all_means_nothing(builder: tactix.Builder) -> None:
    m = one("DequantizeLinear", np.ones((), F), axis=7, opset=13, first=np.zeros(SHAPE, np.int8))
    assert builder.import_model(m).outputs


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze", "ReduceSum", "Slice"])
@pytest.mark.parametrize("axes", [[7], [-9], [0, 0]], ids=str)
def test_axes_that_only_running_tells(op: str, axes: list[int], builder: tactix.Builder) -> None:
    """They come through a tensor of the model; running them is refused as well."""
    inputs = ["x", "starts", "ends", "axes"] if op == "Slice" else ["x", "axes"]
    m = model([make_node(op, inputs, ["y"], name="it")], {"x": SHAPE})
    for name in inputs[1:]:
        m.graph.input.add(name=name).type.tensor_type.elem_type = 7
        m.graph.input[-1].type.tensor_type.shape.dim.add(dim_value=len(axes))
    net = builder.import_model(m)
    feed = {
        "x": np.zeros(SHAPE, F),
        "axes": ints(*axes),
        "starts": ints(*[0] * len(axes)),
        "ends": ints(*[1] * len(axes)),
    }
    with pytest.raises(tactix.TactixError, match=r"ax[ie]s"):
        evaluate(net, {name: feed[name] for name in inputs})
