"""Sampling at places that data gives: regions, grids, deformable convolution and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_trtops.operator import ANY, FOREIGN, Operators, columns, first_of

OPERATORS = Operators()


@OPERATORS(
    "ROIAlign_TRT",
    versions=("1", "2"),
    fields={
        "coordinate_transformation_mode": "int", "mode": "int", "output_height": "int",
        "output_width": "int", "sampling_ratio": "int", "spatial_scale": "float",
    },
)  # fmt: skip
def region_align(ctx: Context) -> Value:
    """Inputs x (b, c, h, w), regions (r, 4), the sample of each (r,): RoiAlign, with `mode` 1 for
    averages and 0 for maxima.
    """
    half = ctx.attr("coordinate_transformation_mode", 1)
    return ctx.layer(
        "tactix.RoiAlign",
        [ctx.tensor(i) for i in range(3)],
        output_height=ctx.attr("output_height", 1),
        output_width=ctx.attr("output_width", 1),
        sampling_ratio=ctx.attr("sampling_ratio", 0),
        spatial_scale=ctx.attr("spatial_scale", 1.0),
        mode="avg" if ctx.attr("mode", 1) else "max",
        coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
    )


# -- grids -----------------------------------------------------------------------------------------

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
GRID = {"interpolation_mode": "int", "padding_mode": "int", "align_corners": "int"}


@OPERATORS(also=("GridSampler", "grid_sampler", "GridSamplePlugin"), fields=GRID)
@OPERATORS(also=("GridSample",), fields=GRID, domains=FOREIGN)
def grid_sample(ctx: Context) -> Value:
    """Inputs x (b, c, spatial...), places (b, out..., rank): GridSample, its modes as PyTorch's
    numbers or words.
    """
    mode = first_of(ctx, 0, "interpolation_mode", "mode")
    return ctx.layer(
        "tactix.GridSample",
        [ctx.tensor(), ctx.tensor(1)],
        mode=_named(ctx, {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), MODES),
        padding_mode=_named(ctx, ctx.attr("padding_mode", 0), PADDINGS),
        align_corners=bool(ctx.attr("align_corners", 0)),
    )


def _named(ctx: Context, given: Any, names: Sequence[str]) -> str:
    """What a word or its number in a list stands for. Raises UnsupportedOperator."""
    if given in names:
        return str(given)
    if not isinstance(given, int) or not 0 <= given < len(names):
        ctx.fail(f"{given!r} is none of its modes", do=f"Give one of {', '.join(names)}")
    return names[given]


# -- deformable convolution ------------------------------------------------------------------------


@OPERATORS(
    "ModulatedDeformConv2d",
    also=("ModulatedDeformConv2d_TRT", "TRTModulatedDeformConv2d", "MMCVModulatedDeformConv2d"),
    versions=("1", "2"),
    fields={
        "stride": "ints", "padding": "ints", "dilation": "ints", "group": "int",
        "deformable_group": "int",
    },
    domains=(*ANY, "mmcv"),
)  # fmt: skip
def modulated_deformable_convolution(ctx: Context) -> Value:
    """Inputs x, offsets (b, 2 groups kh kw, h, w), mask (b, groups kh kw, h, w), weights, and a
    bias or none: a deformable convolution.
    """
    return _deformed(ctx, ctx.tensor(3), ctx.tensor(2), ctx.input(4))


@OPERATORS(
    also=("MMCVDeformConv2d", "TRTDeformConv2d"),
    fields={
        "stride": "ints", "padding": "ints", "dilation": "ints", "group": "int",
        "deformable_group": "int",
    },
    domains=("mmcv", "mmdeploy"),
)  # fmt: skip
def deformable_convolution(ctx: Context) -> Value:
    """Inputs x, offsets, weights: without mask and bias."""
    ctx.ignore("im2col_step", "bias")
    return _deformed(ctx, ctx.tensor(2), None, None)


def _deformed(ctx: Context, weight: Value, mask: Value | None, bias: Value | None) -> Value:
    pads = _pair(ctx.attr("padding", (0, 0)))
    return ctx.layer(
        "tactix.DeformableConvolution",
        [ctx.tensor(), weight, ctx.tensor(1), bias, mask],
        strides=_pair(ctx.attr("stride", (1, 1))),
        dilations=_pair(ctx.attr("dilation", (1, 1))),
        pads=(*pads, *pads),
        group=first_of(ctx, 1, "group", "groups"),
        offset_group=first_of(ctx, 1, "deformable_group", "deform_group", "deform_groups"),
    )


def _pair(given: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of both axes, one of which may stand for both."""
    found = (given,) if isinstance(given, int) else tuple(given)
    return found * 2 if len(found) == 1 else found


# -- deformable attention --------------------------------------------------------------------------


@OPERATORS(
    "MultiscaleDeformableAttnPlugin_TRT",
    also=(
        "MultiScaleDeformableAttn",
        "MultiScaleDeformableAttnTRT",
        "MMCVMultiScaleDeformableAttention",
    ),
    versions=("1", "2"),
    domains=(*ANY, "mmcv"),
)
def deformable_attention(ctx: Context) -> Value:
    """Inputs values (b, s, heads, d) of all levels, the size of each level (l, 2), where it begins
    (l,), places (b, q, heads, l, p, 2) between 0 and 1, weights (b, q, heads, l, p). Result (b, q,
    heads, d).

    X. Zhu et al., "Deformable DETR", 2021: each level is sampled linearly, zeros around it. Sizes
    must be constants.
    """
    values, places, weight = ctx.tensor(), ctx.tensor(3), ctx.tensor(4)
    levels = np.array(ctx.need_ints(1, "sizes of levels")).reshape(-1, 2)
    batch, _, heads, depth = values.spec.shape
    queries, points = places.spec.shape[1], places.spec.shape[4]
    split = ctx.layers("tactix.Split", [values], axis=1, sizes=tuple(levels.prod(axis=1).tolist()))
    at = ctx.layers("tactix.Split", [as_grid(ctx, places)], axis=3, sizes=(1,) * len(levels))
    sampled = []
    for (h, w), part, grid in zip(levels.tolist(), split, at, strict=True):
        image = ctx.layer("tactix.Transpose", [part], perm=(0, 2, 3, 1))
        image = ctx.reshape(image, (batch * heads, depth, h, w))
        grid = ctx.layer("tactix.Transpose", [grid], perm=(0, 2, 1, 3, 4, 5))
        grid = ctx.reshape(grid, (batch * heads, queries, points, 2))
        sampled.append(ctx.layer("tactix.GridSample", [image, grid], mode="linear"))
    found = ctx.layer("tactix.Concat", sampled, axis=3) if len(sampled) > 1 else sampled[0]
    weight = ctx.layer("tactix.Transpose", [weight], perm=(0, 2, 1, 3, 4))
    weight = ctx.reshape(weight, (batch * heads, 1, queries, len(levels) * points))
    summed = ctx.layer(
        "tactix.ReduceSum", [two(ctx, "Mul", found, weight)], axes=(3,), keepdims=False
    )
    y = ctx.reshape(summed, (batch, heads, depth, queries))
    return ctx.layer("tactix.Transpose", [y], perm=(0, 3, 1, 2))


def as_grid(ctx: Context, places: Value) -> Value:
    """Places from 0 to 1 as GridSample counts them, from -1 to 1."""
    return two(ctx, "Sub", two(ctx, "Mul", places, 2), 1)


# -- crops -----------------------------------------------------------------------------------------


@OPERATORS(
    "CropAndResize", "CropAndResizeDynamic", fields={"crop_width": "int", "crop_height": "int"}
)
def crop_and_resize(ctx: Context) -> Value:
    """Inputs x (b, c, h, w), regions (b, r, 4, 1) as y x y x between 0 and 1. Crops (b, r, c,
    `crop_height`, `crop_width`), linear between corner elements, 0 outside.
    """
    x, regions = ctx.tensor(), ctx.tensor(1)
    size = (ctx.attr("crop_height"), ctx.attr("crop_width"))
    batch, count = regions.spec.shape[:2]
    found = crops(ctx, x, ctx.reshape(regions, (batch, count, 4)), size)
    return _inside(ctx, found, regions, x.spec.shape, size)


def crops(ctx: Context, x: Value, regions: Value, size: tuple[int, int]) -> Value:
    """(b, r, c, height, width): x at a grid over each region, whose corners are at the centres of
    the outermost elements.
    """
    (batch, channels, *_), count = x.spec.shape, regions.spec.shape[1]
    y, xs = _axes(ctx, regions, size)
    shape: tuple[Dim, ...] = (batch, count, *size)
    grid = [ctx.layer("tactix.Expand", [a], shape=shape) for a in (xs, y)]
    pairs = [ctx.reshape(a, (*shape, 1)) for a in grid]
    both = ctx.reshape(
        as_grid(ctx, ctx.layer("tactix.Concat", pairs, axis=4)),
        (batch, count * size[0], size[1], 2),
    )
    fields = {"mode": "linear", "padding_mode": "border", "align_corners": True}
    found = ctx.layer("tactix.GridSample", [x, both], **fields)
    found = ctx.reshape(found, (batch, channels, count, *size))
    return ctx.layer("tactix.Transpose", [found], perm=(0, 2, 1, 3, 4))


def _axes(ctx: Context, regions: Value, size: tuple[int, int]) -> tuple[Value, Value]:
    """Rows (b, r, height, 1) and columns (b, r, 1, width) of the grid, between 0 and 1."""
    batch, count, _ = regions.spec.shape
    ends = [ctx.reshape(e, (batch, count, 1, 1)) for e in columns(ctx, regions, 1, 1, 1, 1)]
    out = []
    for axis, n in enumerate(size):
        first, last = ends[axis], ends[axis + 2]
        steps = np.linspace(0, 1, n) if n > 1 else np.array([0.5])
        shape = (1, 1, n, 1) if axis == 0 else (1, 1, 1, n)
        moved = two(ctx, "Mul", two(ctx, "Sub", last, first), steps.reshape(shape))
        out.append(two(ctx, "Add", first, moved))
    return out[0], out[1]


def _inside(
    ctx: Context, found: Value, regions: Value, shape: Sequence[Dim], size: tuple[int, int]
) -> Value:
    """Crops with 0 for what lies outside x."""
    batch, count = regions.spec.shape[:2]
    y, x = _axes(ctx, ctx.reshape(regions, (batch, count, 4)), size)
    within: Value | None = None
    for places in (y, x):
        for low, high in ((0, places), (places, 1)):
            a = ctx.scalar(low, places) if isinstance(low, int) else low
            b = ctx.scalar(high, places) if isinstance(high, int) else high
            one = ctx.layer("tactix.LessOrEqual", [a, b])
            within = one if within is None else two(ctx, "And", within, one)
    assert within is not None
    wide = ctx.reshape(within, (batch, count, 1, *size))
    return ctx.layer("tactix.Where", [wide, found, ctx.scalar(0.0, found)])


# -- pillars ---------------------------------------------------------------------------------------


@OPERATORS("PillarScatterPlugin", fields={"dense_shape": "ints"})
def pillar_scatter(ctx: Context) -> Value:
    """Inputs features (b, p, c), places (b, p, 4) as frame z y x, how many are valid (b,). An image
    (b, c, `dense_shape`), 0 where no pillar stands.
    """
    features, places, valid = (ctx.tensor(i) for i in range(3))
    batch, most, channels = features.spec.shape
    height, width = ctx.attr("dense_shape")
    _, _, y, x = (ctx.cast(v, DType.INT64) for v in columns(ctx, places, 1, 1, 1, 1))
    cell = two(ctx, "Add", two(ctx, "Mul", y, width), x)
    count = ctx.reshape(ctx.cast(valid, DType.INT64), (batch, 1, 1))
    counts = two(ctx, "Less", counting(ctx, most, 1, 3), count)
    # One cell more takes what is not valid.
    cell = ctx.layer("tactix.Where", [counts, cell, ctx.scalar(height * width, cell)])
    sample = counting(ctx, batch, 0, 3)
    sample = ctx.layer("tactix.Expand", [sample], shape=(batch, most, 1))
    index = ctx.layer("tactix.Concat", [sample, cell], axis=2)
    fill = {
        "shape": (batch, height * width + 1, channels),
        "value": 0,
        "dtype": features.spec.dtype,
    }
    flat = ctx.layer("tactix.ScatterND", [ctx.layer("tactix.Fill", [], **fill), index, features])
    kept = ctx.layer(
        "tactix.Slice", [flat], begins=(0,), sizes=(height * width,), axes=(1,), steps=(1,)
    )
    turned = ctx.layer("tactix.Transpose", [kept], perm=(0, 2, 1))
    return ctx.reshape(turned, (batch, channels, height, width))
