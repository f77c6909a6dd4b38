"""Convolution, pooling, normalisation, softmax and recurrent operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import Dim, ceildiv, compare, dmax, floordiv, prod
from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()


AGREE = "Leave kernel_shape out, or give the sizes of the weights"


# -- windows -------------------------------------------------------------------------------------


def _resolved_pads(
    ctx: Context,
    size: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Dim, ...]:
    """``pads``, or what ``auto_pad`` makes of the sizes: SAME gives ceil(size / stride) windows."""
    ctx.ignore("pads")
    mode = ctx.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return tuple(ctx.attr("pads", (0,) * 2 * len(size)))
    if mode == "VALID":
        return (0,) * 2 * len(size)
    totals = [
        dmax((ceildiv(n, s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    return _same(mode, totals)


def _same(mode: str, totals: Sequence[Dim]) -> tuple[Dim, ...]:
    """Totals shared between begin and end: the odd one at the end for SAME_UPPER."""
    small = [floordiv(t, 2) for t in totals]
    large = [t - s for t, s in zip(totals, small, strict=True)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def window_fields(ctx: Context, kernel: Sequence[Dim]) -> dict[str, Any]:
    """strides, dilations and pads of a node on x (N, C, spatial...)."""
    n = len(kernel)
    strides, dilations = ctx.attr("strides", (1,) * n), ctx.attr("dilations", (1,) * n)
    pads = _resolved_pads(ctx, ctx.spec().shape[2:], kernel, strides, dilations)
    return {"strides": strides, "dilations": dilations, "pads": pads}


def convolution_fields(ctx: Context, weights: int) -> dict[str, Any]:
    """Attributes of a convolution whose weights are input ``weights``. Raises ModelImportError."""
    _check_one_padding(ctx)
    return {"group": ctx.attr("group", 1), **window_fields(ctx, _kernel(ctx, weights))}


def _check_one_padding(ctx: Context) -> None:
    """Pads by themselves and by a rule at once contradict each other."""
    mode = ctx.attr("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "") and any(ctx.attr("pads", ())):
        what = f"it has auto_pad {mode!r} and pads {list(ctx.attr('pads'))}"
        raise ModelImportError(what, why="one of them counts", do="Leave one of them out")


def _kernel(ctx: Context, weights: int) -> tuple[Dim, ...]:
    """The spatial dims of the weights, which the node's own must not contradict."""
    kernel = ctx.spec(weights).shape[2:]
    stated = ctx.attr("kernel_shape", kernel)
    if len(stated) != len(kernel):
        why = f"the weights have {len(kernel)} spatial axes"
        raise ModelImportError(f"kernel_shape names {len(stated)} axes", why=why, do=AGREE)
    for a, b in zip(stated, kernel, strict=True):
        if compare(a, b) in ("<", ">"):
            what = f"kernel_shape has {a} where the weights have {b}"
            raise ModelImportError(what, do=AGREE)
    return kernel


@CONVERTERS("Conv")
def conv(ctx: Context, node: Any) -> Value:
    inputs = [ctx.tensor(), ctx.tensor(1), ctx.input(2)]
    return ctx.layer("tactix.Convolution", inputs, **convolution_fields(ctx, 1))


@CONVERTERS("ConvTranspose")
def conv_transpose(ctx: Context, node: Any) -> Value:
    _check_one_padding(ctx)
    size, kernel = ctx.spec().shape[2:], _kernel(ctx, 1)
    n = len(kernel)
    strides, dilations = ctx.attr("strides", (1,) * n), ctx.attr("dilations", (1,) * n)
    extra = ctx.attr("output_padding", (0,) * n)
    mode, wanted = ctx.attr("auto_pad", "NOTSET"), ctx.attr("output_shape")
    pads = tuple(ctx.attr("pads", (0,) * 2 * n))
    if wanted or mode.startswith("SAME"):
        target = wanted[-n:] if wanted else [d * s for d, s in zip(size, strides, strict=True)]
        full = [
            (d - 1) * s + e + (k - 1) * t + 1
            for d, s, e, k, t in zip(size, strides, extra, kernel, dilations, strict=True)
        ]
        totals = [dmax(f - t, 0) for f, t in zip(full, target, strict=True)]
        extra = tuple(
            e + _number(ctx, dmax(t - f, 0)) for e, f, t in zip(extra, full, target, strict=True)
        )
        pads = _same("SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER", totals)
    elif mode == "VALID":
        pads = (0,) * 2 * n
    inputs = [ctx.tensor(), ctx.tensor(1), ctx.input(2)]
    fields = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra}
    return ctx.layer("tactix.ConvTranspose", inputs, group=ctx.attr("group", 1), **fields)


@CONVERTERS("DeformConv")
def deformable_convolution(ctx: Context, node: Any) -> Value:
    kernel = _kernel(ctx, 1)
    if len(kernel) != 2:
        ctx.fail(f"its kernel has {len(kernel)} axes; 2 are supported")
    groups = {name: ctx.attr(name, 1) for name in ("group", "offset_group")}
    inputs = [ctx.tensor(), ctx.tensor(1), ctx.tensor(2), ctx.input(3), ctx.input(4)]
    return ctx.layer("tactix.DeformableConvolution", inputs, **groups, **window_fields(ctx, kernel))


def _number(ctx: Context, d: Dim) -> int:
    if not isinstance(d, int):
        ctx.fail(f"its padding {d} depends on the input's shape")
    return d


@CONVERTERS("MaxPool", "AveragePool", "LpPool")
def pool(ctx: Context, node: Any) -> Any:
    kernel = ctx.attr("kernel_shape")
    if not kernel:
        raise ModelImportError("kernel_shape is missing")
    fields = {
        "kernel_shape": kernel,
        "ceil_mode": bool(ctx.attr("ceil_mode", 0)),
        **window_fields(ctx, kernel),
    }
    if ctx.op == "AveragePool":
        fields["count_include_pad"] = bool(ctx.attr("count_include_pad", 0))
    if ctx.op == "LpPool":
        fields["p"] = ctx.attr("p", 2)
    if ctx.op == "MaxPool":
        order = ctx.attr("storage_order", 0)
        if len(node.output) > 1 and node.output[1]:
            return ctx.layers(
                "tactix.MaxPoolIndices", [ctx.tensor()], storage_order=order, **fields
            )
    return ctx.layer(f"tactix.{ctx.op}", [ctx.tensor()], **fields)


@CONVERTERS("MaxUnpool")
def max_unpool(ctx: Context, node: Any) -> Value:
    fields = {name: tuple(ctx.attr(name, ())) for name in ("kernel_shape", "strides", "pads")}
    inputs = [ctx.tensor(), ctx.tensor(1), ctx.input(2)]
    return ctx.layer("tactix.MaxUnpool", inputs, symbol=ctx.symbol(), **fields)


@CONVERTERS("Col2Im")
def columns_to_image(ctx: Context, node: Any) -> Value:
    fields = {name: tuple(ctx.attr(name, ())) for name in ("strides", "pads", "dilations")}
    inputs = [ctx.tensor(i) for i in range(3)]
    return ctx.layer("tactix.Col2Im", inputs, symbol=ctx.symbol(), **fields)


# -- normalisation -------------------------------------------------------------------------------


@CONVERTERS("BatchNormalization")
def batch_normalization(ctx: Context, node: Any) -> Any:
    ctx.ignore("momentum", "is_test")
    if ctx.attr("spatial", 1) != 1:
        ctx.fail("spatial = 0 is not supported")
    inputs = [ctx.tensor(i) for i in range(5)]
    return [ctx.layer("tactix.BatchNormalization", inputs, epsilon=ctx.attr("epsilon", 1e-5))]


@CONVERTERS("LayerNormalization")
def layer_normalization(ctx: Context, node: Any) -> Any:
    """Operator sets before 17 have none; ONNX Runtime and exporters take it in all of them."""
    ctx.ignore("stash_type")
    x, epsilon = ctx.tensor(), ctx.attr("epsilon", 1e-5)
    axis = axis_of(ctx.attr("axis", -1), x.spec.rank, ctx.op)
    y = ctx.layer(
        "tactix.LayerNormalization", [x, ctx.tensor(1), ctx.input(2)], axis=axis, epsilon=epsilon
    )
    return [y, *moments(ctx, x, axis, epsilon)] if any(node.output[1:]) else [y]


def moments(ctx: Context, x: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """Mean and inverse deviation over the axes from ``axis`` on, in float32, which normalizations
    may give, too.
    """
    over = {"axes": tuple(range(axis, x.spec.rank)), "keepdims": True}
    wide = ctx.cast(x, DType.FP32)
    mean = ctx.layer("tactix.ReduceMean", [wide], **over)
    apart = ctx.layer("tactix.Sub", [wide, mean])
    return mean, inverse_root_mean_square(ctx, apart, axis, epsilon)


def inverse_root_mean_square(ctx: Context, x: Value, axis: int, epsilon: float) -> Value:
    """Over the axes from ``axis`` on, in float32."""
    over = {"axes": tuple(range(axis, x.spec.rank)), "keepdims": True}
    wide = ctx.cast(x, DType.FP32)
    mean = ctx.layer("tactix.ReduceMean", [ctx.layer("tactix.Mul", [wide, wide])], **over)
    root = ctx.layer("tactix.Sqrt", [ctx.layer("tactix.Add", [mean, ctx.scalar(epsilon, mean)])])
    return ctx.layer("tactix.Reciprocal", [root])


@CONVERTERS("RMSNormalization")
def rms_normalization(ctx: Context, node: Any) -> Value:
    ctx.ignore("stash_type")
    x = ctx.tensor()
    axis = axis_of(ctx.attr("axis", -1), x.spec.rank, ctx.op)
    return ctx.layer(
        "tactix.RMSNormalization", [x, ctx.tensor(1)], axis=axis, epsilon=ctx.attr("epsilon", 1e-5)
    )


@CONVERTERS("GroupNormalization")
def group_normalization(ctx: Context, node: Any) -> Value:
    """Before operator set 21 scale and bias are per group: each is repeated for the group's
    channels.
    """
    ctx.ignore("stash_type")
    x, groups = ctx.tensor(), ctx.attr("num_groups")
    parameters = [ctx.tensor(1), ctx.tensor(2)]
    channels = x.spec.shape[1]
    if ctx.opset < 21 and parameters[0].spec.shape != (channels,):
        each = floordiv(channels, groups)
        parameters = [_repeated(ctx, p, groups, each) for p in parameters]
    fields = {"num_groups": groups, "epsilon": ctx.attr("epsilon", 1e-5)}
    return ctx.layer("tactix.GroupNormalization", [x, *parameters], **fields)


LARGEST = 1 << 20
"""Most elements of a repeated parameter that is stored."""


def _repeated(ctx: Context, p: Value, groups: int, each: Dim) -> Value:
    if p.const is not None and isinstance(each, int) and groups * each <= LARGEST:
        ctx.network.read.add(p.name)
        return ctx.constant(np.repeat(p.const, each))
    wide = ctx.layer("tactix.Expand", [ctx.reshape(p, (groups, 1))], shape=(groups, each))
    return ctx.reshape(wide, (groups * each,))


# -- softmax -------------------------------------------------------------------------------------


@CONVERTERS("Softmax", "LogSoftmax", "Hardmax")
def softmax_flat(ctx: Context, node: Any) -> Value:
    """Before operator set 13 all axes from ``axis`` on count as one."""
    x = ctx.tensor()
    shape, axis = x.spec.shape, ctx.attr("axis", 1)
    axis = axis % len(shape) if axis < 0 else axis
    layer = f"tactix.{ctx.op}"
    if prod(shape[axis + 1 :]) == 1 and axis < len(shape):
        return ctx.layer(layer, [x], axis=axis)
    flat = ctx.reshape(x, (*shape[:axis], prod(shape[axis:])))
    return ctx.reshape(ctx.layer(layer, [flat], axis=axis), shape)


@CONVERTERS("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    axis = axis_of(ctx.attr("axis", -1), max(1, x.spec.rank), ctx.op)
    return ctx.layer(f"tactix.{ctx.op}", [x], axis=axis)


# -- recurrent -----------------------------------------------------------------------------------


@CONVERTERS("LSTM", "GRU", "RNN")
def recurrent(ctx: Context, node: Any) -> Any:
    ctx.ignore(
        "output_sequence"
    )  # before 7: whether the first output is there, which the node's own list tells
    fields = {
        "hidden_size": ctx.attr("hidden_size", ctx.spec(2).shape[-1]),
        "direction": ctx.attr("direction", "forward"),
        "activations": ctx.attr("activations", ()),
        "activation_alpha": ctx.attr("activation_alpha", ()),
        "activation_beta": ctx.attr("activation_beta", ()),
        "clip": ctx.attr("clip", 0.0),
        "layout": ctx.attr("layout", 0),
    }
    if ctx.op == "LSTM":
        fields["input_forget"] = bool(ctx.attr("input_forget", 0))
    if ctx.op == "GRU":
        fields["linear_before_reset"] = bool(ctx.attr("linear_before_reset", 0))
    return ctx.layers(f"tactix.{ctx.op}", ctx.inputs, **fields)
