"""Quantisation operators."""

from __future__ import annotations

from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.nn import convolution_fields
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()


def _where(ctx: Context) -> dict[str, Any]:
    """Axis and block of the scales, the axis counted from 0; one scale for all has none."""
    rank, axis = ctx.spec().rank, ctx.attr("axis", 1)
    single = ctx.spec(1).numel == 1
    return {
        "axis": 0 if single else axis_of(axis, rank, ctx.op),
        "block_size": ctx.attr("block_size", 0),
    }


@CONVERTERS("QuantizeLinear")
def quantize(ctx: Context, node: Any) -> Value:
    ctx.ignore("precision")
    zero, dtype = ctx.input(2), DType.UINT8
    if zero is not None:
        dtype = zero.spec.dtype
    if ctx.attr("output_dtype", 0):
        asked = ctx.dtype_attr("output_dtype", dtype)
        if zero is not None and asked is not dtype:
            what = f"output_dtype is {asked.value}, its zero point is {dtype.value}"
            ctx.fail(what, do="Give both one type")
        dtype = asked
    fields = {"dtype": dtype, "saturate": bool(ctx.attr("saturate", 1)), **_where(ctx)}
    return ctx.layer("tactix.QuantizeLinear", [ctx.tensor(), ctx.tensor(1), zero], **fields)


@CONVERTERS("DequantizeLinear")
def dequantize(ctx: Context, node: Any) -> Value:
    code = ctx.attr("output_dtype", 0)
    dtype = ctx.dtype_attr("output_dtype", DType.FP32) if code else ctx.spec(1).dtype
    x, zero = ctx.spec(), ctx.input(2)
    if zero is not None and zero.spec.dtype is not x.dtype:
        what = f"its input is {x.dtype.value}, its zero point is {zero.spec.dtype.value}"
        ctx.fail(what, do="Give both one type")
    return ctx.layer(
        "tactix.DequantizeLinear",
        [ctx.tensor(), ctx.tensor(1), zero],
        dtype=dtype,
        **_where(ctx),
    )


def _shifted(ctx: Context, x: Value, zero: Value | None, rows: bool = False) -> Value:
    """``x - zero`` in int32; a vector of zero points belongs to rows or columns."""
    wide = ctx.cast(x, DType.INT32)
    if zero is None:
        return wide
    if rows and zero.spec.rank == 1 and zero.spec.shape != (1,):
        zero = ctx.reshape(zero, (*zero.spec.shape, 1))
    return ctx.layer("tactix.Sub", [wide, ctx.cast(zero, DType.INT32)])


@CONVERTERS("MatMulInteger")
def matmul_integer(ctx: Context, node: Any) -> Value:
    a = _shifted(ctx, ctx.tensor(), ctx.input(2), rows=True)
    return ctx.layer("tactix.MatMul", [a, _shifted(ctx, ctx.tensor(1), ctx.input(3))])


@CONVERTERS("ConvInteger")
def conv_integer(ctx: Context, node: Any) -> Value:
    """Differences from the zero points in int32: pads then stand for the zero point."""
    x = _shifted(ctx, ctx.tensor(), ctx.input(2))
    zero = ctx.input(3)
    if zero is not None and zero.spec.rank == 1 and zero.spec.shape != (1,):
        zero = ctx.reshape(zero, (*zero.spec.shape, *(1,) * (ctx.spec(1).rank - 1)))
    w = _shifted(ctx, ctx.tensor(1), zero)
    return ctx.layer("tactix.Convolution", [x, w], **convolution_fields(ctx, 1))


def _float(ctx: Context, i: int, axis: int) -> Value:
    """Inputs i, i + 1, i + 2 are quantised tensor, scale and zero point: the tensor in float32."""
    x, scale, zero = (ctx.tensor(i + k) for k in range(3))
    fields = {"axis": axis % max(1, x.spec.rank), "dtype": scale.spec.dtype}
    return ctx.layer("tactix.DequantizeLinear", [x, scale, zero], **fields)


def _quantized(ctx: Context, y: Value, i: int) -> Value:
    """``y`` by the scale and zero point in inputs i and i + 1."""
    zero = ctx.tensor(i + 1)
    axis = max(0, y.spec.rank - 2)
    return ctx.layer(
        "tactix.QuantizeLinear", [y, ctx.tensor(i), zero], dtype=zero.spec.dtype, axis=axis
    )


@CONVERTERS("QLinearMatMul")
def quantized_matmul(ctx: Context, node: Any) -> Value:
    """Rows of a, columns of b and rows of y may have scales of their own."""
    y = ctx.layer("tactix.MatMul", [_float(ctx, 0, -2), _float(ctx, 3, -1)])
    return _quantized(ctx, y, 6)


@CONVERTERS("QLinearConv")
def quantized_conv(ctx: Context, node: Any) -> Value:
    """The bias is int32 in units of the product of both scales."""
    inputs = [_float(ctx, 0, 1), _float(ctx, 3, 0)]
    if ctx.input(8) is not None:
        unit = ctx.layer("tactix.Mul", [ctx.reshape(ctx.tensor(1), ()), ctx.tensor(4)])
        inputs.append(ctx.layer("tactix.Mul", [ctx.cast(ctx.tensor(8), DType.FP32), unit]))
    y = ctx.layer("tactix.Convolution", inputs, **convolution_fields(ctx, 3))
    return _quantized(ctx, y, 6)
