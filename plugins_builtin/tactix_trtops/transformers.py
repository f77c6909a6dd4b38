"""Plugins of BERT and DeBERTa."""

from __future__ import annotations

import math

import numpy as np

from tactix.base.dims import floordiv
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_onnx.weights import Array
from tactix_trtops.operator import Operators, need_weights, number, weights

OPERATORS = Operators()

# -- disentangled attention ------------------------------------------------------------------------


@OPERATORS(
    "DisentangledAttention_TRT", versions=("1", "2"), fields={"span": "int", "factor": "float"}
)
def disentangled_attention(ctx: Context) -> Value:
    """Inputs scores of content with content (n, s, s), of content with positions and of positions
    with content (n, s, 2 `span`): their sum times `factor`, the last two where the distance of
    both tokens says.

    Distances beyond half the span share buckets that grow with their logarithm. P. He et al.,
    "DeBERTa", 2021; its version 2, which TensorRT has since 2022.
    """
    content, to_place, from_place = (ctx.tensor(i) for i in range(3))
    span, factor = ctx.attr("span"), ctx.attr("factor")
    if span < 4:
        ctx.fail(f"its span is {span}", do="Give a span of 4 or more")
    s, wide = content.spec.shape[1], number(ctx, to_place.spec.shape[2], "span")
    batch = content.spec.shape[0]
    rows, cols = counting(ctx, s, 0, 2), counting(ctx, s, 1, 2)
    limit = 8 * wide  # all buckets are those at the ends there
    distance = ctx.layer("tactix.Sub", [rows, cols])
    distance = two(ctx, "Min", two(ctx, "Max", distance, -limit), limit)
    table = ctx.constant(_buckets(span, wide, limit))
    bucket = ctx.layer("tactix.Gather", [table, two(ctx, "Add", distance, limit)], axis=0)
    total = content
    for scores, row in ((to_place, rows), (from_place, cols)):
        flat = ctx.reshape(scores, (batch, s * wide))
        at = ctx.layer("tactix.Add", [two(ctx, "Mul", row, wide), bucket])
        total = two(ctx, "Add", total, ctx.layer("tactix.Gather", [flat, at], axis=1))
    return two(ctx, "Mul", total, factor)


def _buckets(span: int, wide: int, limit: int) -> Array:
    """The column of every distance from ``-limit`` to ``limit``, computed in float32."""
    distance, middle = np.arange(-limit, limit + 1), span // 2
    first, f32 = np.log(np.float32(middle)), np.float32
    scale = f32(middle - 1) / (np.log(f32(wide - 1)) - first) * f32(1 - 1e-7)
    far = np.ceil((np.log(np.maximum(np.abs(distance), 1).astype(f32)) - first) * scale) + middle
    bucket = np.where(np.abs(distance) <= middle, distance, np.sign(distance) * far)
    return np.clip(bucket.astype(np.int64) + span, 0, 2 * span - 1)


# -- BERT ------------------------------------------------------------------------------------------


@OPERATORS("CustomGeluPluginDynamic", fields={"type_id": "int", "bias": "floats"})
def gelu(ctx: Context) -> Value:
    """GELU by its tanh formula, of x and a `bias` along the last axis that has more than one
    element.
    """
    ctx.ignore("type_id")
    x, bias = ctx.tensor(), weights(ctx, "bias")
    if bias is not None and bias.size:
        x = two(ctx, "Add", x, bias.reshape(-1, *(1,) * (x.spec.rank - 1 - _hidden_axis(x))))
    return ctx.layer("tactix.Gelu", [x], approximate="tanh")


def _hidden_axis(x: Value) -> int:
    """The axis of the hidden size: the last, or of five the one before two of one element."""
    return 2 if x.spec.rank == 5 else x.spec.rank - 1


SKIP = {"type_id": "int", "ld": "int", "beta": "floats", "gamma": "floats", "bias": "floats"}


@OPERATORS(
    "CustomSkipLayerNormPluginDynamic",
    versions=("1", "2", "3", "4", "5", "6", "7", "8"),
    fields=SKIP,
)
def skip_layer_normalization(ctx: Context) -> Value:
    """Inputs x and skip, (s, b, e, 1, 1) or (..., e): their sum and `bias`, normalized along e,
    times `gamma`, plus `beta`.
    """
    ctx.ignore("type_id", "ld")
    total, bias = two(ctx, "Add", ctx.tensor(), ctx.tensor(1)), weights(ctx, "bias")
    if str(ctx.attr("plugin_version", "1")) in ("3", "4", "7", "8"):
        ctx.fail("versions over (1, e, s, 1) are not supported", do="Export version 1 or 2")
    tail = (-1, *(1,) * (total.spec.rank - 1 - _hidden_axis(total)))
    if bias is not None and bias.size:
        total = two(ctx, "Add", total, bias.reshape(tail))
    return _normalized(ctx, total, "gamma", "beta")


def _normalized(ctx: Context, x: Value, gamma: str, beta: str) -> Value:
    axis, dtype = _hidden_axis(x), x.spec.dtype
    tail = (-1, *(1,) * (x.spec.rank - 1 - axis))
    parameters = [
        ctx.constant(need_weights(ctx, n).astype(dtype.numpy).reshape(tail)) for n in (gamma, beta)
    ]
    # TensorRT adds the least difference of numbers near 1 in the dtype.
    epsilon = float(np.finfo(np.float16 if dtype is DType.FP16 else np.float32).eps)
    return ctx.layer("tactix.LayerNormalization", [x, *parameters], axis=axis, epsilon=epsilon)


EMBEDDING = {
    "bert_embeddings_layernorm_beta": "floats", "bert_embeddings_layernorm_gamma": "floats",
    "bert_embeddings_word_embeddings": "floats", "bert_embeddings_token_type_embeddings": "floats",
    "bert_embeddings_position_embeddings": "floats", "output_fp16": "int", "full_mask": "int",
    "mha_type_id": "int",
}  # fmt: skip


@OPERATORS("CustomEmbLayerNormPluginDynamic", fields=EMBEDDING, outputs=2)
def embedding(ctx: Context) -> list[Value]:
    """Inputs tokens, segments and mask (b, s) int32. Their embeddings and those of positions, added
    and normalized (b, s, e, 1, 1); how many tokens of each sample the mask lets through, from the
    first (b, 1) int32.
    """
    ctx.ignore("full_mask", "mha_type_id")
    width = need_weights(ctx, "bert_embeddings_layernorm_beta").size
    dtype = DType.FP16 if ctx.attr("output_fp16", 0) else DType.FP32
    tokens, segments, mask = (ctx.tensor(i) for i in range(3))
    batch, s = tokens.spec.shape
    words, types, places = (
        ctx.constant(
            need_weights(ctx, f"bert_embeddings_{n}_embeddings")
            .reshape(-1, width)
            .astype(dtype.numpy)
        )
        for n in ("word", "token_type", "position")
    )
    found = [
        ctx.layer("tactix.Gather", [table, ids], axis=0)
        for table, ids in ((words, tokens), (types, segments))
    ]
    first = ctx.layer("tactix.Slice", [places], begins=(0,), sizes=(s,), axes=(0,), steps=(1,))
    total = two(ctx, "Add", two(ctx, "Add", *found), first)
    names = [f"bert_embeddings_layernorm_{n}" for n in ("gamma", "beta")]
    y = _normalized(ctx, total, *names)
    seen = ctx.layer("tactix.CumProd", [ctx.cast(mask, DType.INT32)], axis=1)
    lengths = ctx.layer("tactix.ReduceSum", [seen], axes=(1,), keepdims=True)
    return [ctx.reshape(y, (batch, s, width, 1, 1)), lengths]


@OPERATORS(
    "CustomQKVToContextPluginDynamic",
    fields={
        "type_id": "int", "hidden_size": "int", "num_heads": "int", "has_mask": "int",
        "dq_probs": "float",
    },
)  # fmt: skip
def attention(ctx: Context) -> Value:
    """Inputs q, k and v of each head beside each other (b, s, 3 e, 1, 1), and how many keys of each
    sample count (b,). Attention (b, s, e, 1, 1).
    """
    ctx.ignore("type_id", "hidden_size", "has_mask", "dq_probs")
    if str(ctx.attr("plugin_version", "1")) not in ("1", "4"):
        ctx.fail("versions of variable lengths are not supported", do="Export version 1")
    x, heads = ctx.tensor(), ctx.attr("num_heads")
    batch, s, wide = x.spec.shape[:3]
    size = number(ctx, floordiv(wide, 3 * heads), "head")
    parts = ctx.layer(
        "tactix.Transpose", [ctx.reshape(x, (batch, s, heads, 3, size))], perm=(3, 0, 2, 1, 4)
    )
    q, k, v = (
        ctx.reshape(p, (batch, heads, s, size))
        for p in ctx.layers("tactix.Split", [parts], axis=0, sizes=(1, 1, 1))
    )
    inputs = [q, k, v, *([_keys(ctx, ctx.tensor(1), x)] if ctx.input(1) is not None else [])]
    y = ctx.layer("tactix.Attention", inputs, scale=1 / math.sqrt(size))
    y = ctx.layer("tactix.Transpose", [y], perm=(0, 2, 1, 3))
    return ctx.reshape(y, (batch, s, heads * size, 1, 1))


def _keys(ctx: Context, lengths: Value, like: Value) -> Value:
    """What is added to scores (b, 1, 1, s): 0 for the first keys of a sample, else -inf."""
    batch, s = like.spec.shape[:2]
    ends = ctx.reshape(ctx.cast(lengths, DType.INT64), (batch, 1, 1, 1))
    keep = two(ctx, "Less", counting(ctx, s, 3, 4), ends)
    return ctx.layer("tactix.Where", [keep, ctx.scalar(0.0, like), ctx.scalar(-np.inf, like)])
