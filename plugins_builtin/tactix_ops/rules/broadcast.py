"""Expanded tensors: pointwise layers broadcast by themselves, so an Expand sinks to where it is
needed, or vanishes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import broadcast_shapes
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, any_of, const, literal, pointwise, var
from tactix_ops.rules.facts import again, is_static


def _same_expand(root: Node, x: Value) -> bool:
    return x.spec.shape == root.outputs[0].spec.shape


def _same_expand_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Expand", [x], shape=(1, 3))
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


def _outer_shape(root: Node, x: Value) -> Op:
    return P.tactix.Expand(x, shape=root.outputs[0].spec.shape)


def _expand_twice_example(net: Any) -> None:
    x, w = net.add_input("x", "f32", ["n", 1, 1]), net.add_input("w", "f32", ["n", 4, 3])
    (y,) = net.add_layer("tactix.Expand", [x], shape=(1, 4, 1))
    (y,) = net.add_layer("tactix.Expand", [y], shape=(1, 1, 3))
    net.mark_output(net.add_layer("tactix.Concat", [y, w], axis=0)[0], "y")


def _narrow(v: Value | None) -> Value | None:
    """What an Expand repeats, or the tensor itself."""
    p = v.producer if v is not None else None
    return p.inputs[0] if p is not None and p.layer.name == "Expand" and not p.is_fused else v


def _reads_expanded(root: Node) -> bool:
    return not root.is_fused and any(_narrow(v) is not v for v in root.inputs)


def _below_pointwise(root: Node) -> Op:
    narrow = [_narrow(v) for v in root.inputs]
    shape = broadcast_shapes(*(v.spec.shape for v in narrow if v is not None))
    wanted = root.outputs[0].spec.shape
    return (
        again(root, narrow)
        if shape == wanted
        else P.tactix.Expand(again(root, narrow), shape=wanted)
    )


def _below_example(net: Any) -> None:
    x, y = net.add_input("x", "f32", ["n", 1]), net.add_input("y", "f32", ["n", 6])
    (wide,) = net.add_layer("tactix.Expand", [x], shape=(1, 6))
    (z,) = net.add_layer("tactix.Add", [net.add_layer("tactix.Exp", [wide])[0], y])
    net.mark_output(z, "z")


# -- one number everywhere -----------------------------------------------------------------------


def _fill_as_expand(root: Node) -> Op:
    a = root.attrs
    return P.tactix.Expand(literal(np.asarray(a.value, a.dtype.numpy)), shape=a.shape)


def _fill_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 6])
    (y,) = net.add_layer("tactix.Fill", [], shape=(x.spec.shape[0], 6), value=2.5, dtype=DType.FP32)
    net.mark_output(net.add_layer("tactix.Add", [x, y])[0], "y")


def _single(c: Value) -> bool:
    return bool(c.array.size == 1)


def _picks(root: Node, c: Value) -> bool:
    """Whether each element of the result is the number: a Resize that weighs some may round."""
    return _single(c) and (root.layer.name != "Resize" or root.attrs.mode == "nearest")


def _moved(root: Node, c: Value) -> tuple[Op, ...]:
    element = c if not c.spec.rank else literal(c.array.reshape(()))
    return tuple(P.tactix.Expand(element, shape=v.spec.shape) for v in root.outputs)


def _moved_example(net: Any) -> None:
    x = net.add_input("x", "f32", [2, "n", 6])
    (y,) = net.add_layer(
        "tactix.Expand",
        [net.add_constant(np.full((1, 1), 7, np.float32))],
        shape=(4, x.spec.shape[1], 6),
    )
    for part in net.add_layer("tactix.Split", [y], axis=0, sizes=(2, 2)):
        (x,) = net.add_layer("tactix.Mul", [x, part])
    net.mark_output(x, "y")


_WIDE = P.tactix.Expand(const("c"), shape=ANY)

RULES = (
    Rule(
        "tactix.same_expand",
        P.tactix.Expand(var("x")),
        lambda x: x,
        _same_expand,
        benefit=60,
        example=_same_expand_example,
    ),
    Rule(
        "tactix.expand_twice",
        P.tactix.Expand(P.tactix.Expand(var("x"), shape=ANY), shape=ANY),
        _outer_shape,
        benefit=50,
        exclusive=False,
        example=_expand_twice_example,
    ),
    Rule(
        "tactix.expand_below_pointwise",
        pointwise().reading("tactix.Expand"),
        _below_pointwise,
        _reads_expanded,
        benefit=45,
        example=_below_example,
    ),
    Rule(
        "tactix.fill",
        P.tactix.Fill(),
        _fill_as_expand,
        lambda root: not is_static(root.attrs.shape),
        benefit=50,
        example=_fill_example,
    ),
    Rule(
        "tactix.moved_number",
        any_of(
            P.tactix.Reshape(_WIDE),
            P.tactix.Transpose(_WIDE),
            P.tactix.Slice(_WIDE),
            P.tactix.Split(_WIDE),
            P.tactix.Resize(_WIDE),
        ),
        _moved,
        _picks,
        benefit=55,
        exclusive=False,
        example=_moved_example,
    ),
)
