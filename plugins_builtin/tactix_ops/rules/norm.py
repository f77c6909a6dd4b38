"""Normalisations that models spell out: LayerNormalization and RMSNormalization, with their factor
and term, and GroupNormalization.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim, evaluate_shape
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import again, core_shape, scalar_const, uniform

T = P.tactix


def _square(d: Any) -> Any:
    return any_of(T.Mul(d, d), T.Pow(d, 2.0))


def _divided(top: Any, mean: Any) -> Any:
    """``top / sqrt(mean + epsilon)``."""
    root = T.Sqrt(T.Add(mean, const("epsilon")))
    return any_of(T.Div(top, root), T.Mul(top, T.Reciprocal(root)), T.Mul(top, T.Div(1.0, root)))


_CENTRED = T.Sub(var("x"), T.ReduceMean(var("x")) >> "mean") >> "centred"
_LAYER = _divided(_CENTRED, T.ReduceMean(_square(_CENTRED)) >> "variance")
_RMS = _divided(var("x"), T.ReduceMean(_square(var("x"))) >> "variance")


def _axis(node: Node, rank: int) -> int | None:
    """The first of the reduced axes, if they are the last ones and stay with size 1."""
    axes = sorted(a % rank for a in node.attrs.axes)
    ends = bool(axes) and node.attrs.keepdims and axes == list(range(axes[0], rank))
    return axes[0] if ends else None


def _when(root: Node, x: Value, variance: Node, epsilon: Value, mean: Node | None = None) -> bool:
    axis = _axis(variance, x.spec.rank)
    agree = axis is not None and (mean is None or _axis(mean, x.spec.rank) == axis)
    whole = agree and all(isinstance(d, int) for d in x.spec.shape[axis:])
    return (
        whole and scalar_const(epsilon) is not None and root.outputs[0].spec.shape == x.spec.shape
    )


def _norm(x: Value, variance: Node, epsilon: Value, mean: Node | None = None) -> Op:
    axis = _axis(variance, x.spec.rank)
    assert axis is not None
    ones = literal(np.ones(evaluate_shape(x.spec.shape[axis:], {}), x.spec.dtype.numpy))
    make = T.RMSNormalization if mean is None else T.LayerNormalization
    return make(x, ones, axis=axis - x.spec.rank, epsilon=scalar_const(epsilon))


def _example(net: Any, centred: bool) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6])
    (mean,) = net.add_layer("tactix.ReduceMean", [x], axes=(-1,), keepdims=True)
    top = net.add_layer("tactix.Sub", [x, mean])[0] if centred else x
    (square,) = net.add_layer("tactix.Pow", [top, net.add_constant(np.float32(2))])
    (square,) = net.add_layer("tactix.ReduceMean", [square], axes=(2,), keepdims=True)
    (root,) = net.add_layer("tactix.Add", [square, net.add_constant(np.float32(1e-5))])
    (root,) = net.add_layer("tactix.Sqrt", [root])
    net.mark_output(net.add_layer("tactix.Div", [top, root])[0], "y")


# -- factor and term -----------------------------------------------------------------------------


def _parameter(v: Value, norm: Node) -> bool:
    """Whether the tensor varies along the normalised axes alone."""
    x = norm.outputs[0].spec
    tail: tuple[Dim, ...] = x.shape[norm.attrs.axis % x.rank :]
    return core_shape(v.spec.shape) == core_shape(tail)


def _flat(v: Value, norm: Node) -> Any:
    """Template: the tensor in the shape of the normalised axes."""
    x = norm.outputs[0].spec
    tail = x.shape[norm.attrs.axis % x.rank :]
    return v if v.spec.shape == tail else T.Reshape(v, shape=tail)


def _scale_when(norm: Node, c: Value) -> bool:
    return uniform(norm.inputs[1]) == 1.0 and len(norm.given) == 2 and _parameter(c, norm)


def _scale(norm: Node, c: Value) -> Op:
    return again(norm, [norm.inputs[0], _flat(c, norm)])


def _bias_when(norm: Node, c: Value) -> bool:
    return len(norm.given) == 2 and _parameter(c, norm)


def _bias(norm: Node, c: Value) -> Op:
    return again(norm, [*norm.inputs[:2], _flat(c, norm)])


def _normalised(net: Any) -> tuple[Value, Value]:
    """An example's LayerNormalization with factor 1, and a parameter for it."""
    x = net.add_input("x", "f32", ["n", 4, 6])
    (y,) = net.add_layer("tactix.LayerNormalization", [x, net.add_constant(np.ones(6, np.float32))])
    return y, net.add_constant(np.linspace(-1, 2, 6, dtype=np.float32))


def _scale_example(net: Any) -> None:
    y, c = _normalised(net)
    net.mark_output(net.add_layer("tactix.Mul", [c, y])[0], "y")


def _bias_example(net: Any) -> None:
    y, c = _normalised(net)
    net.mark_output(net.add_layer("tactix.Add", [y, c])[0], "y")


# -- groups of channels ----------------------------------------------------------------------------


def _is_of_groups(root: Node, x: Value, split: Node, scale: Value, bias: Value) -> bool | str:
    """Whether rows of channels are parted into groups, and put together again."""
    made, channels = split.outputs[0].spec.shape, x.spec.shape[1] if x.spec.rank > 2 else None
    if root.outputs[0].spec.shape != x.spec.shape or made[0] != x.spec.shape[0]:
        return "what is normalised is no image of the same samples"
    groups = made[1]
    if isinstance(channels, int) and isinstance(groups, int) and groups and not channels % groups:
        return True
    return "groups are no whole channels"


def _of_groups(x: Value, split: Node, norm: Node, scale: Value, bias: Value) -> Op:
    groups, channels = split.outputs[0].spec.shape[1], x.spec.shape[1]
    assert isinstance(groups, int)
    assert isinstance(channels, int)
    each = channels // groups
    parameters = (literal(np.repeat(v.array, each)) for v in (scale, bias))
    epsilon = norm.attrs.epsilon
    return T.GroupNormalization(x, *parameters, num_groups=groups, epsilon=epsilon)


def _groups_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 6, 4, 5])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(x.spec.shape[0], 3, 40))
    scale, bias = (net.add_constant(np.array(v, np.float32)) for v in ((1, 2, 3), (0, 1, -1)))
    (y,) = net.add_layer("tactix.InstanceNormalization", [y, scale, bias], epsilon=1e-3)
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=x.spec.shape)[0], "y")


_LN, _ANY = T.LayerNormalization() >> "norm", T.RMSNormalization() >> "norm"

_PARTED = T.Reshape(var("x")) >> "split"
_GROUPS = T.InstanceNormalization(_PARTED, const("scale"), const("bias")) >> "norm"

RULES = (
    Rule(
        "tactix.layer_norm",
        _LAYER,
        _norm,
        _when,
        benefit=70,
        numerics="reassociates",
        example=lambda net: _example(net, True),
    ),
    Rule(
        "tactix.rms_norm",
        _RMS,
        _norm,
        _when,
        benefit=65,
        numerics="reassociates",
        example=lambda net: _example(net, False),
    ),
    Rule(
        "tactix.norm_factor",
        any_of(T.Mul(_LN, const("c")), T.Mul(_ANY, const("c"))),
        _scale,
        _scale_when,
        benefit=40,
        example=_scale_example,
    ),
    Rule(
        "tactix.norm_term",
        T.Add(_LN, const("c")),
        _bias,
        _bias_when,
        benefit=40,
        example=_bias_example,
    ),
    Rule(
        "tactix.group_norm",
        T.Reshape(_GROUPS),
        _of_groups,
        _is_of_groups,
        benefit=45,
        example=_groups_example,
    ),
)
