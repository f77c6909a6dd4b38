"""Operators of ``com.microsoft`` that exporters and optimizers of ONNX Runtime write, as compositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tactix.contracts.graph import Value
from tactix.words.dims import ceildiv, floordiv
from tactix.words.dtypes import DType
from tactix_builtin.onnx_importer.convert import Context, Table
from tactix_builtin.onnx_importer.ops_ml import two

CONVERTERS = Table()

MICROSOFT = "com.microsoft"


@CONVERTERS("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: Context, node: Any) -> Value:
    a, b = (
        _turned(ctx, ctx.tensor(i), bool(ctx.attr(f"trans{x}", 0)), bool(ctx.attr(f"transBatch{x}", 0)))
        for i, x in enumerate("AB")
    )
    y, alpha = ctx.layer("tactix.MatMul", [a, b]), ctx.attr("alpha", 1.0)
    return y if alpha == 1 else two(ctx, "Mul", y, alpha)


def _turned(ctx: Context, x: Value, last: bool, batch: bool) -> Value:
    """``batch`` moves the first axis before the last but one, then ``last`` swaps the last two."""
    perm = list(range(x.spec.rank))
    if batch:
        perm = [*perm[1:-1], 0, perm[-1]]
    if last and len(perm) > 1:
        perm[-2:] = perm[:-3:-1]
    return x if perm == sorted(perm) else ctx.layer("tactix.Transpose", [x], perm=tuple(perm))


@CONVERTERS("Gelu", domain=MICROSOFT)
def gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Gelu", [ctx.tensor()])


@CONVERTERS("BiasGelu", domain=MICROSOFT)
def bias_gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Gelu", [two(ctx, "Add", ctx.tensor(), ctx.tensor(1))])


@CONVERTERS("FastGelu", domain=MICROSOFT)
def fast_gelu(ctx: Context, node: Any) -> Value:
    x, bias = ctx.tensor(), ctx.input(1)
    return ctx.layer("tactix.Gelu", [x if bias is None else two(ctx, "Add", x, bias)], approximate="tanh")


@CONVERTERS("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Swish", [ctx.tensor()], alpha=ctx.attr("alpha", 1.702))


# -- normalisation -------------------------------------------------------------------------------------------------


@CONVERTERS("SimplifiedLayerNormalization")
@CONVERTERS("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_normalization(ctx: Context, node: Any) -> Any:
    """Division by the root mean square: the older name of RMSNormalization."""
    if any(node.output[1:]):
        ctx.fail("the inverse deviation as an output is not supported")
    ctx.ignore("stash_type")
    x = ctx.tensor()
    fields = {"axis": ctx.attr("axis", -1) % x.spec.rank, "epsilon": ctx.attr("epsilon", 1e-5)}
    return ctx.layer("tactix.RMSNormalization", [x, ctx.tensor(1)], **fields)


@CONVERTERS("SkipLayerNormalization", domain=MICROSOFT)
def skip_normalization(ctx: Context, node: Any) -> list[Value | None]:
    """Of ``x + skip + bias``; inputs x, skip, scale, offset?, bias?."""

    def normalized(total: Value, fields: dict[str, Any]) -> Value:
        return ctx.layer("tactix.LayerNormalization", [total, ctx.tensor(2), ctx.input(3)], **fields)

    return _skipped(ctx, node, ctx.input(4), normalized)


@CONVERTERS("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_normalization(ctx: Context, node: Any) -> list[Value | None]:
    """Of ``x + skip + bias``; inputs x, skip, scale, bias?."""

    def normalized(total: Value, fields: dict[str, Any]) -> Value:
        return ctx.layer("tactix.RMSNormalization", [total, ctx.tensor(2)], **fields)

    return _skipped(ctx, node, ctx.input(3), normalized)


def _skipped(
    ctx: Context, node: Any, bias: Value | None, normalized: Callable[[Value, dict[str, Any]], Value]
) -> list[Value | None]:
    """The fourth output is the sum itself; mean and deviation are not given."""
    if any(node.output[1:3]):
        ctx.fail("mean and deviation as outputs are not supported")
    total = two(ctx, "Add", ctx.tensor(), ctx.tensor(1))
    total = total if bias is None else two(ctx, "Add", total, bias)
    fields = {"axis": total.spec.rank - 1, "epsilon": ctx.attr("epsilon", 1e-12)}
    return [normalized(total, fields), None, None, total]


@CONVERTERS("EmbedLayerNormalization", domain=MICROSOFT)
def embedding(ctx: Context, node: Any) -> list[Value | None]:
    """Words, places and segments looked up, added and normalized; the mask's row sums; the sum itself."""
    ids, segments = ctx.tensor(), ctx.input(1)
    words = ctx.layer("tactix.Gather", [ctx.tensor(2), ids], axis=0)
    total = two(ctx, "Add", words, _places(ctx, ids))
    if segments is not None:
        total = two(ctx, "Add", total, ctx.layer("tactix.Gather", [ctx.tensor(4), segments], axis=0))
    fields = {"axis": 2, "epsilon": ctx.attr("epsilon", 1e-12)}
    y = ctx.layer("tactix.LayerNormalization", [total, ctx.tensor(5), ctx.tensor(6)], **fields)
    return [y, _lengths(ctx, node, ids), total]


def _places(ctx: Context, ids: Value) -> Value:
    """Rows of the table of places: those that are named, or the first ones."""
    table, named = ctx.tensor(3), ctx.input(8)
    if named is not None:
        return ctx.layer("tactix.Gather", [table, named], axis=0)
    cut = {"begins": (0,), "sizes": (ids.spec.shape[1],), "axes": (0,), "steps": (1,)}
    return ctx.layer("tactix.Slice", [table], **cut)


def _lengths(ctx: Context, node: Any, ids: Value) -> Value | None:
    if len(node.output) < 2 or not node.output[1]:
        ctx.ignore("mask_index_type")
        return None
    if ctx.attr("mask_index_type", 0) != 0 and ctx.input(7) is not None:
        return ctx.layer("tactix.ReduceSum", [ctx.tensor(7)], axes=(1,), keepdims=False)
    return ctx.layer("tactix.Fill", [], shape=(ids.spec.shape[0],), value=0, dtype=DType.INT32)


# -- rotation ------------------------------------------------------------------------------------------------------


@CONVERTERS("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: Context, node: Any) -> Value:
    """Pairs of each head turned by the angle of their place; inputs x, places, cosines, sines (length, half)."""
    ctx.ignore("is_packed_batching", "scale")
    x, heads, part = ctx.tensor(), ctx.attr("num_heads", 0), ctx.attr("rotary_embedding_dim", 0)
    flat, shape = x.spec.rank == 3, x.spec.shape
    half = ctx.spec(2).shape[1]
    if flat:
        size = floordiv(shape[2], heads) if heads else half * 2
        x = ctx.reshape(x, (*shape[:2], floordiv(shape[2], size), size))
    else:
        x = ctx.layer("tactix.Transpose", [x], perm=(0, 2, 1, 3))
    cosine, sine = (_angles(ctx, ctx.tensor(i), x) for i in (2, 3))
    width = part or half * 2
    turned = _rotated(ctx, _columns(ctx, x, 0, width), cosine, sine, bool(ctx.attr("interleaved", 0)))
    if width != x.spec.shape[3]:
        rest = _columns(ctx, x, width, x.spec.shape[3] - width)
        turned = ctx.layer("tactix.Concat", [turned, rest], axis=3)
    return ctx.reshape(turned, shape) if flat else ctx.layer("tactix.Transpose", [turned], perm=(0, 2, 1, 3))


def _angles(ctx: Context, table: Value, x: Value) -> Value:
    """Rows (batch, sequence, 1, half) of a table: at the places, or from the one place on."""
    batch, sequence = x.spec.shape[:2]
    places = ctx.tensor(1)
    if places.spec.numel == 1 and (batch, sequence) != (1, 1):
        steps = ctx.layer("tactix.Range", [ctx.constant(np.int64(0)), _size(ctx, sequence), ctx.constant(np.int64(1))])
        places = two(ctx, "Add", ctx.reshape(places, (1, 1)), ctx.reshape(steps, (1, sequence)))
    rows = ctx.layer("tactix.Gather", [table, places], axis=0)
    return ctx.reshape(rows, (*rows.spec.shape[:2], 1, rows.spec.shape[2]))


def _size(ctx: Context, d: Any) -> Value:
    if isinstance(d, int):
        return ctx.constant(np.int64(d))
    return ctx.layer("tactix.Dims", [], values=(d,), shape=(), dtype=DType.INT64)


def _columns(ctx: Context, x: Value, begin: Any, size: Any, step: int = 1) -> Value:
    """Elements along the last axis."""
    if (begin, size, step) == (0, x.spec.shape[-1], 1):
        return x
    fields = {"begins": (begin,), "sizes": (size,), "axes": (x.spec.rank - 1,), "steps": (step,)}
    return ctx.layer("tactix.Slice", [x], **fields)


def _rotated(ctx: Context, x: Value, cosine: Value, sine: Value, interleaved: bool) -> Value:
    half = floordiv(x.spec.shape[-1], 2)
    first, second = (_columns(ctx, x, i if interleaved else i * half, half, 2 if interleaved else 1) for i in (0, 1))
    real = two(ctx, "Sub", two(ctx, "Mul", first, cosine), two(ctx, "Mul", second, sine))
    imaginary = two(ctx, "Add", two(ctx, "Mul", first, sine), two(ctx, "Mul", second, cosine))
    if not interleaved:
        return ctx.layer("tactix.Concat", [real, imaginary], axis=3)
    pairs = [ctx.reshape(v, (*v.spec.shape, 1)) for v in (real, imaginary)]
    return ctx.reshape(ctx.layer("tactix.Concat", pairs, axis=4), x.spec.shape)


# -- quantised -----------------------------------------------------------------------------------------------------


@CONVERTERS("MatMulNBits", domain=MICROSOFT)
def matmul_bits(ctx: Context, node: Any) -> Value:
    """``a`` times a matrix (K, N) of 4 or 8 bits in blocks along K; written out in ``a``'s dtype at import."""
    k, n, bits, block = (ctx.attr(name) for name in ("K", "N", "bits", "block_size"))
    ctx.ignore("accuracy_level", "weight_prepacked")
    if bits not in (2, 4, 8) or ctx.input(4) is not None:
        ctx.fail(f"weights of {bits} bits, or with an order of groups, are not supported")
    blocks = int(ceildiv(k, block))  # type: ignore[arg-type]
    scale = ctx.array(2).reshape(n, blocks, 1).astype(np.float32)
    zero = _zero_points(ctx, n, blocks, bits)
    numbers = _fields(ctx.array(1).reshape(n, -1), bits)[:, : blocks * block].reshape(n, blocks, block)
    weights = ((numbers.astype(np.float32) - zero) * scale).reshape(n, -1)[:, :k].T
    a = ctx.tensor()
    y = ctx.layer("tactix.MatMul", [a, ctx.constant(np.ascontiguousarray(weights).astype(a.spec.dtype.numpy))])
    return y if ctx.input(5) is None else two(ctx, "Add", y, ctx.tensor(5))


def _zero_points(ctx: Context, n: int, blocks: int, bits: int) -> Any:
    if ctx.input(3) is None:
        return np.float32(1 << bits - 1)
    given = ctx.array(3)
    if given.dtype.kind == "u" and given.dtype.itemsize == 1:
        given = _fields(given.reshape(n, -1), bits)[:, :blocks]
    return given.reshape(n, blocks, 1).astype(np.float32)


def _fields(raw: Any, bits: int) -> Any:
    """Numbers of so many bits from bytes (rows, bytes), the lowest bits first."""
    parts = [raw >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(raw), -1)
