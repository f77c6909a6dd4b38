"""The operator Attention as one layer, where it is plain; its other forms are left to the
operator's function body.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tactix.base.dims import Dim, floordiv
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

_PAST, _LENGTHS, _SCORES = 4, 6, 3
"""Inputs of past keys and of valid lengths; output of the scores."""


@CONVERTERS("Attention")
def attention(ctx: Context, node: Any) -> Any:
    """q, k, v of rank 3 (batch, sequence, heads dim) or 4, mask?, past key and value?, causal?;
    heads may be shared.
    """
    ctx.ignore("softmax_precision", "qk_matmul_output_mode")
    rank = ctx.spec().rank
    scores = len(node.output) > _SCORES and node.output[_SCORES]
    causal, past = bool(ctx.attr("is_causal", 0)), ctx.input(_PAST) is not None
    if ctx.attr("softcap", 0.0) or ctx.input(_LENGTHS) is not None or scores or (causal and past):
        return NotImplemented
    heads, factor = [ctx.attr("q_num_heads"), *[ctx.attr("kv_num_heads")] * 2], ctx.attr("scale")
    if ctx.unread():
        return NotImplemented
    q, k, v = (
        split_heads(ctx, ctx.tensor(i), n) if rank == 3 else ctx.tensor(i)
        for i, n in enumerate(heads)
    )
    if past:
        k = ctx.layer("tactix.Concat", [ctx.tensor(_PAST), k], axis=2)
        v = ctx.layer("tactix.Concat", [ctx.tensor(_PAST + 1), v], axis=2)
    depth = q.spec.shape[3]
    if not isinstance(depth, int):
        return NotImplemented
    scale = 1 / math.sqrt(depth) if factor is None else factor
    mask = _mask(ctx, q, k, causal)
    y = ctx.layer(
        "tactix.Attention", [q, k, v, mask], scale=float(scale), nan_to_zero=mask is not None
    )
    return [joined_heads(ctx, y) if rank == 3 else y, *([k, v] if past else [])]


def split_heads(ctx: Context, x: Value, heads: int) -> Value:
    """(batch, sequence, heads dim) to (batch, heads, sequence, dim)."""
    batch, sequence, width = x.spec.shape
    split = ctx.reshape(x, (batch, sequence, heads, floordiv(width, heads)))
    return ctx.layer("tactix.Transpose", [split], perm=(0, 2, 1, 3))


def joined_heads(ctx: Context, x: Value) -> Value:
    batch, heads, sequence, depth = x.spec.shape
    turned = ctx.layer("tactix.Transpose", [x], perm=(0, 2, 1, 3))
    return ctx.reshape(turned, (batch, sequence, heads * depth))


def repeated(ctx: Context, x: Value, heads: Dim) -> Value:
    """Each head of keys or values for as many query heads as share it."""
    batch, own, sequence, depth = x.spec.shape
    if own == heads:
        return x
    each = floordiv(heads, own)
    wide = ctx.reshape(x, (batch, own, 1, sequence, depth))
    wide = ctx.layer("tactix.Expand", [wide], shape=(batch, own, each, sequence, depth))
    return ctx.reshape(wide, (batch, heads, sequence, depth))


def _mask(ctx: Context, q: Value, k: Value, causal: bool) -> Value | None:
    """What is added to the scores: -inf where a key must not be seen."""
    given = ctx.input(3)
    if given is not None and given.spec.dtype is DType.BOOL:
        given = _forbidden(ctx, given, q)
    if not causal:
        return given
    rows, columns = counting(ctx, q.spec.shape[2], 0, 2), counting(ctx, k.spec.shape[2], 1, 2)
    below = _forbidden(ctx, ctx.layer("tactix.LessOrEqual", [columns, rows]), q)
    return below if given is None else ctx.layer("tactix.Add", [given, below])


def _forbidden(ctx: Context, allowed: Value, like: Value) -> Value:
    zero, never = ctx.scalar(0.0, like), ctx.scalar(-np.inf, like)
    return ctx.layer("tactix.Where", [allowed, zero, never])
