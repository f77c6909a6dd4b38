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


# -- over constants ------------------------------------------------------------------------------

NEGATED = [make_node("Neg", ["s"], ["t"])]
INNER = make_graph(
    [make_node("Identity", ["and"], ["so"]), make_node("Neg", ["r"], ["u"])],
    "inner",
    [
        make_tensor_value_info("j", I64, []),
        make_tensor_value_info("and", BOOL, []),
        make_tensor_value_info("r", F32, [2]),
    ],
    [make_empty_tensor_value_info(name) for name in ("so", "u")],
)
NESTED = loop(
    [make_node("Loop", ["long", "", "s"], ["t"], body=INNER)],
    [2],
    initializers(long=np.array(1 << 40)),
)
SAMPLED = loop([make_node("RandomUniformLike", ["s"], ["t"])], [2])
WIDE = loop(
    [
        make_node("Expand", ["s", "wide"], ["many"]),
        make_node("ReduceMax", ["many"], ["t"], keepdims=0),
    ],
    [],
    initializers(wide=np.array([1 << 30])),
)


def over_constants(model: Any, node: onnx.NodeProto, trips: int) -> onnx.ModelProto:
    """``node`` over two constants, and an input added to what it gives."""
    steps = [node, make_node("Add", ["y", "z"], ["sum"])]
    shape = node.attribute[0].g.input[2].type.tensor_type.shape.dim
    x = np.ones([d.dim_value for d in shape], np.float32)
    return model(steps, {"z": (F32, ["n", 2])}, ["sum"], {"m": np.array(trips), "x": x})


def layers(net: Any) -> list[str]:
    return [n.layer.name for n in net.nodes]


@pytest.mark.parametrize(
    ("node", "trips"),
    [(loop(NEGATED, [2]), 1 << 40), (NESTED, 3), (SAMPLED, 3), (WIDE, 3)],
    ids=["long", "nested", "random", "wide"],
)
def test_a_long_large_or_random_loop_over_constants_stays(
    imported: Any, model: Any, node: onnx.NodeProto, trips: int
) -> None:
    assert layers(imported(over_constants(model, node, trips))) == ["Loop", "Add"]


def test_a_short_loop_over_constants_becomes_a_constant(imported: Any, model: Any) -> None:
    net = imported(over_constants(model, loop(NEGATED, [2]), 3))
    assert layers(net) == ["Add"]
    found = evaluate(net, {"z": np.zeros((1, 2), np.float32)})["sum"]
    np.testing.assert_array_equal(found, np.full((1, 2), -1, np.float32))


def test_loops_of_one_model_share_the_work_that_importing_may_do(imported: Any, model: Any) -> None:
    """Many loops, each of them short, take long together."""
    first, second = loop(NEGATED, [2]), loop(NEGATED, [2])
    second.input[2], second.output[0] = "y", "again"
    steps = [first, second, make_node("Add", ["again", "z"], ["sum"])]
    given = {"m": np.array(5000), "x": np.ones(2, np.float32)}
    net = imported(model(steps, {"z": (F32, ["n", 2])}, ["sum"], given))
    assert layers(net) == ["Loop", "Add"]


def test_a_long_scan_over_constants_stays(imported: Any, model: Any) -> None:
    body = make_graph(
        [make_node("Add", ["s", "e"], ["t"])],
        "body",
        [make_tensor_value_info(name, F32, []) for name in ("s", "e")],
        [make_empty_tensor_value_info("t")],
    )
    nodes = [
        make_node("Expand", ["one", "wide"], ["many"]),
        make_node("Scan", ["zero", "many"], ["count"], body=body, num_scan_inputs=1),
        make_node("Add", ["count", "z"], ["sum"]),
    ]
    zero, one, wide = np.zeros((), np.float32), np.ones(1, np.float32), np.array([1 << 20])
    given = {"zero": zero, "one": one, "wide": wide}
    net = imported(model(nodes, {"z": (F32, ["n"])}, ["sum"], given))
    assert layers(net) == ["Expand", "Scan", "Add"]
