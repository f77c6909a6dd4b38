"""Loops and branches: bodies that are imported again, and what running them while importing may
cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.helper import make_empty_tensor_value_info, make_graph, make_node, make_tensor_value_info

from tactix_sdk.evaluate import evaluate

F32, I64, BOOL = 1, 7, 9
STATE = {"x": (F32, ["n"]), "m": (I64, [])}


def initializers(**arrays: Any) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(a, name) for name, a in arrays.items()]


def loop(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[Any], weights: Sequence[onnx.TensorProto] = ()
) -> onnx.NodeProto:
    """A Loop from ``x`` to ``y``, ``m`` times over nodes from the state ``s`` to ``t``."""
    body = make_graph(
        [make_node("Identity", ["go"], ["on"]), *nodes],
        "body",
        [
            make_tensor_value_info("i", I64, []),
            make_tensor_value_info("go", BOOL, []),
            make_tensor_value_info("s", F32, shape),
        ],
        [make_empty_tensor_value_info(name) for name in ("on", "t")],
        weights,
    )
    return make_node("Loop", ["m", "", "x"], ["y"], body=body)


def branch(value: Any) -> onnx.GraphProto:
    """The state with one value behind it."""
    nodes = [make_node("Concat", ["s", "c"], ["joined"], axis=0)]
    result = [make_empty_tensor_value_info("joined")]
    return make_graph(nodes, "branch", [], result, initializers(c=np.array([value], np.float32)))


GROWING = loop(
    [make_node("Concat", ["s", "c"], ["t"], axis=0)],
    ["k"],
    initializers(c=np.array([7], np.float32)),
)
SHRINKING = loop(
    [make_node("Slice", ["s", "first", "last"], ["t"])],
    ["k"],
    initializers(first=np.array([1], np.int64), last=np.array([99], np.int64)),
)
BRANCHING = loop(
    [
        make_node("Less", ["i", "one"], ["early"]),
        make_node("If", ["early"], ["t"], then_branch=branch(8), else_branch=branch(9)),
    ],
    ["k"],
    initializers(one=np.array(1, np.int64)),
)


@pytest.mark.parametrize(
    ("node", "want"),
    [(GROWING, [0, 1, 2, 7, 7]), (SHRINKING, [2]), (BRANCHING, [0, 1, 2, 8, 9])],
    ids=["growing", "shrinking", "branching"],
)
def test_a_body_with_weights_is_imported_again_for_another_shape(
    imported: Any, model: Any, node: onnx.NodeProto, want: list[float]
) -> None:
    net = imported(model([node], STATE, ["y"]).SerializeToString())
    x = np.arange(3, dtype=np.float32)
    found = evaluate(net, {"x": x, "m": np.array(2)})["y"]
    np.testing.assert_array_equal(found, np.array(want, np.float32))
