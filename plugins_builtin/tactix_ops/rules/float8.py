"""What a model writes as dequantise, multiply, quantise with 8-bit floats, on devices that multiply
these.

The scales of both operands become a factor after the sum, and what quantises or dequantises by one
scale becomes pointwise, so that it joins what stands around it. A value of 8 bits is a number of
float16, too: where no kernel multiplies 8 bits, or one of 16 is faster, that one takes the product.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Op, P, Rule, any_of, const, literal, var
from tactix_ops.layers.float8 import FLOATS
from tactix_ops.rules.facts import Array
from tactix_ops.rules.quantized_products import is_turned

T = P.tactix


def _is_zero(node: Node) -> bool:
    """Whether no zero point is added: 8-bit floats have none but 0."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return zero is None or (zero.const is not None and not zero.array.astype(np.float32).any())


def _is_scaled(node: Node, narrow: Value, wide: Value) -> bool:
    """Whether it is between 8-bit floats and float32, by scales that are not one for each block."""
    scale = node.given[1].spec
    types = narrow.spec.dtype in FLOATS and wide.spec.dtype is DType.FP32
    return types and scale.dtype is DType.FP32 and not node.attrs.block_size and _is_zero(node)


def _factor(node: Node) -> Array | None:
    """The scale as a tensor that broadcasts over what it scales; None where it is computed."""
    scale, x = node.given[1], node.given[0].spec
    if scale.const is None:
        return None
    if scale.array.size == 1:
        return scale.array.reshape(())
    axis = node.attrs.axis % x.rank
    return scale.array.reshape([-1 if i == axis else 1 for i in range(x.rank)])


def _finite(values: Array) -> bool:
    return bool((np.isfinite(values) & (values > 0)).all())


# -- products ------------------------------------------------------------------------------------


def _columns(root: Node, dw: Node) -> Array | str:
    """Scales of weights, one or one for each column; or why they are not so."""
    if dw.given[0].spec.rank != 2 or not _is_scaled(dw, dw.given[0], dw.outputs[0]):
        return "its weights are no matrix of 8-bit floats with float32 scales"
    scale = np.atleast_1d(dw.given[1].array)
    if scale.size > 1 and dw.attrs.axis % 2 != (0 if is_turned(root) else 1):
        return "its weights have scales along the summed axis: give them one for each column"
    return scale.reshape(-1)


def _why_not(root: Node, d: Node) -> str:
    """Why a product of dequantised tensors is none of 8-bit floats; empty if it may be one."""
    a = root.attrs
    if root.layer.name == "Gemm" and (a.transA or a.alpha != 1 or a.beta != 1):
        return "it transposes its activations or scales by alpha or beta"
    if root.given[0].spec.rank < 2 or not _is_scaled(d, d.given[0], d.outputs[0]):
        return "its activations are no matrix of 8-bit floats with float32 scales"
    if d.given[1].const is None or d.given[1].array.size != 1:
        return "its activations have several scales, or a computed one: give them a constant one"
    return ""


def _product_when(root: Node, d: Node, dw: Node) -> bool | str:
    if d.given[0].spec.dtype not in FLOATS or dw.given[0].spec.dtype not in FLOATS:
        return False
    if why := _why_not(root, d):
        return why
    found = _columns(root, dw)
    if isinstance(found, str):
        return found
    return _finite(_scales(d, found)) or "the product of its scales is not positive and finite"


def _scales(d: Node, columns: Array) -> Array:
    return (d.given[1].array.reshape(()) * columns).astype(np.float32)


def _product(root: Node, x: Value, d: Node, dw: Node) -> Op:
    columns, w = _columns(root, dw), dw.given[0].array
    assert not isinstance(columns, str)
    weights = np.ascontiguousarray(w.T) if is_turned(root) else w
    factor = _scales(d, columns)
    factor = factor.reshape(()) if factor.size == 1 else factor
    y = T.Mul(T.Float8MatMul(x, literal(weights)), literal(factor))
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    return y if bias is None else T.Add(y, bias)


def _scaled(net: Any, x: Value, scale: Any, axis: int = 1) -> Value:
    inputs = [x, net.add_constant(np.asarray(scale, np.float32))]
    y: Value = net.add_layer("tactix.DequantizeLinear", inputs, axis=axis)[0]
    return y


def _weights(net: Any, *shape: int) -> Value:
    drawn = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    w: Value = net.add_constant(drawn.astype(DType.FP8.numpy))
    return w


def _product_example(net: Any) -> None:
    x = _scaled(net, net.add_input("x", "f8e4m3", ["n", 3, 16]), 0.5)
    scales = 0.25 + np.arange(8, dtype=np.float32)
    (y,) = net.add_layer("tactix.MatMul", [x, _scaled(net, _weights(net, 16, 8), scales)])
    net.mark_output(y, "y")
    z = _scaled(net, net.add_input("z", "f8e4m3", ["n", 16]), 0.25)
    bias = net.add_constant(np.arange(8, dtype=np.float32))
    w = _scaled(net, _weights(net, 8, 16), scales, 0)
    net.mark_output(net.add_layer("tactix.Gemm", [z, w, bias], transB=True)[0], "g")


# -- scales of one tensor ------------------------------------------------------------------------


def _dequantize_when(root: Node, x: Value) -> bool:
    return x.const is None and _is_scaled(root, x, root.outputs[0]) and _has_factor(root)


def _has_factor(root: Node) -> bool:
    """Whether the scale broadcasts over what it scales: it is constant, or one number."""
    return _factor(root) is not None or root.given[1].spec.numel == 1


def _scale(root: Node) -> Any:
    """The template of what to multiply or divide by."""
    known = _factor(root)
    return T.Reshape(root.given[1], shape=()) if known is None else literal(known)


def _dequantize(root: Node, x: Value) -> Op:
    return T.Mul(T.Cast(x, to=DType.FP32), _scale(root))


def _dequantize_example(net: Any) -> None:
    net.mark_output(_scaled(net, net.add_input("x", "f8e4m3", ["n", 3]), [0.5, 0.25, 2.0]), "y")


def _quantize_when(root: Node, x: Value) -> bool:
    return bool(root.attrs.saturate and _is_scaled(root, root.outputs[0], x) and _has_factor(root))


def _quantize(root: Node, x: Value) -> Op:
    """By the reciprocal of a known scale, as bytes are quantised."""
    known = _factor(root)
    if known is None:
        return T.Cast(T.Div(x, _scale(root)), to=root.attrs.dtype)
    return T.Cast(
        T.Mul(x, literal((np.float32(1) / known).astype(np.float32))), to=root.attrs.dtype
    )


def _quantize_example(net: Any) -> None:
    (x,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", ["n", 3])])
    scale = net.add_constant(np.float32(0.25))
    (y,) = net.add_layer("tactix.QuantizeLinear", [x, scale], dtype=DType.FP8)
    net.mark_output(y, "y")


# -- products that kernels of 16 bits are faster for ---------------------------------------------


def _halves(x: Value, w: Value) -> Op:
    return T.WideMatMul(T.Cast(x, to=DType.FP16), literal(w.array.astype(np.float16)))


def _halves_example(net: Any) -> None:
    x = net.add_input("x", "f8e4m3", ["n", 16])
    net.mark_output(net.add_layer("tactix.Float8MatMul", [x, _weights(net, 16, 8)])[0], "y")


_X = T.DequantizeLinear(var("x")) >> "d"
_W = T.DequantizeLinear(const("w"), const("s")) >> "dw"
_rule = partial(Rule, device="cuda", numerics="reassociates")

RULES = (
    _rule(
        "tactix.float8_product",
        any_of(T.MatMul(_X, _W), T.Gemm(_X, _W)),
        _product,
        _product_when,
        benefit=61,
        exclusive=False,
        example=_product_example,
    ),
    _rule(
        "tactix.float8_dequantize",
        T.DequantizeLinear(var("x")),
        _dequantize,
        _dequantize_when,
        benefit=20,
        exclusive=False,
        example=_dequantize_example,
        phase="fuse",
    ),
    _rule(
        "tactix.float8_quantize",
        T.QuantizeLinear(var("x")),
        _quantize,
        _quantize_when,
        benefit=20,
        exclusive=False,
        example=_quantize_example,
        phase="fuse",
    ),
    _rule(
        "tactix.halves_for_float8_product",
        T.Float8MatMul(var("x"), const("w")),
        _halves,
        example=_halves_example,
        phase=RIVAL,
    ),
)
