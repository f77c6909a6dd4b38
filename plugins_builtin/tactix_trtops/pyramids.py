"""Regions of pyramids of feature maps: each is sampled on the level that suits its area."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.index import counting
from tactix_onnx.ai_onnx_ml.classical import two
from tactix_onnx.convert import Context
from tactix_trtops.operator import Operators, columns, number
from tactix_trtops.sampling import as_grid, crops

OPERATORS = Operators()

CANONICAL = 224
"""Side of a region in pixels, at which the third level begins: T. Lin et al., "Feature Pyramid
Networks", 2017."""
LEGACY_IMAGE = 1024
"""Side of the image that the legacy form is for, in pixels."""
HALF_PIXEL, OUTPUT_HALF_PIXEL = 2, 1
"""Of ``roi_coords_transform``: where elements of a level lie."""


def _levels(ctx: Context) -> list[Value]:
    return [ctx.tensor(i) for i in range(1, len(ctx.inputs))]


def _chosen(ctx: Context, area: Value, first: float, found: Sequence[Value]) -> Value:
    """Of what each level gives (b, r, c, h, w) that of the level for an area (b, r, 1): the next
    one where the area is above ``first``, and so on in steps of 4.
    """
    batch, count, _ = area.spec.shape
    wide = ctx.reshape(area, (batch, count, 1, 1, 1))
    out = found[0]
    for step, level in enumerate(found[1:]):
        above = two(ctx, "Greater", wide, first * 4**step)
        out = ctx.layer("tactix.Where", [above, level, out])
    return out


# -- PyramidROIAlign -------------------------------------------------------------------------------

PYRAMID = {
    "fpn_scale": "int", "pooled_size": "int", "image_size": "ints", "roi_coords_absolute": "int",
    "roi_coords_swap": "int", "roi_coords_plusone": "int", "roi_coords_transform": "int",
    "sampling_ratio": "int", "legacy": "int",
}  # fmt: skip


@OPERATORS("PyramidROIAlign_TRT", fields=PYRAMID)
def pyramid_region_align(ctx: Context) -> Value:
    """Inputs regions (b, r, 4) and four levels (b, c, h, w): ROIAlign of each region on the level
    for its area, (b, r, c, `pooled_size`, `pooled_size`).
    """
    size = ctx.attr("pooled_size", 7)
    if ctx.attr("legacy", 0):
        return _legacy(ctx, size)
    mode = ctx.attr("roi_coords_transform", HALF_PIXEL)
    if mode not in (HALF_PIXEL, OUTPUT_HALF_PIXEL):
        ctx.fail(f"roi_coords_transform {mode} is not supported", do="Give 1 or 2")
    height, width = ctx.attr("image_size", (LEGACY_IMAGE, LEGACY_IMAGE))
    ends = _ends(ctx, bool(ctx.attr("roi_coords_swap", 0)))
    if ctx.attr("roi_coords_absolute", 1):
        ends = [two(ctx, "Div", e, s) for e, s in zip(ends, (height, width) * 2, strict=True)]
    ends = [ctx.layer("tactix.Clip", [e], min=0.0, max=1.0) for e in ends]
    more = (1 / height, 1 / width) if ctx.attr("roi_coords_plusone", 0) else (0.0, 0.0)
    first = ctx.attr("fpn_scale", CANONICAL) ** 2 / (height * width) / 4
    shift = 0.0 if mode == HALF_PIXEL else 0.5
    ratio = ctx.attr("sampling_ratio", 0)
    found = [_aligned(ctx, x, ends, size, ratio, shift) for x in _levels(ctx)]
    return _chosen(ctx, _area(ctx, ends, more), first, found)


def _ends(ctx: Context, rows_first: bool) -> list[Value]:
    """y x y x of regions, (b, r, 1) each, the lower ends first."""
    a, b, c, d = columns(ctx, ctx.tensor(), 1, 1, 1, 1)
    pairs = [(a, c), (b, d)] if rows_first else [(b, d), (a, c)]
    return [ctx.layer(f"tactix.{f}", pair) for f in ("Min", "Max") for pair in pairs]


def _area(ctx: Context, ends: Sequence[Value], more: Sequence[float]) -> Value:
    sides = [two(ctx, "Add", two(ctx, "Sub", ends[k + 2], ends[k]), more[k]) for k in (0, 1)]
    return two(ctx, "Mul", *sides)


def _aligned(
    ctx: Context, x: Value, ends: Sequence[Value], size: int, ratio: int, shift: float
) -> Value:
    """RoiAlign of regions between 0 and 1 on one level."""
    (batch, channels, h, w), count = x.spec.shape, ends[0].spec.shape[1]
    sides = [float(number(ctx, d, "level")) for d in (h, w)] * 2
    places = [
        two(ctx, "Add", two(ctx, "Mul", e, s), shift) for e, s in zip(ends, sides, strict=True)
    ]
    y1, x1, y2, x2 = places
    regions = ctx.reshape(ctx.layer("tactix.Concat", [x1, y1, x2, y2], axis=2), (batch * count, 4))
    owner = ctx.layer("tactix.Expand", [counting(ctx, batch, 0, 2)], shape=(batch, count))
    inputs = [x, regions, ctx.reshape(owner, (batch * count,))]
    fields = {"output_height": size, "output_width": size, "sampling_ratio": ratio}
    found = ctx.layer("tactix.RoiAlign", inputs, **fields)
    return ctx.reshape(found, (batch, count, channels, size, size))


def _legacy(ctx: Context, size: int) -> Value:
    """As first released: y before x between 0 and 1, one sample for each element, the outermost
    ones at the corners.
    """
    ctx.ignore(*PYRAMID)
    ends = [ctx.layer("tactix.Clip", [e], min=0.0, max=1.0) for e in _ends(ctx, True)]
    regions = ctx.layer("tactix.Concat", ends, axis=2)
    first = CANONICAL**2 * 2 / LEGACY_IMAGE**2 / 16
    found = [crops(ctx, x, regions, (size, size)) for x in _levels(ctx)]
    return _chosen(ctx, _area(ctx, ends, (0.0, 0.0)), first, found)


# -- MultilevelCropAndResize -----------------------------------------------------------------------


@OPERATORS("MultilevelCropAndResize_TRT", fields={"pooled_size": "int", "image_size": "ints"})
def multilevel_crop_and_resize(ctx: Context) -> Value:
    """Inputs regions (b, r, 4) as y x y x in pixels and five levels (b, c, h, w), of strides from 4
    to 64. Each region on the level for its area, one linear sample for each of `pooled_size`
    squared elements; 0 for regions that leave the image or are empty.
    """
    size, (_, height, width) = ctx.attr("pooled_size"), ctx.attr("image_size", (3, 832, 1344))
    y1, x1, y2, x2 = ends = columns(ctx, ctx.tensor(), 1, 1, 1, 1)
    valid = two(ctx, "And", two(ctx, "Less", y1, y2), two(ctx, "Less", x1, x2))
    for end, most in zip(ends, (height, width) * 2, strict=True):
        inside = two(
            ctx, "And", two(ctx, "GreaterOrEqual", end, 0), two(ctx, "LessOrEqual", end, most)
        )
        valid = two(ctx, "And", valid, inside)
    found = [_sampled(ctx, x, ends, size, 4 << k) for k, x in enumerate(_levels(ctx))]
    chosen = _chosen(ctx, _area(ctx, ends, (0.0, 0.0)), CANONICAL**2 / 4, found)
    batch, count, _ = valid.spec.shape
    wide = ctx.reshape(valid, (batch, count, 1, 1, 1))
    return ctx.layer("tactix.Where", [wide, chosen, ctx.scalar(0.0, chosen)])


def _sampled(ctx: Context, x: Value, ends: Sequence[Value], size: int, stride: int) -> Value:
    """(b, r, c, size, size): samples at the middle of each of a region's parts."""
    (batch, channels, *sides), count = x.spec.shape, ends[0].spec.shape[1]
    middles = (np.arange(size) + 0.5) / size
    axes: list[Value] = []
    for k, side in enumerate(sides):
        shape: Any = (1, 1, size, 1) if k == 0 else (1, 1, 1, size)
        first, last = (ctx.reshape(ends[j], (batch, count, 1, 1)) for j in (k, k + 2))
        moved = two(ctx, "Mul", two(ctx, "Sub", last, first), middles.reshape(shape))
        longest = stride * max(1, number(ctx, side, "level") - 1)
        axes.append(two(ctx, "Div", two(ctx, "Add", first, moved), float(longest)))
    shape = (batch, count, size, size)
    pairs = [
        ctx.reshape(ctx.layer("tactix.Expand", [a], shape=shape), (*shape, 1)) for a in axes[::-1]
    ]
    grid = as_grid(ctx, ctx.layer("tactix.Concat", pairs, axis=4))
    grid = ctx.reshape(grid, (batch, count * size, size, 2))
    fields = {"mode": "linear", "padding_mode": "border", "align_corners": True}
    found = ctx.layer("tactix.GridSample", [x, grid], **fields)
    found = ctx.reshape(found, (batch, channels, count, size, size))
    return ctx.layer("tactix.Transpose", [found], perm=(0, 2, 1, 3, 4))
