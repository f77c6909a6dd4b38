"""Matrix products: Gemm said as MatMul and Add, constant factors in constant weights and biases,
and constant terms behind the product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate, prod
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


# -- factors -------------------------------------------------------------------------------------


def _factor(root: Node, product: Node, c: Value, turn: Node | None) -> Array | None:
    """The constant as one number per column of the weights."""
    w = product.inputs[1]
    result = product if turn is None else turn
    shape = result.outputs[0].spec.shape
    if w is None or w.const is None or w.spec.rank != 2 or root.outputs[0].spec.shape != shape:
        return None
    columns = len(shape) - 1 if turn is None else turn.attrs.perm.index(len(shape) - 1)
    return along_axis(c, len(shape), columns, w.spec.shape[1])


def _bias(product: Node, b: Value | None) -> Array | None:
    """What is added to the product, as one number per column of the weights."""
    y = product.outputs[0].spec
    return None if b is None else along_axis(b, y.rank, y.rank - 1, y.shape[-1])


def _into_weights_when(
    root: Node, product: Node, c: Value, b: Value | None = None, turn: Node | None = None
) -> bool | str:
    if _factor(root, product, c, turn) is None:
        return "it is no number per column of the weights"
    if b is not None and _bias(product, b) is None:
        return "what is added is no number per column of the weights"
    return True


def _into_weights_fits(
    root: Node, product: Node, c: Value, b: Value | None = None, turn: Node | None = None
) -> bool | str:
    v, w = _factor(root, product, c, turn), product.inputs[1]
    assert v is not None
    assert w is not None
    factor, bias = _multiplier(root, v), _bias(product, b)
    if bias is None or b is None:
        return _holds(w, factor)
    largest = np.abs(bias.astype(np.float64) * factor)
    held = holds_magnitudes(b.spec.dtype, largest)
    return _holds(w, factor) if held else "the bias's dtype does not hold the result"


def _multiplier(factor: Node, v: Array) -> Array:
    """What a Mul or Div by a constant multiplies by, in float64."""
    with np.errstate(divide="ignore"):
        return v.astype(np.float64) if factor.layer.name == "Mul" else 1 / v.astype(np.float64)


def _holds(w: Value, factor: Array) -> bool | str:
    """Whether the weights' dtype holds each column times its factor."""
    largest = np.abs(w.array).max(axis=0, initial=0).astype(np.float64) * np.abs(factor)
    held = holds_magnitudes(w.spec.dtype, largest)
    return True if held else "the weights' dtype does not hold the result"


def _into_weights(
    root: Node, product: Node, c: Value, b: Value | None = None, turn: Node | None = None
) -> Op:
    x, w = product.inputs
    v, bias = _factor(root, product, c, turn), _bias(product, b)
    assert v is not None
    assert w is not None
    y = P.tactix.MatMul(x, _scaled(w, _multiplier(root, v)))
    if bias is not None and b is not None:
        y = P.tactix.Add(y, literal((bias * _multiplier(root, v)).astype(b.array.dtype)))
    return y if turn is None else P.tactix.Transpose(y, perm=turn.attrs.perm)


def _scaled(w: Value, factor: Any) -> Any:
    return literal((w.array * factor).astype(w.array.dtype))


def _factor_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 2, 5])
    w, b, c = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((5, 3), (3,), (3, 1))
    )
    (y,) = net.add_layer("tactix.Add", [net.add_layer("tactix.MatMul", [x, w])[0], b])
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))
    net.mark_output(net.add_layer("tactix.Mul", [c, y])[0], "y")


def _input_factor_when(c: Value, w: Value) -> bool:
    return scalar_const(c) is not None and w.spec.rank == 2 and c.spec.rank <= 1


def _input_factor_fits(w: Value, c: Value, factor: Node) -> bool | str:
    return _holds(w, _multiplier(factor, c.array.reshape(())))


def _input_factor(x: Value, w: Value, c: Value, factor: Node) -> Op:
    return P.tactix.MatMul(x, _scaled(w, _multiplier(factor, c.array.reshape(()))))


def _input_factor_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 5])
    w = net.add_constant(np.random.default_rng(7).standard_normal((5, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Div", [x, net.add_constant(np.float32(3))])
    net.mark_output(net.add_layer("tactix.MatMul", [y, w])[0], "y")


_SCALED = any_of(
    P.tactix.Mul(var("x"), const("c")) >> "factor", P.tactix.Div(var("x"), const("c")) >> "factor"
)
_PRODUCT = P.tactix.MatMul(var("x"), const("w")) >> "product"
_RESULT = any_of(P.tactix.Add(_PRODUCT, const("b")), _PRODUCT)
_MOVED = any_of(P.tactix.Transpose(_RESULT) >> "turn", _RESULT)

# -- terms ---------------------------------------------------------------------------------------


def _term_when(c: Value, w: Value, sum_: Node, graph: Any) -> bool | str:
    """A matrix, as positions are, that products alone read with what it is added to."""
    if w.spec.rank != 2 or c.spec.rank < 2 or c.spec.shape[-2:][0] == 1:
        return "it is no matrix beside tokens"
    if c.spec.shape[-1] != w.spec.shape[0]:
        return "columns are repeated"
    readers = [n for n, _ in graph.uses(sum_.outputs[0])]
    alone = all(n.layer.name == "MatMul" for n in readers) and not graph.is_output(sum_.outputs[0])
    rows = evaluate(prod(c.spec.shape[:-1]), {})
    few = rows * w.array.shape[1] <= max(c.array.size, w.array.size)
    return True if alone and few else "the sum is read by others, or results are many"


def _term(x: Value, c: Value, w: Value) -> Op:
    return P.tactix.Add(P.tactix.MatMul(x, w), P.tactix.MatMul(c, w))


def _term_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 3, 5])
    c, w = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((3, 5), (5, 4)))
    (y,) = net.add_layer("tactix.Add", [x, c])
    net.mark_output(net.add_layer("tactix.MatMul", [y, w])[0], "y")


def _no_larger(a: Value, b: Value) -> bool:
    """Whether the sum of two constants has no more elements than one of them."""
    shape = np.broadcast_shapes(a.array.shape, b.array.shape)
    return int(np.prod(shape)) == max(a.array.size, b.array.size)


def _two_terms_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", ["n", 3, 5]), net.add_input("w", "f32", [5, 4])]
    )
    for shape in ((3, 4), (4,)):
        c = net.add_constant(rng.standard_normal(shape, dtype=np.float32))
        (y,) = net.add_layer("tactix.Add", [y, c])
    net.mark_output(y, "y")


RULES = (
    Rule(
        "tactix.term_behind_product",
        P.tactix.MatMul(P.tactix.Add(var("x"), const("c")) >> "sum_", const("w")),
        _term,
        _term_when,
        benefit=35,
        numerics="reassociates",
        exclusive=False,
        example=_term_example,
    ),
    Rule(
        "tactix.terms_of_product",
        P.tactix.Add(P.tactix.Add(P.tactix.MatMul(var("x"), var("w")), const("a")), const("b")),
        lambda x, w, a, b: P.tactix.Add(P.tactix.MatMul(x, w), P.tactix.Add(a, b)),
        _no_larger,
        benefit=36,
        numerics="reassociates",
        example=_two_terms_example,
    ),
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
        any_of(P.tactix.Mul(_MOVED, const("c")), P.tactix.Div(_MOVED, const("c"))),
        _into_weights,
        _into_weights_when,
        fits=_into_weights_fits,
        benefit=35,
        numerics="reassociates",
        example=_factor_example,
    ),
    Rule(
        "tactix.input_factor_into_weights",
        P.tactix.MatMul(_SCALED, const("w")),
        _input_factor,
        _input_factor_when,
        fits=_input_factor_fits,
        benefit=35,
        numerics="reassociates",
        example=_input_factor_example,
    ),
)
