"""Attention of ``com.microsoft``: products of all heads, with ONNX Runtime's masks, caches and
rotations.

B samples, S queries, P past keys, T keys in all, N heads of H. Where the scores are only masked, it
is one Attention layer; caps of the scores and sinks of the heads are spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import Dim, compare, dmax, floordiv, symbol_name
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.attention import joined_heads, repeated, split_heads
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.com_microsoft.compositions import MICROSOFT
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()


def _heads(ctx: Context, name: str = "num_heads") -> int:
    found = ctx.attr(name)
    if not isinstance(found, int) or found < 1:
        ctx.fail(f"its {name} is {found}", do=f"Set {name}")
    return found


def _size(ctx: Context, d: Dim) -> Value:
    """A dim as an int64 number."""
    if isinstance(d, int):
        return ctx.constant(np.int64(d))
    return ctx.layer("tactix.Dims", [], values=(d,), shape=(), dtype=DType.INT64)


def _part(ctx: Context, x: Value, axis: int, begin: Dim, size: Dim, step: int = 1) -> Value:
    """Elements along an axis; ``x`` itself if they are all."""
    if (begin, size, step) == (0, x.spec.shape[axis], 1):
        return x
    axis %= x.spec.rank
    return ctx.layer(
        "tactix.Slice", [x], begins=(begin,), sizes=(size,), axes=(axis,), steps=(step,)
    )


def _parts(ctx: Context, x: Value, axis: int, sizes: Sequence[Dim]) -> tuple[Value, ...]:
    return ctx.layers("tactix.Split", [x], axis=axis, sizes=tuple(sizes))


def _turned(ctx: Context, x: Value) -> Value:
    """Sequence and heads swapped: (B, S, N, H) to (B, N, S, H), and back."""
    return ctx.layer("tactix.Transpose", [x], perm=(0, 2, 1, 3))


def _scale(ctx: Context, q: Value) -> float:
    """The factor of the products; 0 stands for the usual one."""
    given, depth = ctx.attr("scale", 0.0), q.spec.shape[3]
    if given:
        return float(given)
    if not isinstance(depth, int):
        ctx.fail(
            f"the size of its heads, {depth}, is only known by running",
            do="Give its inputs a fixed last dim",
        )
    return 1 / math.sqrt(depth)


# -- masks ---------------------------------------------------------------------------------------


def _chosen(ctx: Context, keep: Value, added: Value | None, never: float, like: Value) -> Value:
    """What is added to the scores: ``added`` (or 0) where a key is seen, ``never`` elsewhere."""
    return ctx.layer(
        "tactix.Where",
        [keep, ctx.scalar(0.0, like) if added is None else added, ctx.scalar(never, like)],
    )


def _seen(ctx: Context, mask: Value, batch: Dim, past: Dim, queries: Dim, keys: Dim) -> Value:
    """Whether a key counts, to broadcast to (B, N, S, T).

    ``mask``: lengths (B,), also with starts (2B,) or with running totals (3B + 2,); or 0 and 1 as
    (B, T), (B, S, T) or (B, 1, longest, longest).
    """
    shape = mask.spec.shape
    if len(shape) == 1:
        return _within(ctx, mask, batch, keys)
    if len(shape) == 4:
        mask = _part(ctx, _part(ctx, mask, 2, past, queries), 3, 0, keys)
    elif compare(shape[-1], keys) in ("<", ">"):
        ctx.fail(
            f"its mask {mask.spec} is not as long as its {keys} keys",
            do="Give a mask of past and new keys",
        )
    else:
        mask = ctx.reshape(mask, (shape[0], 1, *((1,) if len(shape) == 2 else shape[1:2]), keys))
    return mask if mask.spec.dtype is DType.BOOL else two(ctx, "Greater", mask, 0)


def _within(ctx: Context, mask: Value, batch: Dim, keys: Dim) -> Value:
    """Keys before the ends, the first B numbers, and from the starts on, the next B, if there are
    2B.
    """
    total = mask.spec.shape[0]
    if total not in (batch, batch * 2, batch * 3 + 2):
        ctx.fail(
            f"its mask has {total} numbers for {batch} samples",
            do="Name the mask's dim after the batch's",
        )
    column, wide = counting(ctx, keys, 3, 4), ctx.cast(mask, DType.INT64)
    ends = ctx.reshape(_part(ctx, wide, 0, 0, batch), (batch, 1, 1, 1))
    keep = two(ctx, "Less", column, ends)
    if total != batch * 2:
        return keep
    starts = ctx.reshape(_part(ctx, wide, 0, batch, batch), (batch, 1, 1, 1))
    return two(ctx, "And", keep, two(ctx, "GreaterOrEqual", column, starts))


def _added(
    ctx: Context, q: Value, mask: Value | None, bias: Value | None, past: Dim, keys: Dim
) -> Value | None:
    """Filter of masked keys, -inf for later ones if ``unidirectional``, and the scores' bias."""
    batch, _, queries, _ = q.spec.shape
    never, out = ctx.attr("mask_filter_value", -10000.0), None
    if mask is not None:
        out = _chosen(ctx, _seen(ctx, mask, batch, past, queries, keys), None, never, q)
    if ctx.attr("unidirectional", 0):
        if compare(past + queries, keys) != "==":
            ctx.fail(
                f"it is unidirectional with {queries} queries and {keys} keys",
                do="Give both one sequence dim",
            )
        row = counting(ctx, queries, 2, 4)
        row = row if past == 0 else two(ctx, "Add", row, _size(ctx, past))
        out = _chosen(ctx, two(ctx, "LessOrEqual", counting(ctx, keys, 3, 4), row), out, -np.inf, q)
    return bias if out is None else out if bias is None else two(ctx, "Add", out, bias)


# -- products ------------------------------------------------------------------------------------


def _scores(
    ctx: Context, q: Value, k: Value, scale: float, added: Value | None, cap: float = 0.0
) -> Value:
    scores = two(
        ctx,
        "Mul",
        ctx.layer("tactix.MatMul", [q, ctx.layer("tactix.Transpose", [k], perm=(0, 1, 3, 2))]),
        scale,
    )
    if cap:
        scores = two(ctx, "Mul", ctx.layer("tactix.Tanh", [two(ctx, "Div", scores, cap)]), cap)
    return scores if added is None else two(ctx, "Add", scores, added)


def _with_sink(ctx: Context, scores: Value, sink: Value) -> Value:
    """Weights of the keys beside one more key without a value, whose score is the head's own."""
    *lead, keys = scores.spec.shape
    more = ctx.layer(
        "tactix.Expand", [ctx.reshape(sink, (1, sink.spec.shape[0], 1, 1))], shape=(*lead, 1)
    )
    both = ctx.layer("tactix.Concat", [scores, more], axis=3)
    return _part(ctx, ctx.layer("tactix.Softmax", [both], axis=3), 3, 0, keys)


def packed_attention(
    ctx: Context, projected: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> list[Value]:
    """q, k, v beside each other (B, S, widths), cache (2, B, N, P, H): the result and the new
    cache.
    """
    heads, width = _heads(ctx), floordiv(projected.spec.shape[2], 3)
    apart = _parts(ctx, projected, 2, ctx.attr("qkv_hidden_sizes", (width,) * 3))
    q, k, v = (split_heads(ctx, x, heads) for x in apart)
    before: Dim = 0
    if past is not None:
        before = past.spec.shape[3]
        cached = [ctx.reshape(x, past.spec.shape[1:]) for x in _parts(ctx, past, 0, (1, 1))]
        k, v = (
            ctx.layer("tactix.Concat", [a, b], axis=2) for a, b in zip(cached, (k, v), strict=True)
        )
    added = _added(ctx, q, mask, bias, before, k.spec.shape[2])
    y = joined_heads(ctx, ctx.layer("tactix.Attention", [q, k, v, added], scale=_scale(ctx, q)))
    if len(ctx.node.output) < 2 or not ctx.node.output[1]:
        return [y]
    return [
        y,
        ctx.layer("tactix.Concat", [ctx.reshape(x, (1, *x.spec.shape)) for x in (k, v)], axis=0),
    ]


def refuse_shared_buffer(ctx: Context) -> None:
    """Raises UnsupportedOperator where the cache is written in place, or q and k are rotated by no
    given angles.
    """
    if ctx.attr("do_rotary", 0):
        ctx.fail(
            "rotation inside the operator is not supported", do="Export with RotaryEmbedding nodes"
        )
    if ctx.attr("past_present_share_buffer", 0):
        ctx.fail(
            "a cache that is written in place is not supported",
            do="Export with past and present apart",
        )


@CONVERTERS("Attention", domain=MICROSOFT)
def attention(ctx: Context, node: Any) -> list[Value]:
    """Inputs x, weights of q, k and v beside each other, their bias?, mask?, past?, bias of the
    scores?.
    """
    refuse_shared_buffer(ctx)
    ctx.ignore("rotary_embedding_dim")
    projected = ctx.layer("tactix.MatMul", [ctx.tensor(), ctx.tensor(1)])
    if ctx.input(2) is not None:
        projected = two(ctx, "Add", projected, ctx.tensor(2))
    return packed_attention(ctx, projected, *(ctx.input(i) for i in (3, 4, 5)))


# -- MultiHeadAttention --------------------------------------------------------------------------


@CONVERTERS("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(ctx: Context, node: Any) -> list[Value | None]:
    """Inputs q, k?, v?, their bias?, padding?, bias of the scores?, past k?, past v?; outputs y, k,
    v, weights.
    """
    if ctx.input(8) is not None or ctx.input(9) is not None:
        ctx.fail(
            "a cache that is written in place is not supported",
            do="Export with past and present apart",
        )
    q, k, v = _operands(ctx)
    before: Dim = 0
    if ctx.input(6) is not None:
        before = ctx.spec(6).shape[2]
        k, v = (
            ctx.layer("tactix.Concat", [ctx.tensor(6 + i), x], axis=2) for i, x in enumerate((k, v))
        )
    added = _added(ctx, q, ctx.input(4), ctx.input(5), before, k.spec.shape[2])
    if len(node.output) > 3 and node.output[3]:
        weights = ctx.layer("tactix.Softmax", [_scores(ctx, q, k, _scale(ctx, q), added)], axis=3)
        return [joined_heads(ctx, ctx.layer("tactix.MatMul", [weights, v])), k, v, weights]
    y = ctx.layer("tactix.Attention", [q, k, v, added], scale=_scale(ctx, q))
    return [joined_heads(ctx, y), k, v]


def _operands(ctx: Context) -> tuple[Value, ...]:
    """q, k, v as (B, N, S, H), with their bias; keys and values of this form have none."""
    heads = _heads(ctx)
    q, k, v = ctx.tensor(), ctx.input(1), ctx.input(2)
    if q.spec.rank == 5:
        apart = _unpacked(ctx, q, 3)
    elif k is not None and k.spec.rank == 5:
        apart = [_by_head(ctx, q, heads), *_unpacked(ctx, k, 2)]
    elif k is None or v is None:
        ctx.fail(
            "keys or values are missing", do="Give both, or pack them into one tensor of rank 5"
        )
    elif k.spec.rank == 4:
        query = _biased(ctx, [_by_head(ctx, q, heads)], q.spec.shape[2])
        return _turned(ctx, query[0]), k, v
    else:
        apart = [_by_head(ctx, x, heads) for x in (q, k, v)]
    return tuple(_turned(ctx, x) for x in _biased(ctx, apart, _width(apart[0])))


def _width(x: Value) -> Dim:
    return x.spec.shape[2] * x.spec.shape[3]


def _by_head(ctx: Context, x: Value, heads: int) -> Value:
    batch, sequence, width = x.spec.shape
    return ctx.reshape(x, (batch, sequence, heads, floordiv(width, heads)))


def _unpacked(ctx: Context, x: Value, count: int) -> list[Value]:
    """(B, S, N, count, H) as so many of (B, S, N, H)."""
    *lead, _, depth = x.spec.shape
    return [ctx.reshape(part, (*lead, depth)) for part in _parts(ctx, x, 3, (1,) * count)]


def _biased(ctx: Context, apart: list[Value], width: Dim) -> list[Value]:
    """Each (B, S, N, H) plus its part of the bias of q, k and v."""
    bias = ctx.input(3)
    if bias is None:
        return apart
    parts = [_part(ctx, bias, 0, i * width, _width(x)) for i, x in enumerate(apart)]
    return [
        two(ctx, "Add", x, ctx.reshape(p, x.spec.shape[2:]))
        for x, p in zip(apart, parts, strict=True)
    ]


# -- rotation ------------------------------------------------------------------------------------


@CONVERTERS("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(ctx: Context, node: Any) -> Value:
    """Inputs x (B, S, N H) or (B, N, S, H), places (1,) or (B, S), cosines and sines (length,
    half).
    """
    ctx.ignore("is_packed_batching", "scale")
    x, heads = ctx.tensor(), ctx.attr("num_heads", 0)
    flat, shape, half = x.spec.rank == 3, x.spec.shape, ctx.spec(2).shape[1]
    if ctx.attr("rotary_embedding_dim", 0) and flat and not heads:
        ctx.fail(
            "rotary_embedding_dim without num_heads does not tell the heads apart",
            do="Set num_heads",
        )
    if flat:
        size = floordiv(shape[2], heads) if heads else half * 2
        x = ctx.reshape(x, (*shape[:2], floordiv(shape[2], size), size))
    else:
        x = _turned(ctx, x)
    places = ctx.tensor(1)
    if places.spec.rank < 2:
        places = two(ctx, "Add", counting(ctx, x.spec.shape[1], 1, 2), ctx.reshape(places, (1, 1)))
    turned = _rotated(
        ctx, x, places, ctx.tensor(2), ctx.tensor(3), bool(ctx.attr("interleaved", 0))
    )
    return ctx.reshape(turned, shape) if flat else _turned(ctx, turned)


def _rotated(
    ctx: Context, x: Value, places: Value, cosines: Value, sines: Value, interleaved: bool
) -> Value:
    """Pairs of each head of x (B, S, N, H) turned by the angle of their place; elements past the
    pairs stay.
    """
    half, size = cosines.spec.shape[1], x.spec.shape[3]
    rows = [ctx.layer("tactix.Gather", [table, places], axis=0) for table in (cosines, sines)]
    cosine, sine = (ctx.reshape(r, (*r.spec.shape[:2], 1, half)) for r in rows)
    left = size - half * 2
    first, second, *rest = (
        (_part(ctx, x, 3, i, half, 2) for i in (0, 1))
        if interleaved
        else _parts(ctx, x, 3, (half, half, left) if left else (half, half))
    )
    real = two(ctx, "Sub", two(ctx, "Mul", first, cosine), two(ctx, "Mul", second, sine))
    imaginary = two(ctx, "Add", two(ctx, "Mul", first, sine), two(ctx, "Mul", second, cosine))
    if not interleaved:
        return ctx.layer("tactix.Concat", [real, imaginary, *rest], axis=3)
    pairs = [ctx.reshape(v, (*v.spec.shape, 1)) for v in (real, imaginary)]
    turned = ctx.reshape(ctx.layer("tactix.Concat", pairs, axis=4), (*x.spec.shape[:3], half * 2))
    if not left:
        return turned
    return ctx.layer("tactix.Concat", [turned, _part(ctx, x, 3, half * 2, left)], axis=3)


# -- GroupQueryAttention -------------------------------------------------------------------------


@CONVERTERS("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(ctx: Context, node: Any) -> list[Value]:
    """Heads of keys and values are shared by groups of query heads; each sample has a length of its
    own.

    Inputs q or q, k and v beside each other, k?, v?, past k?, past v?, lengths - 1, longest length,
    cosines?, sines?, places?, bias of the scores?, sinks?, ..., scales of the normalisation of q
    and k?.
    """
    _refuse_forms(ctx)
    q, k, v = _grouped(ctx)
    batch, queries = q.spec.shape[:2]
    before = _before(ctx, batch, queries)
    step = counting(ctx, queries, 1, 2)
    places = step if before is None else two(ctx, "Add", ctx.reshape(before, (batch, 1)), step)
    if ctx.attr("do_rotary", 0):
        fields = (
            ctx.input(9) or places,
            ctx.tensor(7),
            ctx.tensor(8),
            bool(ctx.attr("rotary_interleaved", 0)),
        )
        q, k = (_rotated(ctx, x, *fields) for x in (q, k))
    else:
        ctx.ignore("rotary_interleaved")
    q, k, v = (_turned(ctx, x) for x in (q, k, v))
    present = [_cached(ctx, i, x, before) for i, x in enumerate((k, v))]
    return [joined_heads(ctx, _grouped_product(ctx, q, present, places)), *present]


_QUANTIZED = ("k_quant_type", "v_quant_type")


def _refuse_forms(ctx: Context) -> None:
    """Raises UnsupportedOperator for a quantised cache, one that forgets, and scores as output."""
    ctx.ignore("kv_cache_bit_width")
    if (
        any(ctx.attr(name, "NONE") != "NONE" for name in _QUANTIZED)
        or ctx.input(12)
        or ctx.input(13)
    ):
        ctx.fail("a quantised cache is not supported", do="Export with a cache of floats")
    if ctx.attr("sliding_window_cache", 0):
        ctx.fail(
            "a cache of the window alone is not supported",
            do="Export with a cache of the whole sequence",
        )
    if ctx.attr("qk_output", 0):
        ctx.fail("the scores as an output are not supported", do="Export without qk_output")
    if ctx.attr("local_window_size", -1) > 0 and not ctx.attr("causal", 1):
        ctx.fail(
            "a window without causal order has no meaning",
            do="Set causal, or leave local_window_size out",
        )


def _grouped(ctx: Context) -> list[Value]:
    """q, k, v as (B, S, heads, H), q and k normalised per head if scales are given."""
    own, shared = _heads(ctx), _heads(ctx, "kv_num_heads")
    q, k, v = ctx.tensor(), ctx.input(1), ctx.input(2)
    if k is None or v is None:
        depth = floordiv(q.spec.shape[2], own + 2 * shared)
        q, k, v = _parts(ctx, q, 2, (own * depth, shared * depth, shared * depth))
    apart = [_by_head(ctx, x, n) for x, n in ((q, own), (k, shared), (v, shared))]
    epsilon = ctx.attr("qk_norm_epsilon", 1e-6)
    for i in (0, 1):
        scale = ctx.input(14 + i)
        if scale is not None:
            apart[i] = ctx.layer(
                "tactix.RMSNormalization", [apart[i], scale], axis=3, epsilon=epsilon
            )
    return apart


def _before(ctx: Context, batch: Dim, queries: Dim) -> Value | None:
    """Past keys of each sample (B,): its length without the new ones, 0 where a prompt is padded;
    None: none at all.
    """
    past = ctx.input(3)
    if past is None or past.spec.shape[2] == 0:
        return None
    lengths = ctx.cast(ctx.reshape(ctx.tensor(5), (batch,)), DType.INT64)
    spare = two(ctx, "Sub", two(ctx, "Add", lengths, 1), _size(ctx, queries))
    return ctx.layer("tactix.Max", [spare, ctx.constant(np.int64(0))])


def _cached(ctx: Context, i: int, new: Value, before: Value | None) -> Value:
    """Past keys or values with the new ones written after each sample's own, as long as needed."""
    if before is None:
        return new
    past = ctx.sized(ctx.tensor(3 + i), 3, new.spec.shape[3])
    own, known = past.spec.shape[2], ctx.known(6)
    more = 0 if known is None else dmax(own, known[0]) - own
    if known is None and _is_longer(ctx, 1 + i, own):
        past = _lengthened(ctx, past)
    elif more != 0:
        past = ctx.layer("tactix.Pad", [past], pads=(0, 0, 0, 0, 0, 0, more, 0))
    return ctx.layer("tactix.TensorScatter", [past, new, before], axis=2)


CACHE_RANK = 4
"""(B, heads, keys, H)."""


def _is_longer(ctx: Context, output: int, own: Dim) -> bool:
    """Whether the model declares that the cache which comes out has another length than the one
    that goes in. Elsewhere it is the caller's buffer, and long enough.
    """
    if len(ctx.node.output) <= output:
        return False
    symbols, sizes = ctx.declared_symbols(output), ctx.declared(output)
    if symbols is None or sizes is None or len(sizes) != CACHE_RANK:
        return False
    length = symbols[2] or sizes[2]
    return length not in (None, own, symbol_name(own))


def _lengthened(ctx: Context, past: Value) -> Value:
    """The cache with room for as many keys as only running tells, if it has none for them."""
    total = ctx.cast(ctx.reshape(ctx.tensor(6), (1,)), DType.INT64)
    spare = two(ctx, "Sub", total, ctx.reshape(_size(ctx, past.spec.shape[2]), (1,)))
    none = ctx.constant(np.zeros(1, np.int64))
    pads = ctx.layer("tactix.Concat", [none, ctx.layer("tactix.Max", [spare, none])], axis=0)
    given = [past, pads, None, ctx.constant(np.array([2], np.int64))]
    return ctx.layer("tactix.DynamicPad", given, symbol=ctx.symbol())


def _grouped_product(ctx: Context, q: Value, present: list[Value], places: Value) -> Value:
    batch, heads, queries, _ = q.spec.shape
    known = ctx.known(6)
    if ctx.input(10) is not None and known is None and ctx.input(3) is not None:
        ctx.fail(
            "its total_sequence_length is only known by running",
            do="Compute it from the shape of an input",
        )
    keys = present[0].spec.shape[2] if known is None or ctx.input(3) is None else known[0]
    k, v = (_part(ctx, x, 2, 0, keys) for x in present)
    added = _chosen(ctx, _visible(ctx, places, batch, queries, keys), ctx.input(10), -np.inf, q)
    cap, sink = ctx.attr("softcap", 0.0), ctx.input(11)
    if ctx.attr("smooth_softmax", 0) > 0 and sink is None:
        sink = ctx.constant(np.zeros(heads, q.spec.dtype.numpy))
    if not cap and sink is None:
        return ctx.layer("tactix.Attention", [q, k, v, added], scale=_scale(ctx, q))
    k, v = (repeated(ctx, x, heads) for x in (k, v))
    scores = _scores(ctx, q, k, _scale(ctx, q), added, cap)
    weights = (
        ctx.layer("tactix.Softmax", [scores], axis=3)
        if sink is None
        else _with_sink(ctx, scores, sink)
    )
    return ctx.layer("tactix.MatMul", [weights, v])


def _visible(ctx: Context, places: Value, batch: Dim, queries: Dim, keys: Dim) -> Value:
    """Keys up to the query's own place, no further back than the window; all of the sample's if not
    causal.
    """
    column = counting(ctx, keys, 3, 4)
    if not ctx.attr("causal", 1):
        lengths = ctx.reshape(ctx.cast(ctx.tensor(5), DType.INT64), (batch, 1, 1, 1))
        return two(ctx, "LessOrEqual", column, lengths)
    row = ctx.reshape(places, (places.spec.shape[0], 1, queries, 1))
    keep, window = two(ctx, "LessOrEqual", column, row), ctx.attr("local_window_size", -1)
    if window <= 0:
        return keep
    return two(ctx, "And", keep, two(ctx, "Greater", column, two(ctx, "Sub", row, window)))
