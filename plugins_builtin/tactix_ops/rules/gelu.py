"""Activations that models spell out: Gelu by erf and by tanh, Swish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, var
from tactix_ops.rules.facts import close, scalar_const

ROOT_2 = 1.4142135623730951
CUBIC = 0.044715
ROOT_2_OVER_PI = 0.7978845608028654

T = P.tactix
_X = var("x")


def _halved(inner: Any) -> Any:
    """``x / 2 * inner``, in every order of the factors."""
    return any_of(
        T.Mul(T.Mul(_X, 0.5), inner), T.Mul(T.Mul(_X, inner), 0.5), T.Mul(_X, T.Mul(inner, 0.5))
    )


# -- by erf --------------------------------------------------------------------------------------

_ERF = T.Add(any_of(T.Erf(T.Div(_X, const("divisor"))), T.Erf(T.Mul(_X, const("factor")))), 1.0)


def _erf_when(
    root: Node, x: Value, divisor: Value | None = None, factor: Value | None = None
) -> bool:
    scaled = close(divisor, ROOT_2) or close(factor, 1 / ROOT_2)
    return scaled and root.outputs[0].spec.shape == x.spec.shape


def _number(net: Any, value: float) -> Value:
    return net.add_constant(np.float32(value))  # type: ignore[no-any-return]


def _erf_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 7])
    (e,) = net.add_layer("tactix.Erf", [net.add_layer("tactix.Div", [x, _number(net, ROOT_2)])[0]])
    (e,) = net.add_layer("tactix.Add", [_number(net, 1), e])
    net.mark_output(
        net.add_layer("tactix.Mul", [net.add_layer("tactix.Mul", [x, e])[0], _number(net, 0.5)])[0],
        "y",
    )


# -- by tanh -------------------------------------------------------------------------------------

_CUBE = any_of(T.Mul(T.Mul(_X, _X), _X), T.Pow(_X, 3.0))
_SUM = T.Mul(T.Add(_X, T.Mul(_CUBE, const("cubic"))), const("factor"))
_PRODUCT = T.Mul(T.Mul(_X, const("factor")), T.Add(T.Mul(T.Mul(_X, const("cubic")), _X), 1.0))
_TANH = T.Add(T.Tanh(any_of(_SUM, _PRODUCT)), 1.0)


def _tanh_when(root: Node, x: Value, cubic: Value, factor: Value) -> bool:
    known = close(cubic, CUBIC) and close(factor, ROOT_2_OVER_PI)
    return known and root.outputs[0].spec.shape == x.spec.shape


def _tanh_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 7])
    (cube,) = net.add_layer("tactix.Pow", [x, _number(net, 3)])
    (s,) = net.add_layer(
        "tactix.Add", [x, net.add_layer("tactix.Mul", [cube, _number(net, CUBIC)])[0]]
    )
    (t,) = net.add_layer(
        "tactix.Tanh", [net.add_layer("tactix.Mul", [s, _number(net, ROOT_2_OVER_PI)])[0]]
    )
    (t,) = net.add_layer("tactix.Add", [t, _number(net, 1)])
    net.mark_output(
        net.add_layer("tactix.Mul", [net.add_layer("tactix.Mul", [x, _number(net, 0.5)])[0], t])[0],
        "y",
    )


# -- swish ---------------------------------------------------------------------------------------


def _swish(x: Value, alpha: Value | None = None) -> Op:
    number = 1.0 if alpha is None else scalar_const(alpha)
    return T.Swish(x, alpha=number)


def _swish_when(root: Node, x: Value, alpha: Value | None = None) -> bool:
    known = alpha is None or scalar_const(alpha) is not None
    return known and root.outputs[0].spec.shape == x.spec.shape


def _swish_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 7])
    (y,) = net.add_layer("tactix.Mul", [net.add_layer("tactix.Sigmoid", [x])[0], x])
    (s,) = net.add_layer(
        "tactix.Sigmoid", [net.add_layer("tactix.Mul", [y, _number(net, 1.702)])[0]]
    )
    net.mark_output(net.add_layer("tactix.Mul", [y, s])[0], "y")


def _gelu(approximate: str) -> Callable[[Value], Op]:
    return lambda x: T.Gelu(x, approximate=approximate)


RULES = (
    Rule(
        "tactix.gelu",
        _halved(_ERF),
        _gelu("none"),
        _erf_when,
        benefit=70,
        numerics="reassociates",
        example=_erf_example,
    ),
    Rule(
        "tactix.gelu_tanh",
        _halved(_TANH),
        _gelu("tanh"),
        _tanh_when,
        benefit=70,
        numerics="reassociates",
        example=_tanh_example,
    ),
    Rule(
        "tactix.swish",
        any_of(T.Mul(_X, T.Sigmoid(_X)), T.Mul(_X, T.Sigmoid(T.Mul(_X, const("alpha"))))),
        _swish,
        _swish_when,
        benefit=65,
        numerics="reassociates",
        example=_swish_example,
    ),
)
