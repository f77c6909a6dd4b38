"""Normalization: by instance, by group, by layer, and by length."""

from __future__ import annotations

from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_ops.layers.common import axis_of
from tactix_trtops.operator import FOREIGN, Operators, first_of, need_weights

OPERATORS = Operators()


@OPERATORS(
    "InstanceNormalization_TRT",
    versions=("1", "2", "3"),
    fields={
        "epsilon": "float", "scales": "floats", "bias": "floats", "relu": "int", "alpha": "float",
    },
)  # fmt: skip
def instance_normalization(ctx: Context) -> Value:
    """x (b, c, spatial...) normalized by sample and channel, then `scales` and `bias`; with `relu`
    through a leaky ReLU of slope `alpha`.
    """
    x = ctx.tensor()
    parameters = [_constant(ctx, name, x) for name in ("scales", "bias")]
    epsilon, alpha = ctx.attr("epsilon", 1e-5), ctx.attr("alpha", 0.0)
    y = ctx.layer("tactix.InstanceNormalization", [x, *parameters], epsilon=epsilon)
    return ctx.layer("tactix.LeakyRelu", [y], alpha=alpha) if ctx.attr("relu", 0) else y


def _constant(ctx: Context, name: str, like: Value) -> Value:
    """The numbers of an attribute in another tensor's dtype."""
    return ctx.constant(need_weights(ctx, name).astype(like.spec.dtype.numpy))


@OPERATORS("GroupNormalizationPlugin", fields={"eps": "float", "num_groups": "int"})
def group_normalization(ctx: Context) -> Value:
    """Inputs x (b, c, spatial...), scale and bias (c,)."""
    x = ctx.tensor()
    parameters = [ctx.cast(ctx.tensor(i), x.spec.dtype) for i in (1, 2)]
    fields = {
        "num_groups": ctx.attr("num_groups", 1),
        "epsilon": first_of(ctx, 1e-5, "eps", "epsilon"),
    }
    return ctx.layer("tactix.GroupNormalization", [x, *parameters], **fields)


LAYER = {"epsilon": "float", "axis": "int"}


@OPERATORS(also=("LayerNorm", "CustomLayerNorm"), fields=LAYER)
@OPERATORS(also=("LayerNormalization",), fields=LAYER, domains=FOREIGN)
def layer_normalization(ctx: Context) -> Value:
    """Inputs x, scale, bias: the axes from `axis` on are normalized."""
    x, inputs = ctx.tensor(), [ctx.tensor(), ctx.tensor(1), ctx.input(2)]
    axis = axis_of(ctx.attr("axis", -1), x.spec.rank, ctx.op)
    return ctx.layer(
        "tactix.LayerNormalization", inputs, axis=axis, epsilon=ctx.attr("epsilon", 1e-5)
    )


@OPERATORS(
    "Normalize_TRT",
    fields={
        "weights": "floats", "acrossSpatial": "int", "channelShared": "int", "nbWeights": "int",
        "eps": "float",
    },
)  # fmt: skip
def normalize(ctx: Context) -> Value:
    """x (b, c, h, w) divided by its length along the channels, with `acrossSpatial` of the whole
    sample, and times `weights`, one or one a channel.
    """
    ctx.ignore("nbWeights")
    x, across = ctx.tensor(), bool(ctx.attr("acrossSpatial", 1))
    shared = bool(ctx.attr("channelShared", 1))
    scale = _constant(ctx, "weights", x)
    if across and not shared:
        why = "TensorRT divides by its weights there, and its documentation multiplies"
        ctx.fail(
            f"acrossSpatial with weights of channels is not supported: {why}", do="Scale after it"
        )
    axes = tuple(range(1, x.spec.rank)) if across else (1,)
    squares = ctx.layer("tactix.ReduceSum", [two(ctx, "Mul", x, x)], axes=axes, keepdims=True)
    length = ctx.layer("tactix.Sqrt", [two(ctx, "Add", squares, ctx.attr("eps", 1e-10))])
    column = ctx.reshape(scale, (*scale.spec.shape, *(1,) * (x.spec.rank - 2)))
    return two(ctx, "Mul", two(ctx, "Div", x, length), column)
