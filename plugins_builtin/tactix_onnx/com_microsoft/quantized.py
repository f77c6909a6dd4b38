"""Quantised operators of ``com.microsoft``: what they compute on the dequantised tensors, quantised
again.

Weights of few bits in blocks stay as they are stored; where columns of them change places, or
only running tells them, they are written out in the dtype that they are multiplied in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, ceildiv, evaluate, floordiv, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.nn import convolution_fields, window_fields
from tactix_onnx.ai_onnx.quantize import dequantize, quantize
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.com_microsoft.attention import packed_attention, refuse_shared_buffer
from tactix_onnx.com_microsoft.compositions import (
    MICROSOFT,
    embedded,
    first_channels,
    last_channels,
    refuse_same_pads,
)
from tactix_onnx.convert import Context, Table
from tactix_onnx.weights import Array
from tactix_ops.layers.common import axis_of
from tactix_ops.layers.few_bits import fields

CONVERTERS = Table()
INT8_LEVEL = 4
"""Of MatMulNBits' ``accuracy_level``: activations may be rounded to int8. Lower ones, for floats,
ask for no less than float32 gives.
"""

CONVERTERS("QuantizeLinear", domain=MICROSOFT)(quantize)
CONVERTERS("DequantizeLinear", domain=MICROSOFT)(dequantize)


def _float(ctx: Context, x: Value, scale: Value, zero: Value | None, axis: int = -1) -> Value:
    """``(x - zero) scale``; vectors of scales lie along ``axis``, tensors of them broadcast."""
    if scale.spec.rank > 1:
        return two(ctx, "Mul", ctx.cast(_shifted(ctx, x, zero), scale.spec.dtype), scale)
    fields = {"axis": axis % max(1, x.spec.rank), "dtype": scale.spec.dtype}
    return ctx.layer("tactix.DequantizeLinear", [x, scale, zero], **fields)


def _read(ctx: Context, i: int, axis: int = -1) -> Value:
    """Inputs i, i + 1 and perhaps i + 2 are a tensor, its scale and its zero point: the tensor in
    floats.
    """
    return _float(ctx, ctx.tensor(i), ctx.tensor(i + 1), ctx.input(i + 2), axis)


def _written(ctx: Context, y: Value, i: int, dtype: DType) -> Value:
    """``y`` by the scale and perhaps zero point in inputs i and i + 1, else of that dtype."""
    zero = ctx.input(i + 1)
    fields = {"axis": 0, "dtype": dtype if zero is None else zero.spec.dtype}
    return ctx.layer("tactix.QuantizeLinear", [y, ctx.tensor(i), zero], **fields)


# -- elements ------------------------------------------------------------------------------------


@CONVERTERS("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def quantized_arithmetic(ctx: Context, node: Any) -> Value:
    """Inputs a, b and y, each with scale and zero point?; operands broadcast."""
    y = two(ctx, ctx.op.removeprefix("QLinear"), _read(ctx, 0), _read(ctx, 3))
    return _written(ctx, y, 6, ctx.spec().dtype)


@CONVERTERS("QLinearSigmoid", domain=MICROSOFT)
def quantized_sigmoid(ctx: Context, node: Any) -> Value:
    return _written(ctx, ctx.layer("tactix.Sigmoid", [_read(ctx, 0)]), 3, ctx.spec().dtype)


@CONVERTERS("QLinearLeakyRelu", domain=MICROSOFT)
def quantized_leaky_relu(ctx: Context, node: Any) -> Value:
    y = ctx.layer("tactix.LeakyRelu", [_read(ctx, 0)], alpha=ctx.attr("alpha", 0.01))
    return _written(ctx, y, 3, ctx.spec().dtype)


@CONVERTERS("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(ctx: Context, node: Any) -> Value:
    """Attribute ``opset``: before 13 all axes from ``axis`` on count as one."""
    x, shape, flat = _read(ctx, 0), ctx.spec().shape, ctx.attr("opset", 13) < 13
    axis = axis_of(ctx.attr("axis", 1 if flat else -1), len(shape), ctx.op)
    if flat:
        x = ctx.reshape(x, (*shape[:axis], prod(shape[axis:])))
    y = ctx.reshape(ctx.layer("tactix.Softmax", [x], axis=axis), shape)
    return _written(ctx, y, 3, ctx.spec().dtype)


@CONVERTERS("QLinearConcat", domain=MICROSOFT)
def quantized_concat(ctx: Context, node: Any) -> Value:
    """Inputs scale and zero point of y, then each tensor with its own."""
    parts = [_read(ctx, i) for i in range(2, len(ctx.inputs), 3)]
    y = ctx.layer(
        "tactix.Concat", parts, axis=axis_of(ctx.attr("axis"), parts[0].spec.rank, ctx.op)
    )
    return _written(ctx, y, 0, ctx.spec(2).dtype)


@CONVERTERS("QLinearWhere", domain=MICROSOFT)
def quantized_where(ctx: Context, node: Any) -> Value:
    y = ctx.layer(
        "tactix.Where", [ctx.cast(ctx.tensor(), DType.BOOL), _read(ctx, 1), _read(ctx, 4)]
    )
    return _written(ctx, y, 7, ctx.spec(1).dtype)


# -- windows -------------------------------------------------------------------------------------


def _ordered(ctx: Context, x: Value, compute: Callable[[Value], Value]) -> Value:
    """Computed of (N, C, spatial...), from and to (N, spatial..., C) if ``channels_last``."""
    if not ctx.attr("channels_last", 0):
        return compute(x)
    refuse_same_pads(ctx)
    return last_channels(ctx, compute(first_channels(ctx, x)))


@CONVERTERS("QLinearAveragePool", domain=MICROSOFT)
def quantized_average_pool(ctx: Context, node: Any) -> Value:
    kernel = ctx.attr("kernel_shape")
    flags = {name: bool(ctx.attr(name, 0)) for name in ("ceil_mode", "count_include_pad")}

    def pooled(x: Value) -> Value:
        return ctx.layer(
            "tactix.AveragePool", [x], kernel_shape=kernel, **flags, **window_fields(ctx, kernel)
        )

    return _written(ctx, _ordered(ctx, _read(ctx, 0), pooled), 3, ctx.spec().dtype)


@CONVERTERS("QLinearGlobalAveragePool", domain=MICROSOFT)
def quantized_global_average_pool(ctx: Context, node: Any) -> Value:
    def pooled(x: Value) -> Value:
        return ctx.layer("tactix.GlobalAveragePool", [x])

    return _written(ctx, _ordered(ctx, _read(ctx, 0), pooled), 3, ctx.spec().dtype)


@CONVERTERS("QLinearConv", domain=MICROSOFT)
def quantized_conv(ctx: Context, node: Any) -> Value:
    """The bias is int32 in units of the product of both scales; weights are (M, C / group,
    kernel...).
    """
    more = [_read(ctx, 3, 0)]
    if ctx.input(8) is not None:
        unit = two(ctx, "Mul", ctx.reshape(ctx.tensor(1), ()), ctx.tensor(4))
        more.append(two(ctx, "Mul", ctx.cast(ctx.tensor(8), DType.FP32), unit))

    def convolved(x: Value) -> Value:
        return ctx.layer("tactix.Convolution", [x, *more], **convolution_fields(ctx, 3))

    return _written(ctx, _ordered(ctx, _read(ctx, 0), convolved), 6, ctx.spec().dtype)


# -- products ------------------------------------------------------------------------------------


def _plus(ctx: Context, y: Value, i: int) -> Value:
    return y if ctx.input(i) is None else two(ctx, "Add", y, ctx.tensor(i))


@CONVERTERS("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(ctx: Context, node: Any) -> Value:
    """Inputs a, b, their scales, their zero points?, bias?; columns of b may have scales of their
    own.
    """
    a, b = (_float(ctx, ctx.tensor(i), ctx.tensor(2 + i), ctx.input(4 + i)) for i in (0, 1))
    return _plus(ctx, ctx.layer("tactix.MatMul", [a, b]), 6)


@CONVERTERS("MatMulInteger16", domain=MICROSOFT)
def matmul_of_shorts(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.MatMul", [ctx.cast(ctx.tensor(i), DType.INT32) for i in (0, 1)])


@CONVERTERS("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(ctx: Context, node: Any) -> Value:
    """Inputs a, b, its scale, its zero point?, bias?; ``a`` goes through 8 bits by its own
    extremes. By a constant it is a product of integers.
    """
    kept, b = _rounded(ctx, ctx.tensor()), ctx.tensor(1)
    if b.const is None:
        floats = _float(ctx, kept.x, kept.scale, kept.zero)
        y = ctx.layer("tactix.MatMul", [floats, _float(ctx, b, ctx.tensor(2), ctx.input(3))])
        return _plus(ctx, y, 4)
    whole = [_shifted(ctx, kept.x, kept.zero), _shifted(ctx, b, ctx.input(3))]
    y = ctx.cast(ctx.layer("tactix.MatMul", whole), DType.FP32)
    return _plus(ctx, two(ctx, "Mul", y, two(ctx, "Mul", kept.scale, ctx.tensor(2))), 4)


def _shifted(ctx: Context, x: Value, zero: Value | None) -> Value:
    """``x - zero`` in int32."""
    wide = ctx.cast(x, DType.INT32)
    return wide if zero is None else two(ctx, "Sub", wide, ctx.cast(zero, DType.INT32))


@dataclass(frozen=True)
class Kept:
    """A tensor in bytes, and one scale and zero point of it."""

    x: Value
    scale: Value
    zero: Value


def _rounded(ctx: Context, x: Value) -> Kept:
    """``x`` as DynamicQuantizeLinear keeps it."""
    axes = tuple(range(x.spec.rank))
    low = two(ctx, "Min", ctx.layer("tactix.ReduceMin", [x], axes=axes, keepdims=False), 0)
    high = two(ctx, "Max", ctx.layer("tactix.ReduceMax", [x], axes=axes, keepdims=False), 0)
    span = two(ctx, "Div", two(ctx, "Sub", high, low), 255)
    scale = ctx.layer("tactix.Where", [two(ctx, "Equal", span, 0), ctx.scalar(1, span), span])
    place = two(ctx, "Div", ctx.layer("tactix.Neg", [low]), scale)
    zero = ctx.cast(
        ctx.layer("tactix.Clip", [ctx.layer("tactix.Round", [place])], min=0.0, max=255.0),
        DType.UINT8,
    )
    kept = ctx.layer("tactix.QuantizeLinear", [x, scale, zero], axis=0, dtype=DType.UINT8)
    return Kept(kept, scale, zero)


@CONVERTERS("QGemm", domain=MICROSOFT)
def quantized_gemm(ctx: Context, node: Any) -> Value:
    """Inputs a, b, each with scale and zero point, c? in units of ``alpha`` times both scales,
    scale and zero of y?.
    """
    alpha, flags = (
        ctx.attr("alpha", 1.0),
        {name: bool(ctx.attr(name, 0)) for name in ("transA", "transB")},
    )
    a, b = _read(ctx, 0), _read(ctx, 3, 0 if flags["transB"] else 1)
    c = ctx.input(6)
    if c is not None:
        unit = two(
            ctx, "Mul", two(ctx, "Mul", ctx.tensor(4), ctx.reshape(ctx.tensor(1), ())), alpha
        )
        c = two(ctx, "Mul", ctx.cast(c, DType.FP32), unit)
    y = ctx.layer("tactix.Gemm", [a, b, c], alpha=alpha, **flags)
    return y if ctx.input(7) is None else _written(ctx, y, 7, ctx.spec().dtype)


@CONVERTERS("QAttention", domain=MICROSOFT)
def quantized_attention(ctx: Context, node: Any) -> list[Value]:
    """Attention whose x and weights are quantised; its bias, cache and result are floats."""
    refuse_shared_buffer(ctx)
    x, weights = (_float(ctx, ctx.tensor(i), ctx.tensor(3 + i), ctx.input(6 + i)) for i in (0, 1))
    projected = two(ctx, "Add", ctx.layer("tactix.MatMul", [x, weights]), ctx.tensor(2))
    return packed_attention(ctx, projected, ctx.input(5), ctx.input(8), None)


# -- weights of few bits -------------------------------------------------------------------------


@CONVERTERS("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embedding(ctx: Context, node: Any) -> list[Value | None]:
    """Weights are inputs 2 to 6, their scales six inputs behind, zero points eleven."""

    def weight(i: int) -> Value:
        return _float(ctx, ctx.tensor(i), ctx.tensor(i + 6), ctx.input(i + 11))

    return embedded(ctx, node, weight, None)


@CONVERTERS("MatMulNBits", domain=MICROSOFT)
def matmul_bits(ctx: Context, node: Any) -> Value:
    """``a`` times (K, N) of 2, 4 or 8 bits in blocks along K; inputs a, bits, scales, zeros?,
    groups?, bias?.
    """
    k, n, bits, block = (ctx.attr(name) for name in ("K", "N", "bits", "block_size"))
    rounds = ctx.attr("accuracy_level", 0) == INT8_LEVEL
    if bits not in (2, 4, 8) or ctx.attr("weight_prepacked", 0):
        ctx.fail(
            f"weights of {bits} bits, or packed for one device, are not supported",
            do="Quantise to 2, 4 or 8 bits",
        )
    blocks = int(ceildiv(k, block))  # type: ignore[arg-type]
    if any(v is not None and v.const is None for v in ctx.inputs[1:4]):
        return _plus(ctx, _matmul_computed(ctx, (k, n, blocks, block), bits), 5)
    if ctx.input(4) is None:
        return _plus(ctx, _matmul_packed(ctx, (k, n, blocks, block), bits, rounds), 5)
    numbers = fields(ctx.array(1).reshape(n, -1), bits)[:, :k].astype(np.float32)
    group = ctx.array(4)[:k]
    scale = ctx.array(2).reshape(n, blocks).astype(np.float32)
    middle = np.full((n, blocks), 1 << bits - 1)
    zero = (middle if ctx.input(3) is None else _zeros(ctx, n, blocks, bits)).astype(np.float32)
    weights = ((numbers - zero[:, group]) * scale[:, group]).T
    a = ctx.tensor()
    y = ctx.layer(
        "tactix.MatMul", [a, ctx.constant(np.ascontiguousarray(weights).astype(a.spec.dtype.numpy))]
    )
    return _plus(ctx, y, 5)


def _matmul_packed(
    ctx: Context, sizes: tuple[int, int, int, int], bits: int, rounds: bool
) -> Value:
    """The product whose weights stay as they are stored; ``sizes``: K, N, blocks, their length;
    ``rounds``: ``a`` may be rounded to int8.
    """
    _, n, blocks, block = sizes
    inputs = [
        ctx.tensor(),
        ctx.reshape(ctx.tensor(1), (n, blocks, block * bits // 8)),
        ctx.reshape(ctx.tensor(2), (n, blocks)),
    ]
    if ctx.input(3) is not None:
        inputs.append(ctx.constant(_zeros(ctx, n, blocks, bits)))
    fields = {"bits": bits, "block_size": block, "int8_activations": rounds}
    return ctx.layer("tactix.FewBitsMatMul", inputs, **fields)


def _matmul_computed(ctx: Context, sizes: tuple[int, int, int, int], bits: int) -> Value:
    """The product where only running tells weights, scales or zero points; ``sizes``: K, N, blocks,
    their length.
    """
    k, n, blocks, block = sizes
    if ctx.input(4) is not None:
        ctx.fail(
            "it has groups, and weights that only running tells", do="Make the weights initializers"
        )
    numbers = ctx.reshape(
        ctx.cast(_unpacked(ctx, _by_rows(ctx, ctx.tensor(1), n), bits), DType.FP32),
        (n, blocks, block),
    )
    zero: Any = 1 << bits - 1
    if ctx.input(3) is not None:
        zero = ctx.tensor(3)
        if zero.spec.dtype is DType.UINT8:
            zero = _first(ctx, _unpacked(ctx, _by_rows(ctx, zero, n), bits), blocks)
        zero = ctx.cast(ctx.reshape(zero, (n, blocks, 1)), DType.FP32)
    scale = ctx.cast(ctx.reshape(ctx.tensor(2), (n, blocks, 1)), DType.FP32)
    rows = ctx.reshape(two(ctx, "Mul", two(ctx, "Sub", numbers, zero), scale), (n, blocks * block))
    weights = ctx.layer("tactix.Transpose", [_first(ctx, rows, k)], perm=(1, 0))
    return ctx.layer("tactix.MatMul", [ctx.tensor(), ctx.cast(weights, ctx.spec().dtype)])


def _by_rows(ctx: Context, x: Value, n: int) -> Value:
    """``x`` as a matrix of n rows."""
    return ctx.reshape(x, (n, floordiv(x.spec.numel, n)))


def _unpacked(ctx: Context, raw: Value, bits: int) -> Value:
    """Numbers of so many bits, one to a byte, of bytes that hold them along the last axis, the
    lowest bits first: as ``fields`` of what is not constant.
    """
    count = 8 // bits
    if count == 1:
        return raw
    *lead, size = raw.spec.shape
    shifted = two(
        ctx,
        "Div",
        ctx.reshape(raw, (*lead, size, 1)),
        [1 << bits * i for i in range(count)],
    )
    return ctx.reshape(two(ctx, "Mod", shifted, 1 << bits), (*lead, size * count))


def _first(ctx: Context, x: Value, size: Dim) -> Value:
    """The first elements along the last axis."""
    last = x.spec.rank - 1
    if x.spec.shape[last] == size:
        return x
    return ctx.layer("tactix.Slice", [x], begins=(0,), sizes=(size,), axes=(last,), steps=(1,))


def _zeros(ctx: Context, n: int, blocks: int, bits: int) -> Array:
    """Zero points (N, blocks), given as bytes packed as the weights, or as floats."""
    given = ctx.array(3)
    if given.dtype.kind == "u" and given.dtype.itemsize == 1:
        given = fields(given.reshape(n, -1), bits)[:, :blocks]
    return np.ascontiguousarray(given.reshape(n, blocks))


@CONVERTERS("GatherBlockQuantized", domain=MICROSOFT)
def gather_blocks(ctx: Context, node: Any) -> Value:
    """Rows of a quantised table, in floats; inputs table, indices, scales, zero points?. Bytes hold
    ``bits`` each.
    """
    data, rank, bits = ctx.tensor(), ctx.spec().rank, ctx.attr("bits", 4)
    rows, along = ctx.attr("gather_axis", 0) % rank, ctx.attr("quantize_axis", 1) % rank
    block, packed = ctx.attr("block_size", 128), data.spec.dtype is DType.UINT8
    if rows == along:
        what = f"its blocks lie along axis {along}, which is gathered, too"
        ctx.fail(what, do="Quantise along another axis")
    if not data.spec.dtype.is_int or not block:
        ctx.fail("a table of floats is not supported", do="Use 4 or 8 bits")
    if packed and (rows or bits not in (2, 4, 8)):
        ctx.fail(
            f"bytes of {bits} bits, gathered along axis {rows}, are not supported",
            do="Store 2, 4 or 8 bits, and gather along axis 0",
        )

    constant = all(v is None or v.const is not None for v in (ctx.input(2), ctx.input(3)))
    if packed and rank == 2 and constant and ctx.spec(2).dtype in (DType.FP32, DType.FP16):
        return ctx.cast(_rows_of_table(ctx, bits, block), ctx.spec(2).dtype)

    def picked(i: int) -> Value:
        return ctx.layer("tactix.Gather", [ctx.tensor(i), ctx.tensor(1)], axis=rows)

    axis = along if along < rows else along + ctx.spec(1).rank - 1
    numbers, scale = picked(0), picked(2)
    zero = None if ctx.input(3) is None else picked(3)
    if packed:
        numbers = _unpacked(ctx, numbers, bits)
        if zero is None:
            numbers = two(ctx, "Sub", ctx.cast(numbers, DType.INT16), 1 << bits - 1)
        else:
            zero = _first(ctx, _unpacked(ctx, zero, bits), scale.spec.shape[-1])
    fields = {"axis": axis, "block_size": block, "dtype": scale.spec.dtype}
    return ctx.layer("tactix.DequantizeLinear", [numbers, scale, zero], **fields)


def _rows_of_table(ctx: Context, bits: int, block: int) -> Value:
    """Rows of a packed matrix, whose bytes stay as they are, in float32."""
    table, indices = ctx.tensor(), ctx.tensor(1)
    scale = ctx.cast(ctx.tensor(2), DType.FP32)
    columns = evaluate(table.spec.shape[1], {}) * 8 // bits
    inputs = [table, indices, scale]
    if ctx.input(3) is not None:
        n, blocks = ctx.array(2).shape
        inputs.append(ctx.constant(_zeros(ctx, n, blocks, bits)))
    fields = {"bits": bits, "block_size": block, "columns": columns}
    return ctx.layer("tactix.FewBitsGather", inputs, **fields)


# -- recurrent -----------------------------------------------------------------------------------


@CONVERTERS("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_lstm(ctx: Context, node: Any) -> Any:
    """LSTM with weights (D, I, 4 H) and (D, H, 4 H) of 8 bits; x and the state are not rounded to 8
    bits on the way.
    """
    weights = [_gates(ctx, i, 8 + 2 * (i - 1)) for i in (1, 2)]
    names = ("direction", "activations", "activation_alpha", "activation_beta", "clip")
    fields = {name: ctx.attr(name) for name in names if ctx.has_attr(name)}
    more = {
        "hidden_size": ctx.attr("hidden_size", 0),
        "input_forget": bool(ctx.attr("input_forget", 0)),
    }
    return ctx.layers(
        "tactix.LSTM",
        [ctx.tensor(), *weights, *(ctx.input(i) for i in range(3, 8))],
        **fields,
        **more,
    )


def _gates(ctx: Context, i: int, at: int) -> Value:
    """Constant weights (D, K, 4 H) with scales and zero points (D,) or (D, 4 H), as floats (D, 4 H,
    K).
    """
    raw = ctx.array(i).astype(np.float32)
    scale, zero = (
        a.reshape(len(raw), 1, -1).astype(np.float32) for a in (ctx.array(at), ctx.array(at + 1))
    )
    return ctx.constant(np.ascontiguousarray(((raw - zero) * scale).swapaxes(1, 2)))
