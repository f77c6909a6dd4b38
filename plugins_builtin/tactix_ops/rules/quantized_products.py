"""Convolution, MatMul and Gemm of dequantised tensors as integer products; see ``quantize``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import Array, again
from tactix_ops.rules.transposed import (
    phase_count,
    phases_of,
    side_by_side,
    weights_of_phases,
)

MOST = 1 << 30
"""Largest constant term: sums of products stay within int32 beside it."""
LONGEST = 1 << 14
"""Most terms of a sum of activations that is multiplied by up to 128 beside a sum of products."""


def _zeros(node: Node) -> Array:
    """The zero points of a DequantizeLinear of weights, one or one for each channel."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return np.zeros(1, np.int64) if zero is None else np.atleast_1d(zero.array).astype(np.int64)


def _unfit_weights(dw: Node, axis: int) -> str:
    """Why weights are not int8 with one scale, or one for each place along ``axis``; empty if they
    are.
    """
    w, scale = dw.given[0], dw.given[1]
    if any(v.const is None for v in dw.given):
        return "scales or zero points of its weights are computed: make them constants"
    if dw.attrs.block_size:
        return "its weights have a scale for each block: give them one for each output channel"
    if w.spec.dtype not in (DType.INT8, DType.UINT8):
        return f"its weights are {w.spec.dtype.value}, not int8 or uint8: give them 8 bits"
    if dw.attrs.axis % w.spec.rank != axis and scale.array.size != 1:
        at = dw.attrs.axis % w.spec.rank
        return f"its weights have scales along axis {at}, and output channels along {axis}"
    if math.prod(w.array.shape[1:]) > LONGEST and _shifts(dw, axis).any():
        return "its weights less their zero points leave int8, in sums too long for int32"
    return ""


def _is_symmetric(dw: Node) -> bool:
    """Whether weights are what they are stored as: int8 about zero. Most are, so that nothing need
    be computed of them.
    """
    return dw.given[0].spec.dtype is DType.INT8 and not _zeros(dw).any()


def _whole_weights(dw: Node, axis: int) -> Array:
    w = dw.given[0]
    shape = [-1 if i == axis else 1 for i in range(w.spec.rank)]
    return w.array.astype(np.int64) - _zeros(dw).reshape(shape)


def _shifts(dw: Node, axis: int) -> Array:
    """By how much weights less their zero points leave int8, for each place along ``axis``: what is
    to be taken from them, and added again as so many sums of the activations.
    """
    if _is_symmetric(dw):
        return np.zeros(dw.given[0].array.shape[axis], np.int64)
    whole = _whole_weights(dw, axis)
    depth = tuple(i for i in range(whole.ndim) if i != axis)
    low, high = whole.min(axis=depth, initial=0), whole.max(axis=depth, initial=0)
    found: Array = np.maximum(high - 127, 0) + np.minimum(low + 128, 0)
    return found


def _weights(dw: Node, axis: int) -> tuple[Array, Array]:
    """Weights as int8, those shifts taken off, and their scales."""
    scale = np.atleast_1d(dw.given[1].array).astype(np.float32)
    if _is_symmetric(dw):
        return dw.given[0].array, scale
    whole = _whole_weights(dw, axis)
    shape = [-1 if i == axis else 1 for i in range(whole.ndim)]
    return (whole - _shifts(dw, axis).reshape(shape)).astype(np.int8), scale


def _constant(v: Value | None) -> Array | None:
    """A constant, or one behind a DequantizeLinear, as numbers."""
    if v is None or v.const is not None or v.producer is None:
        return None if v is None else v.const
    p = v.producer
    if p.layer.name != "DequantizeLinear" or any(x.const is None for x in p.given):
        return None
    inputs = [None if x is None else x.const for x in p.inputs]
    return p.layer.reference(p.attrs, *inputs)[0]


class _Sum:
    """The terms of an integer product: what joins the sum, and what is added after the factor."""

    def __init__(
        self, d: Node, weights: Array, scales: Array, axis: int, bias: Array | None
    ) -> None:
        self.factor = (np.float32(d.attrs.scale) * scales).astype(np.float32)
        depth = tuple(i for i in range(weights.ndim) if i != axis)
        start = -int(d.attrs.zero) * weights.sum(axis=depth, dtype=np.int64)
        whole = self._whole(bias)
        self.after = None if bias is None or whole is not None else bias.astype(np.float32)
        self.start = start if whole is None else start + whole

    def _whole(self, bias: Array | None) -> Array | None:
        """The bias in units of the factor, if it is whole there to within float32."""
        if bias is None:
            return None
        units = bias.astype(np.float64) / self.factor
        whole = np.rint(units)
        near = np.abs(units - whole) <= np.maximum(1e-3, 1e-6 * np.abs(whole))
        return (
            whole.astype(np.int64) if near.all() and np.abs(whole).max(initial=0) < MOST else None
        )

    @property
    def fits(self) -> bool | str:
        """Whether int32 holds it, or why not."""
        if not (np.isfinite(self.factor).all() and (self.factor > 0).all()):
            return "the product of its scales is not positive and finite"
        if int(np.abs(self.start).max(initial=0)) >= MOST:
            return f"its constant term leaves int32: {MOST} steps of the product of its scales"
        return True

    def finish(self, product: Op, spatial: int, shifted: Shifted | None) -> Op:
        """Template: the product as numbers. ``shifted``: what was taken off the weights."""
        shape = (-1, *(1,) * spatial)
        y = P.tactix.Mul(P.tactix.Cast(product, to=DType.FP32), literal(self.factor.reshape(shape)))
        if shifted is not None:
            units = (self.factor * shifted.by).astype(np.float32).reshape(shape)
            sums = P.tactix.Cast(shifted.sums, to=DType.FP32)
            y = P.tactix.Add(y, P.tactix.Mul(sums, literal(units)))
        return y if self.after is None else P.tactix.Add(y, literal(self.after.reshape(shape)))


@dataclass(frozen=True)
class Shifted:
    """``by``: what was taken off the weights of each channel; ``sums``: template of the sums of
    activations that it is to be added times.
    """

    by: Array
    sums: Op


def _unfit(root: Node, dw: Node, axis: int) -> str:
    """Why a product is none of bytes; empty if it may be one."""
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    others = [v.spec.dtype for v in (root.outputs[0], bias) if v is not None]
    if wrong := [t.value for t in others if t is not DType.FP32]:
        return f"it computes in {wrong[0]}, not float32"
    if bias is not None and _constant(bias) is None:
        return "its bias is computed: make it a constant"
    return _unfit_weights(dw, axis)


# -- convolution ---------------------------------------------------------------------------------


def _conv_sum(root: Node, d: Node, dw: Node) -> _Sum:
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    return _Sum(d, *_weights(dw, 0), 0, _constant(bias))


def _conv_when(root: Node, d: Node, dw: Node) -> bool | str:
    why = _unfit(root, dw, 0)
    if not why and root.attrs.group == 1 and _window_of(dw) > 1 and _shifts(dw, 0).any():
        why = FAR
    return why or _conv_sum(root, d, dw).fits


FAR = (
    "its weights less their zero points leave int8, and floats are faster than two convolutions: "
    "give them zero points near the middle"
)


def _window_of(dw: Node) -> int:
    """Places that a window of the weights reads."""
    return int(np.prod(dw.given[0].spec.shape[2:], dtype=np.int64))  # type: ignore[arg-type]


def moved_bytes(x: Value, moved: Node | None) -> Any:
    """Bytes moved as the numbers that they stand for were, if these were."""
    return x if moved is None else again(moved, [x, *moved.inputs[1:]])


def _conv(root: Node, x: Value, d: Node, dw: Node, moved: Node | None = None) -> Op:
    made, shifts, given = _conv_sum(root, d, dw), _shifts(dw, 0), moved_bytes(x, moved)
    weights, spatial = _weights(dw, 0)[0], root.outputs[0].spec.rank - 2
    product = _window(root, d, given, weights, made.start)
    shifted = None
    if shifts.any():
        ones = np.ones_like(weights)  # a channel each: epilogues read tensors of their own shape
        start = np.full(len(ones), -int(d.attrs.zero) * ones[0].size)
        shifted = Shifted(shifts, _window(root, d, given, ones, start))
    return made.finish(product, spatial, shifted)


def _window(root: Node, d: Node, x: Any, weights: Array, start: Array) -> Op:
    a = root.attrs
    fields = {name: getattr(a, name) for name in ("strides", "dilations", "pads", "group")}
    terms = literal(start.astype(np.int32))
    return P.tactix.IntegerConvolution(x, literal(weights), terms, pad_value=d.attrs.zero, **fields)


def _dequantized(net: Any, x: Value, scale: Any, zero: Any, axis: int = 0) -> Value:
    inputs = [x, net.add_constant(np.asarray(scale, np.float32)), net.add_constant(zero)]
    y: Value = net.add_layer("tactix.DequantizeLinear", inputs, axis=axis)[0]
    return y


def _conv_example(net: Any) -> None:
    rng = np.random.default_rng(5)
    x = net.add_input("x", "u8", ["n", 4, 5, 6])
    (y,) = net.add_layer("tactix.Dequantize", [x], zero=3, scale=0.5)
    scales = (0.25 + rng.random(6)).astype(np.float32)
    w = net.add_constant(rng.integers(-128, 128, (6, 2, 3, 3)).astype(np.int8))
    b = net.add_constant(rng.integers(-99, 99, 6).astype(np.int32))
    weights = _dequantized(net, w, scales, np.zeros(6, np.int8))
    bias = _dequantized(net, b, scales * np.float32(0.5), np.zeros(6, np.int32))
    net.mark_output(
        net.add_layer("tactix.Convolution", [y, weights, bias], group=2, pads=(1, 0, 1, 1))[0], "y"
    )


# -- transposed convolution ----------------------------------------------------------------------


def _phased_sum(root: Node, d: Node, dw: Node) -> tuple[_Sum, Array]:
    """A convolution with a channel for each phase of the strides: its sum, and its weights."""
    axes, (whole, scales) = phases_of(root) or [], _weights(dw, 1)
    count, weights = phase_count(axes), weights_of_phases(whole, 1, axes)
    bias = _constant(root.inputs[2] if len(root.inputs) > 2 else None)
    if scales.size > 1:
        scales = np.repeat(scales, count)
    if bias is not None:
        bias = np.repeat(bias, count)
    return _Sum(d, weights, scales, 0, bias), weights


def _transposed_when(root: Node, d: Node, dw: Node) -> bool | str:
    why = _unfit(root, dw, 1) or _unfit_phases(root)
    if not why and _shifts(dw, 1).any():
        why = FAR
    return why or _phased_sum(root, d, dw)[0].fits


def _unfit_phases(root: Node) -> str:
    """Why kernels of bytes do not take the convolution that its phases are; empty if they do."""
    x, axes = root.given[0].spec, phases_of(root)
    if root.attrs.group > 1 or x.rank > 4:
        return "its windows are computed in floats: kernels of bytes take no groups and no volumes"
    if axes is None or len(axes) < x.rank - 2 or not all(isinstance(s, int) for s in x.shape[1:]):
        return "its pads or sizes are not known, or pads cut more than taps reach"
    return ""


def _transposed(root: Node, x: Value, d: Node, dw: Node, moved: Node | None = None) -> Op:
    axes, (made, weights) = phases_of(root) or [], _phased_sum(root, d, dw)
    product = P.tactix.IntegerConvolution(
        moved_bytes(x, moved),
        literal(weights),
        literal(made.start.astype(np.int32)),
        pad_value=d.attrs.zero,
        dilations=tuple(p.dilation for p in axes),
        pads=(*(p.pads[0] for p in axes), *(p.pads[1] for p in axes)),
    )
    return side_by_side(made.finish(product, len(axes), None), root, axes)


def _transposed_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "u8", ["n", 4, 5, 6])
    (y,) = net.add_layer("tactix.Dequantize", [x], zero=3, scale=0.5)
    w = net.add_constant(rng.integers(-128, 128, (4, 3, 3, 4)).astype(np.int8))
    scales = (0.25 + rng.random(3)).astype(np.float32)
    weights = _dequantized(net, w, scales, np.zeros(3, np.int8), 1)
    bias = net.add_constant(rng.standard_normal(3, dtype=np.float32))
    fields = {"strides": (2, 3), "pads": (1, 0, 0, 1)}
    net.mark_output(net.add_layer("tactix.ConvTranspose", [y, weights, bias], **fields)[0], "y")


# -- matrices ------------------------------------------------------------------------------------


def is_turned(root: Node) -> bool:
    """Whether the weights are (n, k)."""
    return bool(root.layer.name == "Gemm" and root.attrs.transB)


def _unfit_matrix(root: Node, dw: Node) -> str:
    """Why a MatMul or Gemm is no product of bytes; empty if it may be one."""
    a = root.attrs
    if dw.given[0].spec.rank != 2:
        return "its weights are no matrix"
    if root.layer.name == "Gemm" and a.transA:
        return "it transposes its activations (transA): transpose them before they are quantised"
    if root.layer.name == "Gemm" and (a.alpha != 1 or a.beta != 1):
        return "its alpha or beta is not 1: put it into the scales"
    if root.given[0].spec.rank < 2:
        return "its activations are a vector: give them two axes"
    return _unfit(root, dw, 0 if is_turned(root) else 1) or _unfit_bias(root, dw)


def _unfit_bias(root: Node, dw: Node) -> str:
    """Why the bias is not one number or one for each column; empty if it is, or there is none."""
    known = _constant(root.inputs[2] if len(root.inputs) > 2 else None)
    n = dw.given[0].spec.shape[0 if is_turned(root) else 1]
    if known is None or (known.size in (1, n) and known.shape[-1:] in ((n,), (1,), ())):
        return ""
    return "its bias is more than one number for each column"


def _matrix(root: Node, dw: Node) -> tuple[Array, Array]:
    """Weights (k, n) and their scales."""
    whole, scales = _weights(dw, 0 if is_turned(root) else 1)
    return (np.ascontiguousarray(whole.T) if is_turned(root) else whole), scales


def _matrix_sum(root: Node, d: Node, dw: Node) -> _Sum:
    known = _constant(root.inputs[2] if len(root.inputs) > 2 else None)
    whole, scales = _matrix(root, dw)
    n = whole.shape[1]
    bias = None if known is None else np.broadcast_to(known.reshape(-1), (n,))
    return _Sum(d, whole, scales, 1, bias)


def _matrix_when(root: Node, d: Node, dw: Node) -> bool | str:
    return _unfit_matrix(root, dw) or _matrix_sum(root, d, dw).fits


def _product(root: Node, x: Value, d: Node, dw: Node, moved: Node | None = None) -> Op:
    made, (whole, _), given = _matrix_sum(root, d, dw), _matrix(root, dw), moved_bytes(x, moved)
    shifts = _shifts(dw, 0 if is_turned(root) else 1)
    product = P.tactix.IntegerMatMul(given, literal(whole), literal(made.start.astype(np.int32)))
    shifted = None
    if shifts.any():
        start = np.array([-int(d.attrs.zero) * len(whole)], np.int32)
        ones = literal(np.ones((len(whole), 1), np.int8))
        shifted = Shifted(shifts, P.tactix.IntegerMatMul(given, ones, literal(start)))
    return made.finish(product, 0, shifted)


def _matmul_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "i8", ["n", 3, 5])
    (y,) = net.add_layer("tactix.Dequantize", [x], zero=-3, scale=0.5)
    w = net.add_constant(rng.integers(-128, 128, (5, 6)).astype(np.int8))
    weights = _dequantized(
        net, w, (0.25 + rng.random(6)).astype(np.float32), np.zeros(6, np.int8), 1
    )
    net.mark_output(net.add_layer("tactix.MatMul", [y, weights])[0], "y")


def _gemm_example(net: Any) -> None:
    rng = np.random.default_rng(7)
    x = net.add_input("x", "u8", ["n", 5])
    (y,) = net.add_layer("tactix.Dequantize", [x], zero=128, scale=0.5)
    w = net.add_constant(rng.integers(0, 255, (6, 5)).astype(np.uint8))
    weights = _dequantized(net, w, np.float32(0.25), np.uint8(127))
    bias = net.add_constant(rng.standard_normal(6, dtype=np.float32))
    net.mark_output(net.add_layer("tactix.Gemm", [y, weights, bias], transB=True)[0], "y")


# -- two computed matrices -----------------------------------------------------------------------


def _computed_when(x: Value, y: Value, d: Node, e: Node, root: Node) -> bool | str:
    left, right = (v.spec for v in root.given)
    if x.const is not None or y.const is not None or min(left.rank, right.rank) < 2:
        return False
    if not isinstance(left.shape[-1], int) or left.shape[-1] > MOST_PRODUCTS:
        return "its sums may leave int32: their length is not known, or too large"
    factor = np.float32(d.attrs.scale) * np.float32(e.attrs.scale)
    return bool(np.isfinite(factor) and factor > 0) or "the product of its scales is not finite"


MOST_PRODUCTS = (1 << 31) // 255**2
"""Most terms of a sum of products of differences of two bytes, so that int32 holds it."""


def _computed(
    x: Value,
    y: Value,
    d: Node,
    e: Node,
    moved: Node | None = None,
    turned: Node | None = None,
) -> Op:
    factor = np.float32(d.attrs.scale) * np.float32(e.attrs.scale)
    zeros = (literal(np.array(n.attrs.zero, np.int32)) for n in (d, e))
    product = P.tactix.ByteMatMul(moved_bytes(x, moved), moved_bytes(y, turned), *zeros)
    return P.tactix.Mul(P.tactix.Cast(product, to=DType.FP32), literal(np.asarray(factor)))


def _computed_example(net: Any) -> None:
    (a,) = net.add_layer("tactix.Dequantize", [net.add_input("a", "u8", ["n", 3, 5])], zero=3)
    (b,) = net.add_layer("tactix.Dequantize", [net.add_input("b", "i8", ["n", 6, 5])], scale=0.5)
    (b,) = net.add_layer("tactix.Transpose", [b], perm=(0, 2, 1))
    net.mark_output(net.add_layer("tactix.MatMul", [a, b])[0], "y")


def _moves(dequantized: Any, name: str) -> tuple[Any, ...]:
    """What only moves the elements of a dequantised tensor."""
    layers = (P.tactix.Reshape, P.tactix.Transpose, P.tactix.Slice, P.tactix.Gather)
    return tuple(layer(dequantized) >> name for layer in layers)


_D, _E = P.tactix.Dequantize(var("x")) >> "d", P.tactix.Dequantize(var("y")) >> "e"
_X, _Y = any_of(_D, *_moves(_D, "moved")), any_of(_E, *_moves(_E, "turned"))
_W = P.tactix.DequantizeLinear(const("w"), const("s")) >> "dw"

_INTEGER_RULE = partial(Rule, benefit=60, numerics="reassociates", exclusive=False)

PRODUCT_RULES = (
    _INTEGER_RULE(
        "tactix.integer_convolution",
        P.tactix.Convolution(_X, _W),
        _conv,
        _conv_when,
        example=_conv_example,
    ),
    _INTEGER_RULE(
        "tactix.integer_matmul",
        P.tactix.MatMul(_X, _W),
        _product,
        _matrix_when,
        example=_matmul_example,
    ),
    _INTEGER_RULE(
        "tactix.integer_gemm",
        P.tactix.Gemm(_X, _W),
        _product,
        _matrix_when,
        example=_gemm_example,
    ),
)

PROCESSOR_RULES = (
    _INTEGER_RULE(
        "tactix.integer_transposed_convolution",
        P.tactix.ConvTranspose(_X, _W),
        _transposed,
        _transposed_when,
        example=_transposed_example,
        device="cpu",
    ),
    _INTEGER_RULE(
        "tactix.integer_computed_matmul",
        P.tactix.MatMul(_X, _Y),
        _computed,
        _computed_when,
        example=_computed_example,
        device="cpu",
    ),
)
