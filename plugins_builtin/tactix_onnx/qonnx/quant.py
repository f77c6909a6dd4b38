"""``Quant`` of the domain ``qonnx.custom_op.general``: fake quantisation to any number of bits, as
Brevitas exports it (Pappalardo et al., "QONNX: Representing Arbitrary-Precision Quantized Neural
Networks", 2022). Up to 8 bits become QuantizeLinear and DequantizeLinear of bytes, behind a Clip
where the integers are fewer than those of a byte; constants become integers at once.
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
MOST_BITS = 8
EXPORT = "Quantise to 8 bits or fewer, and export scales as constants"


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
def quant(ctx: Context, node: Any) -> Value:
    """Inputs x, scale, zero point and number of bits; x rounded to these integers, as floats."""
    a, x = _integers(ctx), ctx.tensor()
    scale, zero = ctx.constant(a.scale), ctx.constant(a.zero.astype(a.dtype.numpy))
    if x.const is not None:
        shape = _along(a, x.spec.rank)
        whole = np.rint(x.array / a.scale.reshape(shape) + a.zero.reshape(shape))
        q = ctx.constant(np.clip(whole, a.low, a.high).astype(a.dtype.numpy))
    else:
        if not a.is_whole:
            ends = ((end - a.zero) * a.scale for end in (a.low, a.high))
            low, high = (ctx.constant(e.reshape(_along(a, x.spec.rank))) for e in ends)
            x = two(ctx, "Min", two(ctx, "Max", x, low), high)
        q = ctx.layer("tactix.QuantizeLinear", [x, scale, zero], axis=a.axis, dtype=a.dtype)
    return ctx.layer("tactix.DequantizeLinear", [q, scale, zero], axis=a.axis)


def _along(a: Integers, rank: int) -> tuple[int, ...]:
    """The shape in which scales broadcast."""
    return () if a.scale.ndim == 0 else tuple(-1 if i == a.axis else 1 for i in range(rank))


def _integers(ctx: Context) -> Integers:
    """Raises UnsupportedOperator for more than 8 bits, bits and scales that only running tells, and
    modes of rounding other than to the nearest.
    """
    scale, zero, bits = (_constant(ctx, i) for i in (1, 2, 3))
    mode = ctx.attr("rounding_mode", "ROUND")
    signed, narrow = (
        bool(ctx.attr(name, default)) for name, default in (("signed", 1), ("narrow", 0))
    )
    if bits.size != 1 or not 1 <= (count := float(bits.reshape(()))) <= MOST_BITS or count % 1:
        ctx.fail(f"it has {bits.reshape(-1)[0]:g} bits, not 1 to {MOST_BITS}", do=EXPORT)
    if mode not in ("ROUND", "HALF_EVEN"):
        ctx.fail(f"it rounds by {mode}", do="Export with rounding to the nearest (ROUND)")
    if not (scale > 0).all() or (zero % 1).any():
        ctx.fail("its scale is not positive, or its zero point no integer", do=EXPORT)
    size = 1 << int(count)
    low = (-size // 2 if signed else 0) + (signed and narrow)
    high = (size // 2 if signed else size) - 1 - (narrow and not signed)
    dtype = DType.INT8 if signed else DType.UINT8
    axis, scale, zero = _vectors(ctx, scale, zero)
    return Integers(low, high, dtype, scale, zero, axis)


def _constant(ctx: Context, i: int) -> Array:
    found = ctx.const(i)
    return (
        ctx.fail(f"its input {i} is only known by running", do=EXPORT) if found is None else found
    )


def _vectors(ctx: Context, scale: Array, zero: Array) -> tuple[int, Array, Array]:
    """The axis of scales and zero points, and both as numbers or vectors along it."""
    if scale.size == zero.size == 1:
        return 0, scale.reshape(()).astype(np.float32), zero.reshape(())
    rank, both = ctx.spec().rank, np.broadcast_shapes(scale.shape, zero.shape)
    wide = [i + rank - len(both) for i, n in enumerate(both) if n != 1]
    if len(wide) != 1:
        ctx.fail("its scales lie along several axes", do="Use one scale, or one for each channel")
    vectors = (np.broadcast_to(v, both).reshape(-1) for v in (scale, zero))
    first, second = vectors
    return wide[0], first.astype(np.float32), second.copy()
