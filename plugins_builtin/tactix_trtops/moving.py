"""Plugins that move elements, and activations."""

from __future__ import annotations

import numpy as np

from tactix.base.dims import floordiv, prod
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Result
from tactix_ops.layers.common import axis_of
from tactix_trtops.operator import FOREIGN, Operators, number

OPERATORS = Operators()


@OPERATORS("LReLU_TRT", fields={"negSlope": "float"})
def leaky_relu(ctx: Context) -> Value:
    """x where it is above 0, else x times `negSlope`."""
    return ctx.layer("tactix.LeakyRelu", [ctx.tensor()], alpha=ctx.attr("negSlope", 0.0))


@OPERATORS("Clip_TRT", fields={"clipMin": "float", "clipMax": "float"})
def clip(ctx: Context) -> Value:
    """x kept between `clipMin` and `clipMax`."""
    low, high = ctx.attr("clipMin", 0.0), ctx.attr("clipMax", 0.0)
    return ctx.layer("tactix.Clip", [ctx.tensor()], min=low, max=high)


@OPERATORS("BatchTilePlugin_TRT", also=("BatchTilePlugin",))
def batch_tile(ctx: Context) -> Value:
    """The second input (1, c, h, w) as often as the first has samples."""
    x = ctx.tensor(1)
    return ctx.layer("tactix.Expand", [x], shape=(ctx.spec().shape[0], *x.spec.shape[1:]))


@OPERATORS("FlattenConcat_TRT", fields={"axis": "int", "ignoreBatch": "int"})
def flatten_concat(ctx: Context) -> Value:
    """Inputs (b, c, h, w) as rows, one behind the other: (b, n, 1, 1)."""
    ctx.ignore("ignoreBatch")
    if ctx.attr("axis", 1) != 1:
        ctx.fail("its axis is not 1", do="Give axis 1, as TensorRT asks for")
    values = [ctx.tensor(i) for i in range(len(ctx.inputs))]
    rows = [ctx.reshape(v, (v.spec.shape[0], prod(v.spec.shape[1:]), 1, 1)) for v in values]
    return ctx.layer("tactix.Concat", rows, axis=1) if len(rows) > 1 else rows[0]


@OPERATORS("ResizeNearest_TRT", fields={"scale": "float"})
def resize_nearest(ctx: Context) -> Value:
    """x (b, c, h, w) with rows and columns `scale` times as many: each is that at its place divided
    by `scale`.
    """
    x, scale = ctx.tensor(), ctx.attr("scale", 1.0)
    out = x
    for axis in (2, 3):
        size = number(ctx, x.spec.shape[axis], "image")
        places = (np.arange(int(size * scale)).astype(np.float32) / np.float32(scale)).astype(
            np.int64
        )
        out = ctx.layer("tactix.Gather", [out, ctx.constant(places)], axis=axis)
    return out


@OPERATORS("SpecialSlice_TRT")
def special_slice(ctx: Context) -> Value:
    """The boxes of detections (b, n, 6): the first four numbers of each."""
    return ctx.layer("tactix.Slice", [ctx.tensor()], begins=(0,), sizes=(4,), axes=(2,), steps=(1,))


@OPERATORS("Reorg_TRT", versions=("1", "2"), fields={"stride": "int"})
def reorganize(ctx: Context) -> Value:
    """x (b, c, h, w) as (b, c s s, h / s, w / s), s the `stride`: neighbours become channels, as in
    Darknet.

    As in Darknet and TensorRT x is looked at as (c / s^2, h s, w s) before, and the result is the
    memory of (s s c / s^2, h, w).
    """
    x, s = ctx.tensor(), ctx.attr("stride")
    batch, c, h, w = x.spec.shape
    rows, cols, inner = floordiv(h, s), floordiv(w, s), floordiv(c, s * s)
    wide = ctx.reshape(x, (batch, inner, h, s, w, s))
    turned = ctx.layer("tactix.Transpose", [wide], perm=(0, 3, 5, 1, 2, 4))
    return ctx.reshape(turned, (batch, c * s * s, rows, cols))


@OPERATORS("Region_TRT", fields={"num": "int", "coords": "int", "classes": "int"})
def region(ctx: Context) -> Value:
    """x (b, `num` (5 + `classes`), h, w) of YOLOv2: sigmoids of centres and objectness, a softmax
    of the classes; sizes stay.
    """
    x, boxes, classes = ctx.tensor(), ctx.attr("num"), ctx.attr("classes")
    if ctx.attr("coords", 4) != 4:
        ctx.fail("its coords are not 4", do="Give 4, as TensorRT asks for")
    batch, channels, h, w = x.spec.shape
    apart = ctx.reshape(x, (batch, boxes, 5 + classes, h, w))
    sizes = (2, 2, 1, classes)
    centre, size, there, scores = ctx.layers("tactix.Split", [apart], axis=2, sizes=sizes)
    centre, there = (ctx.layer("tactix.Sigmoid", [v]) for v in (centre, there))
    chances = ctx.layer("tactix.Softmax", [scores], axis=2)
    y = ctx.layer("tactix.Concat", [centre, size, there, chances], axis=2)
    return ctx.reshape(y, (batch, channels, h, w))


@OPERATORS("CoordConvAC")
def coordinates(ctx: Context) -> Value:
    """x (b, c, h, w) with two channels more: its rows and its columns, from -1 to 1."""
    x = ctx.tensor()
    batch, _, h, w = x.spec.shape
    size = [number(ctx, d, "image") for d in (h, w)]
    grid = np.meshgrid(*(np.linspace(-1, 1, n) for n in size), indexing="ij")
    both = ctx.constant(np.stack(grid)[None].astype(x.spec.dtype.numpy))
    return ctx.layer(
        "tactix.Concat", [x, ctx.layer("tactix.Expand", [both], shape=(batch, 2, h, w))], axis=1
    )


@OPERATORS("ScatterND", domains=FOREIGN)
def scatter_nd(ctx: Context) -> Value:
    """Inputs data, indices, updates: ScatterND."""
    return ctx.layer("tactix.ScatterND", [ctx.tensor(i) for i in range(3)])


@OPERATORS(
    "ScatterElements",
    fields={"axis": "int", "reduction": "text"},
    versions=("1", "2"),
    domains=FOREIGN,
)
def scatter_elements(ctx: Context) -> Value:
    """Inputs data, indices, updates: ScatterElements."""
    axis = axis_of(ctx.attr("axis", 0), ctx.spec().rank, ctx.op)
    inputs = [ctx.tensor(i) for i in range(3)]
    return ctx.layer(
        "tactix.ScatterElements", inputs, axis=axis, reduction=ctx.attr("reduction", "none")
    )


@OPERATORS(
    "Split",
    fields={"axis": "int", "output_lengths": "ints"},
    domains=FOREIGN,
    outputs="output_lengths",
)
def split(ctx: Context) -> Result:
    """Parts of x along `axis`, `output_lengths` long."""
    axis = axis_of(ctx.attr("axis", 0), ctx.spec().rank, ctx.op)
    return ctx.layers("tactix.Split", [ctx.tensor()], axis=axis, sizes=ctx.attr("output_lengths"))
