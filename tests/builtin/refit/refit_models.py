"""Small models whose weights follow from a seed or a number, some of them inside of branches and
loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, np.ndarray]


def model(
    nodes: Sequence[Any], inputs: dict[str, Sequence[Any]], outputs: Sequence[str], weights: Feeds
) -> bytes:
    """An ONNX model of float32 tensors."""
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(list(nodes), "made", given, made, held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto.SerializeToString()  # type: ignore[no-any-return]


def normal(seed: int, **shapes: Sequence[int]) -> Feeds:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}


def conv_bn(seed: int) -> bytes:
    """Two convolutions with normalisations that are folded into them; odd channels, so that blocks
    are padded.
    """
    w = normal(
        seed,
        w1=(5, 3, 3, 3),
        b1=(5,),
        w2=(7, 5, 1, 1),
        s1=(5,),
        t1=(5,),
        m1=(5,),
        s2=(7,),
        t2=(7,),
        m2=(7,),
    )
    w |= {
        n: np.random.default_rng(seed + 100).random(k, np.float32) + np.float32(0.5)
        for n, k in (("v1", 5), ("v2", 7))
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s1", "t1", "m1", "v1"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("BatchNormalization", ["d", "s2", "t2", "m2", "v2"], ["y"]),
    ]
    return model(nodes, {"x": ["n", 3, 9, 8]}, ["y"], w)


def chain(number: float, layers: int = 6, width: int = 64) -> bytes:
    """Products with matrices of equal numbers: any mix of old and new weights gives a number that
    neither gives.
    """
    nodes, w, x = [], {}, "x"
    for i in range(layers):
        w[f"w{i}"] = np.full((width, width), number / width, np.float32)
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], ["y" if i == layers - 1 else f"r{i}"]))
        x = f"r{i}"
    return model(nodes, {"x": ["n", width]}, ["y"], w)


def graph(
    name: str,
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: Any,
    weights: Feeds,
) -> Any:
    """A body. ``inputs``, ``outputs``: ONNX's dtype and shape, by name."""
    given, made = (
        [helper.make_tensor_value_info(n, *t) for n, t in ios.items()] for ios in (inputs, outputs)
    )
    return helper.make_graph(
        nodes, name, given, made, [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )


def branches(seed: int, inner: int) -> bytes:
    """``x @ w``, and behind it one of two sums, in the branch taken through another product and a
    condition.
    """

    def body(name: str, weights: Feeds) -> Any:
        nodes = [
            helper.make_node("MatMul", ["m", f"{name}v"], [f"{name}p"]),
            helper.make_node("Add", [f"{name}p", f"{name}c"], [name]),
        ]
        return graph(name, nodes, {}, {name: (TensorProto.FLOAT, None)}, weights)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("ReduceMax", ["m"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["up"]),
        helper.make_node(
            "If", ["up"], ["y"],
            then_branch=body("a", normal(inner, av=(3, 3), ac=(3,))),
            else_branch=body("b", normal(inner + 1, bv=(3, 3), bc=(3,))),
        ),
    ]  # fmt: skip
    return model(nodes, {"x": ["n", 4]}, ["y"], normal(seed, w=(4, 3)) | {"zero": np.float32(0)})


def loop(number: float, turns: int = 5, width: int = 16) -> bytes:
    """``x`` times matrices of equal numbers: one before the loop, then one in each turn, behind a
    branch.
    """
    float_, bool_ = TensorProto.FLOAT, TensorProto.BOOL
    full = np.full((width, width), number / width, np.float32)
    product = helper.make_node("MatMul", ["s", "u"], ["p"])
    same = helper.make_node("Identity", ["s"], ["q"])
    inner = [
        helper.make_node(
            "If", ["c"], ["s2"],
            then_branch=graph("yes", [product], {}, {"p": (float_, None)}, {"u": full}),
            else_branch=graph("no", [same], {}, {"q": (float_, None)}, {}),
        ),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]  # fmt: skip
    taken = {"i": (TensorProto.INT64, []), "c": (bool_, []), "s": (float_, None)}
    body = graph("turn", inner, taken, {"c2": (bool_, []), "s2": (float_, None)}, {})
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Loop", ["turns", "go", "m"], ["y"], body=body),
    ]
    held = {"w": full, "turns": np.int64(turns), "go": np.bool_(True)}
    return model(nodes, {"x": ["n", width]}, ["y"], held)


def scan(seed: int) -> bytes:
    """A recurrence of two weights, and a convolution with a normalisation that is folded, in the
    body of a Scan.
    """
    w = normal(seed, k=(3, 3, 1, 1), s=(3,), t=(3,), mean=(3,), v=(3, 3))
    w["var"] = np.random.default_rng(seed).random(3, np.float32) + np.float32(0.5)
    nodes = [
        helper.make_node("Conv", ["h", "k"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "t", "mean", "var"], ["b"]),
        helper.make_node("Add", ["b", "row"], ["h2"]),
        helper.make_node("Tanh", ["h2"], ["out"]),
    ]
    image = (TensorProto.FLOAT, [1, 3, 2, 3])
    body = graph("body", nodes, {"h": image, "row": image}, {"h2": image, "out": image}, w)
    node = helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    return model([node], {"h0": [1, 3, 2, 3], "x": [4, 1, 3, 2, 3]}, ["last", "y"], {})
