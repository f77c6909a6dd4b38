"""Fake quantisation to any number of bits, as Brevitas exports it (Pappalardo et al., "QONNX:
Representing Arbitrary-Precision Quantized Neural Networks", 2022): ``Quant`` (``IntQuant``),
``BipolarQuant`` and ``Trunc``.

``Quant`` of up to 8 bits becomes QuantizeLinear and DequantizeLinear of bytes, behind a Clip where
the integers are fewer than those of a byte; constants become integers at once. What no byte holds,
or where a scale is computed, stays arithmetic of floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context, Table
from tactix_onnx.weights import Array

CONVERTERS = Table()
DOMAIN = "qonnx.custom_op.general"
BREVITAS = "onnx.brevitas"
"""The domain before QONNX's own tools have cleaned a file up."""

MOST_BITS = 8
NEAREST = ("ROUND", "HALF_EVEN")
TOWARDS_ZERO = "ROUND_TO_ZERO"
"""As Brevitas calls DOWN."""
_FAR = {
    "UP": ("Ceil", 0.0),
    "DOWN": ("Floor", 0.0),
    "HALF_UP": ("Floor", 0.5),
    "HALF_DOWN": ("Ceil", -0.5),
}
"""Modes that round magnitudes: by which layer, behind what sum."""


@dataclass(frozen=True)
class Integers:
    """``low`` to ``high`` of ``dtype`` are used. ``scale`` and ``zero``: one, or one for each place
    along ``axis``.
    """

    low: int
    high: int
    dtype: DType
    scale: Array
    zero: Array
    axis: int

    @property
    def is_whole(self) -> bool:
        """Whether they are all that a byte has."""
        return self.high - self.low == 255


@CONVERTERS("Quant", domain=DOMAIN)
@CONVERTERS("IntQuant", domain=DOMAIN)
@CONVERTERS("Quant", domain=BREVITAS)
def quant(ctx: Context, node: Any) -> Value:
    """Inputs x, scale, zero point and number of bits; x rounded to these integers, as floats."""
    low, high = _ends(ctx, 3)
    mode = _mode(ctx, "ROUND")
    if (a := _integers(ctx, low, high)) is None or mode not in NEAREST:
        x, scale, zero = (ctx.tensor(i) for i in range(3))
        whole = two(ctx, "Add", two(ctx, "Div", x, scale), zero)
        whole = _rounded(ctx, two(ctx, "Min", two(ctx, "Max", whole, low), high), mode)
        return two(ctx, "Mul", two(ctx, "Sub", whole, zero), scale)
    x = ctx.tensor()
    step, zero = ctx.constant(a.scale), ctx.constant(a.zero.astype(a.dtype.numpy))
    if x.const is not None:
        shape = _along(a, x.spec.rank)
        integers = np.rint(x.array / a.scale.reshape(shape) + a.zero.reshape(shape))
        q = ctx.constant(np.clip(integers, a.low, a.high).astype(a.dtype.numpy))
    else:
        if not a.is_whole:
            ends = ((end - a.zero) * a.scale for end in (a.low, a.high))
            least, most = (ctx.constant(e.reshape(_along(a, x.spec.rank))) for e in ends)
            x = two(ctx, "Min", two(ctx, "Max", x, least), most)
        q = ctx.layer("tactix.QuantizeLinear", [x, step, zero], axis=a.axis, dtype=a.dtype)
    return ctx.layer("tactix.DequantizeLinear", [q, step, zero], axis=a.axis)


@CONVERTERS("BipolarQuant", domain=DOMAIN)
@CONVERTERS("BipolarQuant", domain=BREVITAS)
def bipolar(ctx: Context, node: Any) -> Value:
    """Inputs x and scale: the scale, or less than nothing of it where x is negative."""
    x, scale = ctx.tensor(), ctx.tensor(1)
    positive = ctx.layer("tactix.GreaterOrEqual", [x, ctx.scalar(0.0, x)])
    signs = ctx.layer("tactix.Where", [positive, ctx.scalar(1.0, x), ctx.scalar(-1.0, x)])
    return two(ctx, "Mul", signs, scale)


@CONVERTERS("Trunc", domain=DOMAIN)
@CONVERTERS("Trunc", domain=BREVITAS)
def trunc(ctx: Context, node: Any) -> Value:
    """Integers less their last bits. Inputs x, scale, zero point, bits before, bits after; in newer
    files scale, zero point and bits after.

    The older form leaves the scale as it was, so that it divides by the power of two, as what is
    summed by a pooling asks for.
    """
    x, scale, zero = (ctx.tensor(i) for i in range(3))
    mode = _mode(ctx, "FLOOR")
    whole = ctx.layer("tactix.Round", [two(ctx, "Add", two(ctx, "Div", x, scale), zero)])
    if len(node.input) == 5:
        power = np.exp2(_constant(ctx, 3) - _constant(ctx, 4))
        whole = _rounded(ctx, two(ctx, "Div", whole, power), mode)
        return two(ctx, "Mul", two(ctx, "Sub", whole, zero), scale)
    after = ctx.tensor(4)
    power = np.exp2(np.rint(np.log2(_constant(ctx, 4) / _constant(ctx, 1))))
    low, high = _ends(ctx, 6)
    whole = two(ctx, "Min", two(ctx, "Max", two(ctx, "Div", whole, power), low), high)
    whole = two(ctx, "Sub", _rounded(ctx, whole, mode), two(ctx, "Div", zero, power))
    return two(ctx, "Mul", whole, after)


def _mode(ctx: Context, default: str) -> str:
    """In capitals, as some tools write it and QONNX's own read any."""
    mode: str = ctx.attr("rounding_mode", default).upper()
    return "DOWN" if mode == TOWARDS_ZERO else mode


def _rounded(ctx: Context, x: Value, mode: str) -> Value:
    if mode in NEAREST:
        return ctx.layer("tactix.Round", [x])
    if mode in ("FLOOR", "CEIL"):
        return ctx.layer("tactix.Floor" if mode == "FLOOR" else "tactix.Ceil", [x])
    if mode not in _FAR:
        known = ", ".join([*NEAREST, "FLOOR", "CEIL", *_FAR])
        ctx.fail(f"it rounds by {mode}", do=f"Choose one of {known}")
    layer, more = _FAR[mode]
    size = ctx.layer(f"tactix.{layer}", [two(ctx, "Add", ctx.layer("tactix.Abs", [x]), more)])
    return two(ctx, "Mul", ctx.layer("tactix.Sign", [x]), size)


def _along(a: Integers, rank: int) -> tuple[int, ...]:
    """The shape in which scales broadcast."""
    return () if a.scale.ndim == 0 else tuple(-1 if i == a.axis else 1 for i in range(rank))


def _ends(ctx: Context, i: int) -> tuple[int, int]:
    """Lowest and highest integer of as many bits as input ``i`` says. Raises UnsupportedOperator
    for bits that are no whole number, or that only running tells.
    """
    signed, narrow = (
        bool(ctx.attr(name, default)) for name, default in (("signed", 1), ("narrow", 0))
    )
    bits = _constant(ctx, i)
    if bits.size != 1 or not 1 <= (count := float(bits.reshape(()))) <= 64 or count % 1:
        do = "Export one whole number of bits"
        ctx.fail(f"it has {bits.reshape(-1)[0]:g} bits, not 1 to 64", do=do)
    size = 1 << int(count)
    low = (-size // 2 if signed else 0) + (signed and narrow)
    return low, (size // 2 if signed else size) - 1 - (narrow and not signed)


def _integers(ctx: Context, low: int, high: int) -> Integers | None:
    """None where no byte holds them, or scales are computed, lie along several axes, or are none
    that integers have.
    """
    scale, zero = ctx.const(1), ctx.const(2)
    if high - low >= 1 << MOST_BITS or scale is None or zero is None:
        return None
    if not (scale > 0).all() or (zero % 1).any() or (found := _vectors(ctx, scale, zero)) is None:
        return None
    dtype = DType.INT8 if ctx.attr("signed", 1) else DType.UINT8
    axis, scale, zero = found
    return Integers(low, high, dtype, scale, zero, axis)


def _constant(ctx: Context, i: int) -> Array:
    found = ctx.const(i)
    if found is None:
        ctx.fail(f"its input {i} is only known by running", do="Export it as a constant")
    return found


def _vectors(ctx: Context, scale: Array, zero: Array) -> tuple[int, Array, Array] | None:
    """The axis of scales and zero points, and both as numbers or vectors along it; None if they lie
    along several.
    """
    if scale.size == zero.size == 1:
        return 0, scale.reshape(()).astype(np.float32), zero.reshape(())
    rank, both = ctx.spec().rank, np.broadcast_shapes(scale.shape, zero.shape)
    wide = [i + rank - len(both) for i, n in enumerate(both) if n != 1]
    if len(wide) != 1:
        return None
    vectors = (np.broadcast_to(v, both).reshape(-1) for v in (scale, zero))
    first, second = vectors
    return wide[0], first.astype(np.float32), second.copy()
