"""Forms of the first operator sets: broadcasting on demand, from an axis on; types by name; images
alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.math import cast_to
from tactix_onnx.ai_onnx.shape import tile
from tactix_onnx.convert import Context, Table
from tactix_onnx.weights import dtype_of
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()

_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")


@CONVERTERS(*_BINARY)
def aligned(ctx: Context, node: Any) -> Value:
    """With ``broadcast``, the second operand's axes lie beside the first's from ``axis`` on."""
    a, b = ctx.tensor(), ctx.tensor(1)
    if ctx.attr("broadcast", 0) and ctx.has_attr("axis"):
        axis = axis_of(ctx.attr("axis"), max(1, a.spec.rank), ctx.op)
        b = ctx.reshape(b, (*b.spec.shape, *(1,) * (a.spec.rank - axis - b.spec.rank)))
    return ctx.layer(f"tactix.{ctx.op}", [a, b])


@CONVERTERS(*_BINARY, since=7)
def plain(ctx: Context, node: Any) -> Value:
    return ctx.layer(f"tactix.{ctx.op}", [ctx.tensor(), ctx.tensor(1)])


@CONVERTERS("PRelu")
def slope_per_channel(ctx: Context, node: Any) -> Value:
    x, slope = ctx.tensor(), ctx.tensor(1)
    if slope.spec.rank == 1 and slope.spec.shape != (1,) and x.spec.rank > 1:
        slope = ctx.reshape(slope, (*slope.spec.shape, *(1,) * (x.spec.rank - 2)))
    return ctx.layer("tactix.PRelu", [x, slope])


@CONVERTERS("PRelu", since=7)
def slope(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.PRelu", [ctx.tensor(), ctx.tensor(1)])


@CONVERTERS("Tile")
def tile_along(ctx: Context, node: Any) -> Value:
    """So many copies, input 1, along the axis that is input 2; bodies that onnx derives give the
    newer form.
    """
    if ctx.input(2) is None:
        return tile(ctx, node)
    x, (copies,), (axis,) = ctx.tensor(), ctx.need_ints(1, "tiles"), ctx.need_ints(2, "axis")
    at = axis_of(axis, x.spec.rank, ctx.op)
    return ctx.layer(
        "tactix.Tile", [x], repeats=tuple(copies if i == at else 1 for i in range(x.spec.rank))
    )


@CONVERTERS("Cast")
def cast(ctx: Context, node: Any) -> Value:
    """To a type that is named as in the enumeration of TensorProto; bodies that onnx derives give
    its number.
    """
    from onnx import TensorProto

    name = ctx.attr("to")
    if isinstance(name, int):
        return cast_to(ctx, ctx.tensor(), dtype_of(name, ctx.who))
    if name not in TensorProto.DataType.DESCRIPTOR.values_by_name:
        ctx.fail(f"there is no element type {name!r}")
    return cast_to(ctx, ctx.tensor(), dtype_of(TensorProto.DataType.Value(name), ctx.who))


@CONVERTERS("ImageScaler")
def image_scaler(ctx: Context, node: Any) -> Value:
    """Images (N, C, H, W) times a number, plus one for each channel. It was never more than an
    experiment of ONNX.
    """
    x = ctx.tensor()
    scaled = ctx.layer("tactix.Mul", [x, ctx.scalar(ctx.attr("scale", 1.0), x)])
    bias = ctx.attr("bias", ())
    if not bias:
        return scaled
    column = np.array(bias, x.spec.dtype.numpy).reshape(-1, 1, 1)
    return ctx.layer("tactix.Add", [scaled, ctx.constant(column)])


@CONVERTERS("Crop")
def crop(ctx: Context, node: Any) -> Value:
    """Images without a border (left, top, right, bottom), or of the size ``scale`` (height, width)
    behind it.
    """
    x, border, size = ctx.tensor(), ctx.attr("border", ()), ctx.attr("scale", ())
    if x.spec.rank != 4 or len(border) != 4 or len(size) not in (0, 2):
        ctx.fail(
            "it takes images (N, C, H, W), a border of 4 and a scale of 2 numbers, "
            f"not {x.spec}, {border}, {size}"
        )
    left, top, right, bottom = border
    height, width = x.spec.shape[2:]
    sizes = size or (height - top - bottom, width - left - right)
    return ctx.layer(
        "tactix.Slice", [x], begins=(top, left), sizes=sizes, axes=(2, 3), steps=(1, 1)
    )


@CONVERTERS("Gemm")
def gemm(ctx: Context, node: Any) -> Value:
    """``broadcast`` only allowed what is always allowed now."""
    ctx.ignore("broadcast")
    factors = {name: ctx.attr(name, 1.0) for name in ("alpha", "beta")}
    flags = {name: bool(ctx.attr(name, 0)) for name in ("transA", "transB")}
    return ctx.layer("tactix.Gemm", [ctx.tensor(), ctx.tensor(1), ctx.input(2)], **factors, **flags)
