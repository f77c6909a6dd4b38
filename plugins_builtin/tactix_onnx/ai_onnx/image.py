"""Image files as tensors, and regions of images."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.sampling import RoiAlignAttrs

CONVERTERS = Table()


@CONVERTERS("ImageDecoder")
def image_decoder(ctx: Context, node: Any) -> Value:
    pixels = ctx.attr("pixel_format", "RGB")
    return ctx.layer(
        "tactix.ImageDecoder", [ctx.tensor()], symbol=ctx.symbol(), pixel_format=pixels
    )


@CONVERTERS("RoiAlign")
def region_align_first(ctx: Context, node: Any) -> Value:
    """Before operator set 16 coordinates are as they stand: without the half pixel that later
    became the default.
    """
    return _region_align(ctx, "output_half_pixel")


@CONVERTERS("RoiAlign", since=16)
def region_align(ctx: Context, node: Any) -> Value:
    return _region_align(ctx, ctx.attr("coordinate_transformation_mode", "half_pixel"))


def _region_align(ctx: Context, coordinates: str) -> Value:
    names = {f.name for f in fields(RoiAlignAttrs)} - {"coordinate_transformation_mode"}
    given = {name: value for name in sorted(names) if (value := ctx.attr(name)) is not None}
    inputs = [ctx.tensor(), _regions(ctx, 4), ctx.tensor(2)]
    return ctx.layer("tactix.RoiAlign", inputs, coordinate_transformation_mode=coordinates, **given)


@CONVERTERS("MaxRoiPool")
def max_region_pool(ctx: Context, node: Any) -> Value:
    given = {"pooled_shape": ctx.attr("pooled_shape"), "spatial_scale": ctx.attr("spatial_scale")}
    return ctx.layer("tactix.MaxRoiPool", [ctx.tensor(), _regions(ctx, 5)], **given)


def _regions(ctx: Context, size: int) -> Value:
    """Input 1, whose rows must have so many elements: an open axis is that."""
    regions = ctx.tensor(1)
    open_rows = regions.spec.rank == 2 and not isinstance(regions.spec.shape[1], int)
    return ctx.sized(regions, 1, size) if open_rows else regions
