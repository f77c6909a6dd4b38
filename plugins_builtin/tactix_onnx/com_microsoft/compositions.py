"""Operators of ``com.microsoft`` that exporters and optimizers of ONNX Runtime write, as
compositions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tactix.base.dims import floordiv
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.generate import arange
from tactix_onnx.ai_onnx.index import triangle
from tactix_onnx.ai_onnx.nn import (
    convolution_fields,
    inverse_root_mean_square,
    moments,
    window_fields,
)
from tactix_onnx.ai_onnx.shape import pad
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()

MICROSOFT = "com.microsoft"


# -- products ------------------------------------------------------------------------------------


@CONVERTERS("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(ctx: Context, node: Any) -> Value:
    a, b = (
        _turned(
            ctx, ctx.tensor(i), bool(ctx.attr(f"trans{x}", 0)), bool(ctx.attr(f"transBatch{x}", 0))
        )
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


@CONVERTERS("FusedMatMulActivation", domain=MICROSOFT)
def matmul_with_activation(ctx: Context, node: Any) -> Value:
    return _activated(ctx, fused_matmul(ctx, node), _named_factors(ctx))


@CONVERTERS("FusedGemm", domain=MICROSOFT)
def gemm_with_activation(ctx: Context, node: Any) -> Value:
    factors = {name: ctx.attr(name, 1.0) for name in ("alpha", "beta")}
    flags = {name: bool(ctx.attr(name, 0)) for name in ("transA", "transB")}
    y = ctx.layer("tactix.Gemm", [ctx.tensor(), ctx.tensor(1), ctx.input(2)], **factors, **flags)
    return _activated(ctx, y, _named_factors(ctx))


_FACTORS: dict[str, tuple[str, ...]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "Softplus": (), "Softsign": (), "HardSwish": (),
    "Gelu": (), "LeakyRelu": ("alpha",), "ThresholdedRelu": ("alpha",), "Elu": ("alpha",),
    "Celu": ("alpha",), "Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}  # fmt: skip
"""Activations that products and convolutions have, each a layer of that name, and its factors in
order.
"""


def _named_factors(ctx: Context) -> dict[str, float]:
    """``activation_alpha`` and the like, where the model gives them."""
    ctx.ignore("activation_axis")
    names = [n for n in ("alpha", "beta", "gamma") if ctx.has_attr(f"activation_{n}")]
    return {n: float(ctx.attr(f"activation_{n}")) for n in names}


def _activated(ctx: Context, y: Value, factors: dict[str, float]) -> Value:
    """``y`` through the node's ``activation``; factors it does not take are not for it."""
    name = ctx.attr("activation", "")
    if not name:
        return y
    if name not in _FACTORS:
        ctx.fail(
            f"its activation {name!r} is not supported", do=f"There are: {', '.join(_FACTORS)}"
        )
    return ctx.layer(
        f"tactix.{name}", [y], **{k: v for k, v in factors.items() if k in _FACTORS[name]}
    )


# -- convolution and pooling ---------------------------------------------------------------------


def first_channels(ctx: Context, x: Value) -> Value:
    """(N, spatial..., C) as (N, C, spatial...)."""
    rank = x.spec.rank
    return ctx.layer("tactix.Transpose", [x], perm=(0, rank - 1, *range(1, rank - 1)))


def last_channels(ctx: Context, x: Value) -> Value:
    """(N, C, spatial...) as (N, spatial..., C)."""
    return ctx.layer("tactix.Transpose", [x], perm=(0, *range(2, x.spec.rank), 1))


def refuse_same_pads(ctx: Context) -> None:
    """Raises UnsupportedOperator for pads that follow from sizes, which are elsewhere with channels
    last.
    """
    if ctx.attr("auto_pad", "NOTSET").startswith("SAME"):
        ctx.fail("auto_pad is not supported with channels last", do="Write the pads out")


@CONVERTERS("FusedConv", domain=MICROSOFT)
def conv_with_activation(ctx: Context, node: Any) -> Value:
    """Inputs x, weights, bias?, and a tensor that is added before the activation?."""
    inputs = [ctx.tensor(), ctx.tensor(1), ctx.input(2)]
    y = ctx.layer("tactix.Convolution", inputs, **convolution_fields(ctx, 1))
    y = y if ctx.input(3) is None else two(ctx, "Add", y, ctx.tensor(3))
    return _activated(ctx, y, _listed_factors(ctx))


def _listed_factors(ctx: Context) -> dict[str, float]:
    """``activation_params`` in the order of the activation's factors."""
    given: Sequence[float] = ctx.attr("activation_params", ())
    return dict(zip(_FACTORS.get(ctx.attr("activation", ""), ()), map(float, given), strict=False))


@CONVERTERS("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(ctx: Context, node: Any) -> Value:
    """Channels last in x, y and what is added; the weights are as those of Conv."""
    refuse_same_pads(ctx)
    inputs = [first_channels(ctx, ctx.tensor()), ctx.tensor(1), ctx.input(2)]
    y = last_channels(ctx, ctx.layer("tactix.Convolution", inputs, **convolution_fields(ctx, 1)))
    y = y if ctx.input(3) is None else two(ctx, "Add", y, ctx.tensor(3))
    return _activated(ctx, y, _listed_factors(ctx))


@CONVERTERS("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(ctx: Context, node: Any) -> Value:
    refuse_same_pads(ctx)
    kernel = ctx.attr("kernel_shape")
    fields = {
        "kernel_shape": kernel,
        "ceil_mode": bool(ctx.attr("ceil_mode", 0)),
        **window_fields(ctx, kernel),
    }
    return last_channels(
        ctx, ctx.layer("tactix.MaxPool", [first_channels(ctx, ctx.tensor())], **fields)
    )


# -- activations ---------------------------------------------------------------------------------


@CONVERTERS("Gelu", domain=MICROSOFT)
def gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Gelu", [ctx.tensor()])


@CONVERTERS("BiasGelu", domain=MICROSOFT)
def bias_gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Gelu", [two(ctx, "Add", ctx.tensor(), ctx.tensor(1))])


@CONVERTERS("FastGelu", domain=MICROSOFT)
def fast_gelu(ctx: Context, node: Any) -> Value:
    x, bias = ctx.tensor(), ctx.input(1)
    return ctx.layer(
        "tactix.Gelu", [x if bias is None else two(ctx, "Add", x, bias)], approximate="tanh"
    )


@CONVERTERS("QuickGelu", domain=MICROSOFT)
def quick_gelu(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Swish", [ctx.tensor()], alpha=ctx.attr("alpha", 1.702))


@CONVERTERS("BiasSplitGelu", domain=MICROSOFT)
def gated_gelu(ctx: Context, node: Any) -> Value:
    """The left half of ``x + bias`` times Gelu of the right half."""
    total = two(ctx, "Add", ctx.tensor(), ctx.tensor(1))
    half = floordiv(total.spec.shape[-1], 2)
    left, right = ctx.layers("tactix.Split", [total], axis=total.spec.rank - 1, sizes=(half, half))
    return two(ctx, "Mul", left, ctx.layer("tactix.Gelu", [right]))


@CONVERTERS("GemmFastGelu", domain=MICROSOFT)
def matmul_with_gelu(ctx: Context, node: Any) -> Value:
    y = ctx.layer("tactix.MatMul", [ctx.tensor(), ctx.tensor(1)])
    y = y if ctx.input(2) is None else two(ctx, "Add", y, ctx.tensor(2))
    return ctx.layer("tactix.Gelu", [y], approximate="tanh")


@CONVERTERS("BiasAdd", domain=MICROSOFT)
def bias_and_residual(ctx: Context, node: Any) -> Value:
    return two(ctx, "Add", two(ctx, "Add", ctx.tensor(), ctx.tensor(1)), ctx.tensor(2))


# -- normalisation -------------------------------------------------------------------------------


@CONVERTERS("SimplifiedLayerNormalization")
@CONVERTERS("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_normalization(ctx: Context, node: Any) -> Any:
    """Division by the root mean square: the older name of RMSNormalization. Its inverse is the
    second output.
    """
    ctx.ignore("stash_type")
    x = ctx.tensor()
    axis, epsilon = axis_of(ctx.attr("axis", -1), x.spec.rank, ctx.op), ctx.attr("epsilon", 1e-5)
    y = ctx.layer("tactix.RMSNormalization", [x, ctx.tensor(1)], axis=axis, epsilon=epsilon)
    return [y, inverse_root_mean_square(ctx, x, axis, epsilon)] if any(node.output[1:]) else [y]


@CONVERTERS("SkipLayerNormalization", domain=MICROSOFT)
def skip_normalization(ctx: Context, node: Any) -> list[Value | None]:
    """Of ``x + skip + bias``; inputs x, skip, scale, offset?, bias?."""

    def normalized(total: Value, fields: dict[str, Any]) -> Value:
        return ctx.layer(
            "tactix.LayerNormalization", [total, ctx.tensor(2), ctx.input(3)], **fields
        )

    return _skipped(ctx, node, ctx.input(4), normalized, moments)


@CONVERTERS("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_normalization(ctx: Context, node: Any) -> list[Value | None]:
    """Of ``x + skip + bias``; inputs x, skip, scale, bias?."""

    def normalized(total: Value, fields: dict[str, Any]) -> Value:
        return ctx.layer("tactix.RMSNormalization", [total, ctx.tensor(2)], **fields)

    def measured(ctx: Context, total: Value, axis: int, epsilon: float) -> tuple[None, Value]:
        return None, inverse_root_mean_square(ctx, total, axis, epsilon)

    return _skipped(ctx, node, ctx.input(3), normalized, measured)


Measured = Callable[[Context, Value, int, float], tuple[Value | None, Value]]
"""Mean, if there is one, and inverse deviation of a value from an axis on, with an epsilon."""


def _skipped(
    ctx: Context,
    node: Any,
    bias: Value | None,
    normalized: Callable[[Value, dict[str, Any]], Value],
    measured: Measured,
) -> list[Value | None]:
    """Mean and inverse deviation are the second and third output, the sum itself is the fourth."""
    total = two(ctx, "Add", ctx.tensor(), ctx.tensor(1))
    total = total if bias is None else two(ctx, "Add", total, bias)
    fields = {"axis": total.spec.rank - 1, "epsilon": ctx.attr("epsilon", 1e-12)}
    facts = (
        measured(ctx, total, fields["axis"], fields["epsilon"])
        if any(node.output[1:3])
        else (None, None)
    )
    return [normalized(total, fields), *facts, total]


@CONVERTERS("EmbedLayerNormalization", domain=MICROSOFT)
def embedding(ctx: Context, node: Any) -> list[Value | None]:
    return embedded(ctx, node, ctx.tensor, ctx.input(8))


def embedded(
    ctx: Context, node: Any, weight: Callable[[int], Value], places: Value | None
) -> list[Value | None]:
    """Words, places and segments looked up, added and normalized; the mask's row sums; the sum
    itself. ``weight``: input 2 to 6 as floats. ``places``: those of the words, else the first ones.
    """
    ids, segments = ctx.tensor(), ctx.input(1)
    words = ctx.layer("tactix.Gather", [weight(2), ids], axis=0)
    total = two(ctx, "Add", words, _places(ctx, ids, weight(3), places))
    if segments is not None:
        total = two(ctx, "Add", total, ctx.layer("tactix.Gather", [weight(4), segments], axis=0))
    fields = {"axis": 2, "epsilon": ctx.attr("epsilon", 1e-12)}
    y = ctx.layer("tactix.LayerNormalization", [total, weight(5), weight(6)], **fields)
    return [y, _lengths(ctx, node, ids), total]


def _places(ctx: Context, ids: Value, table: Value, named: Value | None) -> Value:
    """Rows of the table of places."""
    if named is not None:
        return ctx.layer("tactix.Gather", [table, named], axis=0)
    cut = {"begins": (0,), "sizes": (ids.spec.shape[1],), "axes": (0,), "steps": (1,)}
    return ctx.layer("tactix.Slice", [table], **cut)


def _lengths(ctx: Context, node: Any, ids: Value) -> Value | None:
    """Words of each sample that the mask, 0 and 1, lets through; 0 without a mask."""
    ctx.ignore("mask_index_type")
    if len(node.output) < 2 or not node.output[1]:
        return None
    if ctx.input(7) is not None:
        return ctx.layer("tactix.ReduceSum", [ctx.tensor(7)], axes=(1,), keepdims=False)
    return ctx.layer("tactix.Fill", [], shape=(ids.spec.shape[0],), value=0, dtype=DType.INT32)


@CONVERTERS("GroupNorm", domain=MICROSOFT)
def group_norm(ctx: Context, node: Any) -> Value:
    """Inputs x (N, H, W, C), or (N, C, H, W) with ``channels_last`` 0, scale and bias (C,)."""
    return _grouped(ctx, ctx.tensor())


@CONVERTERS("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(ctx: Context, node: Any) -> list[Value]:
    """Of ``x + skip + bias``, the second output; skip as x, (N, 1, 1, C) or (N, C)."""
    x, skip, bias = ctx.tensor(), ctx.tensor(3), ctx.input(4)
    if skip.spec.rank == 2:
        spatial = (1,) * (x.spec.rank - 2)
        batch, channels = skip.spec.shape
        skip = ctx.reshape(
            skip,
            (batch, *spatial, channels) if _channels_last(ctx) else (batch, channels, *spatial),
        )
    total = two(ctx, "Add", x, skip)
    if bias is not None:
        wide = (
            bias
            if _channels_last(ctx)
            else ctx.reshape(bias, (*bias.spec.shape, *(1,) * (x.spec.rank - 2)))
        )
        total = two(ctx, "Add", total, wide)
    return [_grouped(ctx, total), total]


def _channels_last(ctx: Context) -> bool:
    return bool(ctx.attr("channels_last", 1))


def _grouped(ctx: Context, x: Value) -> Value:
    parameters = [ctx.cast(ctx.tensor(i), x.spec.dtype) for i in (1, 2)]
    fields = {"num_groups": ctx.attr("groups"), "epsilon": ctx.attr("epsilon", 1e-5)}
    ordered = first_channels(ctx, x) if _channels_last(ctx) else x
    y = ctx.layer("tactix.GroupNormalization", [ordered, *parameters], **fields)
    y = ctx.layer("tactix.Swish", [y]) if ctx.attr("activation", 0) else y
    return last_channels(ctx, y) if _channels_last(ctx) else y


# -- others --------------------------------------------------------------------------------------

CONVERTERS("Trilu", domain=MICROSOFT)(triangle)
CONVERTERS("Pad", domain=MICROSOFT)(pad)
CONVERTERS("Range", domain=MICROSOFT)(arange)


@CONVERTERS("ExpandDims", domain=MICROSOFT)
def expand_dims(ctx: Context, node: Any) -> Value:
    x, axes = ctx.tensor(), ctx.need_ints(1, "axis")
    shape = list(x.spec.shape)
    shape.insert(axis_of(axes[0], x.spec.rank + 1, ctx.op), 1)
    return ctx.reshape(x, shape)


@CONVERTERS("GatherND", domain=MICROSOFT)
def gather_places(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.GatherND", [ctx.tensor(), ctx.tensor(1)])


@CONVERTERS("GridSample", domain=MICROSOFT)
def grid_sample(ctx: Context, node: Any) -> Value:
    """As ONNX had it first, in operator set 16."""
    names = {"mode": "bilinear", "padding_mode": "zeros"}
    words = {name: ctx.attr(name, default) for name, default in names.items()}
    corners = bool(ctx.attr("align_corners", 0))
    return ctx.layer(
        "tactix.GridSample", [ctx.tensor(), ctx.tensor(1)], align_corners=corners, **words
    )


@CONVERTERS("Inverse", domain=MICROSOFT)
def inverse(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.Inverse", [ctx.tensor()])


@CONVERTERS("Unique", domain=MICROSOFT)
def unique(ctx: Context, node: Any) -> list[Value]:
    """Values in order of their first occurrence, where each element's is, and how often each
    occurs.
    """
    y, _, places, counts = ctx.layers(
        "tactix.Unique", [ctx.tensor()], symbol=ctx.symbol(), axis=None, sorted=False
    )
    return [y, places, counts]


@CONVERTERS("CDist", domain=MICROSOFT)
def distances(ctx: Context, node: Any) -> Value:
    """Distances (M, K) of rows of a (M, N) and b (K, N), by a product: ``a a - 2 a b + b b``."""
    metric = ctx.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        ctx.fail(f"its metric {metric!r} is not supported", do="Use sqeuclidean or euclidean")
    a, b = ctx.tensor(), ctx.tensor(1)
    squares = [
        ctx.layer("tactix.ReduceSum", [two(ctx, "Mul", x, x)], axes=(1,), keepdims=not i)
        for i, x in enumerate((a, b))
    ]
    product = two(
        ctx,
        "Mul",
        ctx.layer("tactix.MatMul", [a, ctx.layer("tactix.Transpose", [b], perm=(1, 0))]),
        -2,
    )
    y = two(ctx, "Add", two(ctx, "Add", product, squares[0]), squares[1])
    y = two(ctx, "Max", y, 0)
    return y if metric == "sqeuclidean" else ctx.layer("tactix.Sqrt", [y])
