"""Image files as tensors."""

from __future__ import annotations

from typing import Any

from tactix.contracts.graph import Value
from tactix_builtin.onnx_importer.convert import Context, Table

CONVERTERS = Table()


@CONVERTERS("ImageDecoder")
def image_decoder(ctx: Context, node: Any) -> Value:
    pixels = ctx.attr("pixel_format", "RGB")
    return ctx.layer("tactix.ImageDecoder", [ctx.tensor()], symbol=ctx.symbol(), pixel_format=pixels)
