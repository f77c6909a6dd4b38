"""What a model writes as DequantizeLinear of constants of few bits in front of a product, or of a
Gather of rows, becomes a layer that reads those bits; and scales that 16 bits hold take no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, const, literal, var
from tactix_ops.rules.facts import Array, again

T = P.tactix
FEW = {DType.INT4: 4, DType.UINT4: 4, DType.INT2: 2, DType.UINT2: 2, DType.INT8: 8, DType.UINT8: 8}
"""Bits of what may be dequantised in blocks."""
FLOATS = (DType.FP32, DType.FP16, DType.BF16)
WORD = 32
"""Bits that kernels read at once: blocks are whole words."""


@dataclass(frozen=True)
class ScaledBlocks:
    """Rows of constants with scales along them. ``packed``: bytes (n, columns bits / 8), the lowest
    bits first; ``scales``: (n, blocks) of floats; ``zeros``: (n, blocks) of u8, None for mid-range.
    """

    packed: Array
    scales: Array
    zeros: Array | None
    bits: int
    block: int


def unfit(table: Node, axis: int, made: tuple[DType, ...] = FLOATS) -> str:
    """Why a DequantizeLinear of a matrix has no few bits in blocks along ``axis``, of which it
    makes one of these dtypes; empty if it has.
    """
    w, attrs = table.given[0].spec, table.attrs
    if any(v.const is None for v in table.given) or w.rank != 2:
        return "it dequantises no constant matrix"
    if w.dtype not in FEW or table.given[1].spec.dtype not in made:
        return f"it reads {w.dtype.value}, with scales of {table.given[1].spec.dtype.value}"
    if attrs.dtype not in made:
        return f"it makes {attrs.dtype.value}"
    block = _block(table, axis)
    if not block or block * FEW[w.dtype] % WORD:
        return "its scales are not along the axis of the sum, in blocks of whole 32 bits"
    return ""


def _block(table: Node, axis: int) -> int:
    """Numbers that share a scale along ``axis``; all of them, of 4 bits or fewer, where each line
    has one scale; 0 where scales lie otherwise.
    """
    w, scale, attrs = table.given[0].spec, table.given[1].spec, table.attrs
    length, along = int(w.shape[axis]), attrs.axis % 2  # type: ignore[arg-type]
    if attrs.block_size:
        return attrs.block_size if along == axis and scale.rank == 2 else 0
    lines = scale.rank <= 1 and (along != axis or scale.numel == 1)
    return length if lines and FEW[w.dtype] < 8 else 0


def blocks_of(table: Node, axis: int) -> ScaledBlocks:
    """The rows, whose numbers lie along ``axis`` of the matrix that is dequantised."""
    w, scale, zero = (*table.inputs, None)[:3]
    assert w is not None
    assert scale is not None
    block, bits = _block(table, axis), FEW[w.spec.dtype]
    rows = _along(w.array, axis)
    count, lift = -(-rows.shape[1] // block), 0 if w.spec.dtype.value[0] == "u" else 1 << bits - 1
    scales = _of_lines(scale.array, axis, len(rows), count).astype(np.float32)
    zeros: Array | None = None
    if zero is not None and (zero.array.astype(np.int16) + lift != 1 << bits - 1).any():
        zeros = (_of_lines(zero.array, axis, len(rows), count).astype(np.int16) + lift).astype(
            np.uint8
        )
    elif zero is None and not lift:
        zeros = np.zeros(scales.shape, np.uint8)
    return ScaledBlocks(packed(rows, bits, lift), scales, zeros, bits, block)


def _along(matrix: Array, axis: int) -> Array:
    return matrix if axis else matrix.T


def _of_lines(x: Array, axis: int, lines: int, blocks: int) -> Array:
    """Scales or zero points (lines, blocks)."""
    if x.ndim == 2:
        return np.ascontiguousarray(_along(x, axis))
    return np.ascontiguousarray(np.broadcast_to(x.reshape(-1, 1), (lines, blocks)))


def packed(rows: Array, bits: int, lift: int) -> Array:
    """Numbers of so many bits, lifted by so much, as bytes, the lowest bits first."""
    whole = (rows.astype(np.int8 if lift else np.uint8).view(np.uint8) + np.uint8(lift)) & np.uint8(
        (1 << bits) - 1
    )
    each = 8 // bits
    padded = np.pad(whole, ((0, 0), (0, -whole.shape[1] % each)))
    out = padded[:, ::each].copy()
    for i in range(1, each):
        out |= padded[:, i::each] << np.uint8(bits * i)
    return np.ascontiguousarray(out)


# -- products ------------------------------------------------------------------------------------


def _product_when(root: Node, x: Value, table: Node, axis: int = 0) -> bool | str:
    if x.spec.dtype not in FLOATS or x.spec.rank < 2 or x.const is not None:
        return False
    why = unfit(table, axis)
    if not why and x.spec.shape[-1] != table.given[0].spec.shape[axis]:
        return False
    return why or True


def _product(root: Node, x: Value, table: Node) -> Op:
    return _few_bits(x, blocks_of(table, 0))


def _turned_when(root: Node, x: Value, table: Node) -> bool | str:
    return _product_when(root, x, table, 1)


def _turned(root: Node, x: Value, table: Node) -> Op:
    return _few_bits(x, blocks_of(table, 1))


def _few_bits(x: Value, b: ScaledBlocks) -> Op:
    count = b.scales.shape[1]
    width = count * b.block * b.bits // 8
    raw = np.pad(b.packed, ((0, 0), (0, width - b.packed.shape[1])))
    inputs: list[Any] = [x, literal(raw.reshape(len(raw), count, -1)), literal(b.scales)]
    if b.zeros is not None:
        inputs.append(literal(b.zeros))
    return T.FewBitsMatMul(*inputs, bits=b.bits, block_size=b.block)


def _gemm_when(root: Node, x: Value, table: Node) -> bool | str:
    a = root.attrs
    if a.transA or a.alpha != 1 or a.beta != 1 or x.spec.dtype not in FLOATS:
        return False
    return unfit(table, 1 if a.transB else 0) or True


def _gemm(root: Node, x: Value, table: Node) -> Op:
    y = _few_bits(x, blocks_of(table, 1 if root.attrs.transB else 0))
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    return y if bias is None else T.Add(y, bias)


def _int4(net: Any, shape: tuple[int, int], blocks: tuple[int, int], axis: int) -> Value:
    rng = np.random.default_rng(3)
    w = net.add_constant(rng.integers(-8, 8, shape).astype(ml_dtypes.int4))
    scale = net.add_constant(rng.uniform(0.1, 0.2, blocks).astype(np.float32))
    made: Value = net.add_layer("tactix.DequantizeLinear", [w, scale], axis=axis, block_size=16)[0]
    return made


def _product_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 40])
    net.mark_output(net.add_layer("tactix.MatMul", [x, _int4(net, (40, 6), (3, 6), 0)])[0], "y")


def _turned_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 40])
    (w,) = net.add_layer("tactix.Transpose", [_int4(net, (6, 40), (6, 3), 1)], perm=(1, 0))
    net.mark_output(net.add_layer("tactix.MatMul", [x, w])[0], "y")


def _gemm_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 40])
    b = net.add_constant(np.arange(6, dtype=np.float32))
    given = [x, _int4(net, (6, 40), (6, 3), 1), b]
    net.mark_output(net.add_layer("tactix.Gemm", given, transB=True)[0], "y")


# -- rows ----------------------------------------------------------------------------------------


def _rows_when(root: Node, table: Node) -> bool | str:
    return False if root.attrs.axis % 2 else unfit(table, 1, (DType.FP32,)) or True


def _rows(root: Node, indices: Value, table: Node) -> Op:
    b = blocks_of(table, 1)
    columns = table.given[0].array.shape[1]
    fields = {"columns": columns, "bits": b.bits, "block_size": b.block}
    more = () if b.zeros is None else (literal(b.zeros),)
    return T.FewBitsGather(literal(b.packed), indices, literal(b.scales), *more, **fields)


def _rows_example(net: Any) -> None:
    indices = net.add_input("i", "i64", ["n"])
    given = [_int4(net, (9, 40), (9, 3), 1), indices]
    net.mark_output(net.add_layer("tactix.Gather", given, axis=0)[0], "y")


# -- scales --------------------------------------------------------------------------------------


def _is_wide(s: Value) -> bool:
    return s.spec.dtype is DType.FP32


def _fits_half(s: Value) -> bool:
    with np.errstate(over="ignore"):
        return bool((s.array.astype(np.float16).astype(np.float32) == s.array).all())


def _narrow(root: Node, s: Value) -> Op:
    at = root.inputs.index(s)
    inputs: list[Any] = [*root.inputs]
    inputs[at] = literal(s.array.astype(np.float16))
    return again(root, inputs)


def _narrow_example(net: Any) -> None:
    rng = np.random.default_rng(12)
    raw = net.add_constant(rng.integers(0, 256, (5, 2, 16), np.uint8))
    scale = net.add_constant(rng.uniform(0.1, 0.2, (5, 2)).astype(np.float16).astype(np.float32))
    inputs = [net.add_input("x", "f32", ["n", 40]), raw, scale]
    net.mark_output(net.add_layer("tactix.FewBitsMatMul", inputs)[0], "y")


def _narrow_rows_example(net: Any) -> None:
    rng = np.random.default_rng(13)
    raw = net.add_constant(rng.integers(0, 256, (9, 20), np.uint8))
    scale = net.add_constant(rng.uniform(0.1, 0.2, (9, 2)).astype(np.float16).astype(np.float32))
    inputs = [raw, net.add_input("i", "i64", ["n"]), scale]
    net.mark_output(net.add_layer("tactix.FewBitsGather", inputs, columns=40)[0], "y")


_TABLE = T.DequantizeLinear(const("w"), const("s"), axis=ANY, block_size=ANY, dtype=ANY) >> "table"
AFTER_BYTES = 55
"""Products of bytes come first; constants are dequantised when these rules are through."""

RULES = (
    Rule(
        "tactix.few_bits_matmul",
        T.MatMul(var("x"), _TABLE),
        _product,
        _product_when,
        benefit=AFTER_BYTES,
        numerics="reassociates",
        exclusive=False,
        example=_product_example,
    ),
    Rule(
        "tactix.few_bits_turned",
        T.MatMul(var("x"), T.Transpose(_TABLE, perm=(1, 0))),
        _turned,
        _turned_when,
        benefit=AFTER_BYTES,
        numerics="reassociates",
        exclusive=False,
        example=_turned_example,
    ),
    Rule(
        "tactix.few_bits_gemm",
        T.Gemm(var("x"), _TABLE),
        _gemm,
        _gemm_when,
        benefit=AFTER_BYTES,
        numerics="reassociates",
        exclusive=False,
        example=_gemm_example,
    ),
    Rule(
        "tactix.few_bits_rows",
        T.Gather(_TABLE, var("indices")),
        _rows,
        _rows_when,
        benefit=AFTER_BYTES,
        exclusive=False,
        example=_rows_example,
    ),
    Rule(
        "tactix.scales_in_16_bits",
        T.FewBitsMatMul(var("x"), const("w"), const("s")),
        _narrow,
        _is_wide,
        fits=_fits_half,
        example=_narrow_example,
    ),
    Rule(
        "tactix.scales_of_rows_in_16_bits",
        T.FewBitsGather(const("w"), var("indices"), const("s")),
        _narrow,
        _is_wide,
        fits=_fits_half,
        example=_narrow_rows_example,
    ),
)
