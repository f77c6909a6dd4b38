"""A mean over the pixels of an image and two small products of it as one layer, for GPUs: each of
the three is over before its launch has paid.

Where the weights are many, three kernels have more of a GPU than one has: the parts compete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Op, P, Rule, const, literal, var
from tactix_ops.layers.squeeze import ACTIVATIONS, FLOATS

T = P.tactix


@dataclass(frozen=True)
class SqueezeChain:
    """The layers in front of the last product."""

    mean: Node
    first: Node
    act: Node


def _maker(v: Value, graph: Any) -> Node | None:
    """What makes the tensor, for one reader alone."""
    only = graph.only_use(v) is not None and not graph.is_output(v)
    return v.producer if only and v.producer is not None and not v.producer.is_fused else None


def _is_product(node: Node | None) -> bool:
    """Whether it is a product of a pixel's channels with constants."""
    if node is None or node.layer.key != "tactix.Convolution@1":
        return False
    w, x = node.given[1], node.given[0].spec
    constants = all(v.const is not None for v in node.given[1:])
    small = all(d == 1 for d in (*x.shape[2:], *w.spec.shape[2:])) and not any(node.attrs.pads)
    return constants and small and node.attrs.group == 1 and x.dtype in FLOATS


def _is_mean(node: Node | None) -> bool:
    """Whether it is the mean over the pixels of an image."""
    if node is None or node.given[0].spec.rank < 3:
        return False
    rank = node.given[0].spec.rank
    if node.layer.key == "tactix.ReduceMean@1":
        axes = sorted(a % rank for a in node.attrs.axes)
        return node.attrs.keepdims and axes == list(range(2, rank))
    return node.layer.key == "tactix.GlobalAveragePool@1"


def _is_activation(node: Node | None) -> bool:
    if node is None or node.layer.name not in ACTIVATIONS:
        return False
    known = ACTIVATIONS[node.layer.name]
    return node.layer.key == known.key and node.attrs == known.Attrs()


def _found(root: Node, graph: Any) -> SqueezeChain | None:
    act = _maker(root.given[0], graph)
    first = _maker(act.given[0], graph) if act is not None else None
    mean = _maker(first.given[0], graph) if first is not None and _is_product(first) else None
    if act is None or first is None or mean is None:
        return None
    whole = _is_product(root) and _is_activation(act) and _is_mean(mean)
    known = isinstance(mean.given[0].spec.shape[1], int)
    return SqueezeChain(mean, first, act) if whole and known else None


def _squeeze(root: Node, graph: Any) -> Op:
    found = _found(root, graph)
    assert found is not None
    (x,), first = found.mean.given, [*found.first.inputs, None][1:3]
    inputs = (x, *first, *root.inputs[1:])
    return Op("tactix.SqueezeExcitation@1", inputs, (("activation", found.act.layer.name),))


def _weights(net: Any, rng: Any, *shape: int) -> Value:
    v: Value = net.add_constant(rng.standard_normal(shape, dtype=np.float32))
    return v


def _squeeze_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 8, 4, 5])
    (y,) = net.add_layer("tactix.GlobalAveragePool", [x])
    parameters = [_weights(net, rng, *shape) for shape in ((3, 8, 1, 1), (3,), (8, 3, 1, 1))]
    (y,) = net.add_layer("tactix.Convolution", [y, *parameters[:2]])
    (y,) = net.add_layer("tactix.Relu", [y])
    (y,) = net.add_layer("tactix.Convolution", [y, parameters[2]])
    (y,) = net.add_layer("tactix.Sigmoid", [y])
    net.mark_output(net.add_layer("tactix.Mul", [x, y])[0], "y")


def _parts(root: Node, x: Value) -> Op:
    """The mean and products of rows, which the rule above does not take again."""
    rows, act = T.Reshape(T.GlobalAveragePool(x), shape=x.spec.shape[:2]), root.attrs.activation
    inputs = [*root.inputs, None][1:5]
    hidden = getattr(T, act)(_rows(rows, inputs[0], inputs[1]))
    return T.Reshape(_rows(hidden, inputs[2], inputs[3]), shape=root.outputs[0].spec.shape)


def _rows(rows: Any, w: Value | None, b: Value | None) -> Op:
    assert w is not None
    y = T.MatMul(rows, literal(np.ascontiguousarray(w.array.reshape(w.array.shape[:2]).T)))
    return y if b is None else T.Add(y, b)


def _parts_example(net: Any) -> None:
    rng = np.random.default_rng(7)
    shapes = ((3, 8, 1, 1), (3,), (8, 3, 1, 1), (8,))
    inputs = [net.add_input("x", "f32", ["n", 8, 4, 5]), *(_weights(net, rng, *s) for s in shapes)]
    net.mark_output(net.add_layer("tactix.SqueezeExcitation", inputs)[0], "y")


RULES = (
    Rule(
        "tactix.squeeze_excitation",
        T.Convolution(var("x"), const("w")),
        _squeeze,
        lambda root, graph: _found(root, graph) is not None,
        benefit=30,
        numerics="reassociates",
        example=_squeeze_example,
        device="cuda",
    ),
    Rule(
        "tactix.parts_of_squeeze_excitation",
        T.SqueezeExcitation(var("x")),
        _parts,
        numerics="reassociates",
        example=_parts_example,
        phase=RIVAL,
        device="cuda",
    ),
)
