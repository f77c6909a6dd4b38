"""Matrix products: Gemm said as MatMul and Add, constant factors in constant weights, two products
with constants as one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import (
    Array,
    along_axis,
    contiguous,
    holds_magnitudes,
    scalar_const,
)

# -- gemm -----------------------------------------------------------------------------------------


def _turned(v: Value, flag: bool) -> Any:
    if not flag:
        return v
    return P.tactix.Transpose(v, perm=(1, 0)) if v.const is None else literal(contiguous(v.const.T))


def _times(template: Any, v: Value, factor: float) -> Any:
    """Template: a tensor, of which ``v`` is the element type, times a number."""
    return (
        template
        if factor == 1
        else P.tactix.Mul(template, literal(np.asarray(factor, v.spec.dtype.numpy)))
    )


def _gemm(root: Node) -> Any:
    a, b, *rest = root.given
    f = root.attrs
    product = _times(P.tactix.MatMul(_turned(a, f.transA), _turned(b, f.transB)), a, f.alpha)
    c = rest[0] if rest else None
    return product if c is None or f.beta == 0 else P.tactix.Add(product, _times(c, c, f.beta))


def _gemm_example(net: Any) -> None:
    rng = np.random.default_rng(5)
    x = net.add_input("x", "f32", ["n", 5])
    w, c = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((3, 5), (3,)))
    net.mark_output(net.add_layer("tactix.Gemm", [x, w, c], transB=True)[0], "y")


def _scaled_gemm_example(net: Any) -> None:
    x, w = net.add_input("x", "f32", [5, "n"]), net.add_input("w", "f32", [5, 3])
    c = net.add_constant(np.full((1, 1), 1.5, np.float32))
    net.mark_output(
        net.add_layer("tactix.Gemm", [x, w, c], transA=True, alpha=0.5, beta=2.0)[0], "y"
    )


BEYOND = "the weights' dtype does not hold the result"

# -- factors -------------------------------------------------------------------------------------


def _factor(root: Node, product: Node, c: Value) -> Array | None:
    """The constant as one number per column of the weights."""
    w = product.inputs[1]
    if (
        w is None
        or w.const is None
        or w.spec.rank != 2
        or root.outputs[0].spec.shape != product.outputs[0].spec.shape
    ):
        return None
    return along_axis(
        c, product.outputs[0].spec.rank, product.outputs[0].spec.rank - 1, w.spec.shape[1]
    )


def _into_weights_when(root: Node, product: Node, c: Value) -> bool | str:
    v, w = _factor(root, product, c), product.inputs[1]
    if v is None or w is None:
        return "it is no factor of columns"
    return _holds(w, _numbers(root, v))


def _numbers(factor: Node, v: Array) -> Array:
    """What a Mul or Div by a constant multiplies by, in float64."""
    with np.errstate(divide="ignore"):
        return v.astype(np.float64) if factor.layer.name == "Mul" else 1 / v.astype(np.float64)


def _holds(w: Value, factor: Array) -> bool | str:
    """Whether the weights' dtype holds each column times its factor."""
    largest = np.abs(w.array).max(axis=0, initial=0).astype(np.float64) * np.abs(factor)
    return True if holds_magnitudes(w.spec.dtype, largest) else BEYOND


def _into_weights(root: Node, product: Node, c: Value) -> Op:
    x, w = product.inputs
    v = _factor(root, product, c)
    assert v is not None
    assert w is not None
    return P.tactix.MatMul(x, _scaled(w, _numbers(root, v)))


def _scaled(w: Value, factor: Any) -> Any:
    return literal((w.array * factor).astype(w.array.dtype))


def _factor_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 2, 5])
    w, c = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((5, 3), (1, 3)))
    net.mark_output(
        net.add_layer("tactix.Mul", [c, net.add_layer("tactix.MatMul", [x, w])[0]])[0], "y"
    )


def _input_factor_when(c: Value, w: Value, factor: Node) -> bool | str:
    if scalar_const(c) is None or w.spec.rank != 2 or c.spec.rank > 1:
        return "it is no number, or no matrix"
    return _holds(w, _numbers(factor, c.array.reshape(())))


def _input_factor(x: Value, w: Value, c: Value, factor: Node) -> Op:
    return P.tactix.MatMul(x, _scaled(w, _numbers(factor, c.array.reshape(()))))


def _input_factor_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 5])
    w = net.add_constant(np.random.default_rng(7).standard_normal((5, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Div", [x, net.add_constant(np.float32(3))])
    net.mark_output(net.add_layer("tactix.MatMul", [y, w])[0], "y")


_SCALED = any_of(
    P.tactix.Mul(var("x"), const("c")) >> "factor", P.tactix.Div(var("x"), const("c")) >> "factor"
)
_PRODUCT = P.tactix.MatMul(var("x"), const("w")) >> "product"

# -- two products ----------------------------------------------------------------------------------

_FIRST = P.tactix.MatMul(var("x"), const("a"))


def _joins(root: Node, a: Value, c: Value) -> bool | str:
    """Whether one matrix has no more numbers than both: then products and bytes are fewer."""
    if a.spec.rank != 2 or c.spec.rank != 2 or not root.given[0].spec.dtype.is_float:
        return "they are no matrices of floats"
    (k, m), n = a.array.shape, c.array.shape[1]
    if k * n > k * m + m * n:
        return "both matrices are thin"
    largest = np.abs(_wide(a) @ _wide(c)).max(axis=0, initial=0)
    return True if holds_magnitudes(c.spec.dtype, largest) else BEYOND


def _columns(b: Value, c: Value, rank: int) -> Array | None:
    """A constant term between the products: one number for each row of the second matrix."""
    return along_axis(b, rank, rank - 1, c.spec.shape[0]) if c.spec.rank == 2 else None


def _joins_over_term(root: Node, first: Node, a: Value, b: Value, c: Value) -> bool | str:
    term = _columns(b, c, root.given[0].spec.rank)
    if term is None:
        return "the term varies along the rows"
    if not np.isfinite(_moved(term, c)).all():
        return BEYOND
    if root.given[0].spec.shape != first.outputs[0].spec.shape:
        return "the term has more rows"
    return _joins(root, a, c)


def _moved(term: Array, c: Value) -> Array:
    """What a term between the products adds behind them."""
    with np.errstate(over="ignore"):
        return (term.astype(np.float64) @ _wide(c)).astype(c.array.dtype)


def _wide(v: Value) -> Array:
    return v.array.astype(np.float64)


def _joined(x: Value, a: Value, c: Value) -> Op:
    return P.tactix.MatMul(x, literal((_wide(a) @ _wide(c)).astype(c.array.dtype)))


def _joined_over_term(root: Node, x: Value, a: Value, b: Value, c: Value) -> Op:
    term = _columns(b, c, root.given[0].spec.rank)
    assert term is not None
    return P.tactix.Add(_joined(x, a, c), literal(_moved(term, c)))


def _joined_example(net: Any, term: bool) -> None:
    rng = np.random.default_rng(8)
    a, b, c = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((4, 6), (6,), (6, 5))
    )
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ["n", 3, 4]), a])
    if term:
        (y,) = net.add_layer("tactix.Add", [y, b])
    net.mark_output(net.add_layer("tactix.MatMul", [y, c])[0], "y")


RULES = (
    Rule(
        "tactix.gemm",
        P.tactix.Gemm(alpha=1.0, beta=1.0),
        _gemm,
        benefit=35,
        example=_gemm_example,
    ),
    Rule(
        "tactix.scaled_gemm",
        P.tactix.Gemm(),
        _gemm,
        benefit=30,
        numerics="reassociates",
        example=_scaled_gemm_example,
    ),
    Rule(
        "tactix.factor_into_weights",
        any_of(P.tactix.Mul(_PRODUCT, const("c")), P.tactix.Div(_PRODUCT, const("c"))),
        _into_weights,
        _into_weights_when,
        benefit=35,
        numerics="reassociates",
        example=_factor_example,
    ),
    Rule(
        "tactix.input_factor_into_weights",
        P.tactix.MatMul(_SCALED, const("w")),
        _input_factor,
        _input_factor_when,
        benefit=35,
        numerics="reassociates",
        example=_input_factor_example,
    ),
    Rule(
        "tactix.product_of_product",
        P.tactix.MatMul(_FIRST, const("c")),
        _joined,
        _joins,
        benefit=34,
        numerics="reassociates",
        example=lambda net: _joined_example(net, False),
    ),
    Rule(
        "tactix.product_of_biased_product",
        P.tactix.MatMul(P.tactix.Add(_FIRST >> "first", const("b")), const("c")),
        _joined_over_term,
        _joins_over_term,
        benefit=34,
        numerics="reassociates",
        example=lambda net: _joined_example(net, True),
    ),
)
