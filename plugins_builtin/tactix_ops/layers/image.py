"""Decoding of image files, by Pillow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ExecutionError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer, random_array
from tactix_ops.layers.common import Array, Specs, required
from tactix_ops.layers.dynamic import DynamicAttrs, fresh

PIXELS = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""Pixel formats and the modes of Pillow that they are made of."""

FILES = ("BMP", "JPEG", "JPEG2000", "TIFF", "WEBP", "PNG", "PPM")
"""Formats of files that are read; no others of those that Pillow knows."""


@dataclass(frozen=True)
class ImageDecoderAttrs(DynamicAttrs):
    """``pixel_format``: RGB, BGR or Grayscale."""

    pixel_format: str = "RGB"


class ImageDecoder(Layer):
    """The bytes of an image file (uint8) as uint8 (height, width, channels); (0, 0, channels) if it
    is damaged.

    Raises ExecutionError where Pillow is not installed.
    """

    key = "tactix.ImageDecoder@1"
    Attrs = ImageDecoderAttrs

    def infer(self, attrs: ImageDecoderAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.dtype is not DType.UINT8:
            raise DTypeError(f"{self.key} takes bytes, not {x.dtype.value}")
        if x.rank != 1:
            raise ShapeError(f"{self.key} takes a vector, not {x}")
        if attrs.pixel_format not in PIXELS:
            raise InvalidArgument(
                f"{self.key} knows no pixels {attrs.pixel_format!r}", do=f"It has {list(PIXELS)}"
            )
        return [TensorSpec(DType.UINT8, (*fresh(attrs, 2), len(PIXELS[attrs.pixel_format])))]

    def reference(self, attrs: ImageDecoderAttrs, *inputs: Array) -> tuple[Array, ...]:
        mode = PIXELS[attrs.pixel_format]
        found = _decoded(inputs[0].tobytes(), mode)
        image = (
            np.zeros((0, 0, len(mode)), np.uint8)
            if found is None
            else found.reshape(*found.shape[:2], len(mode))
        )
        return (np.ascontiguousarray(image[..., ::-1] if attrs.pixel_format == "BGR" else image),)

    def sample(self, attrs: ImageDecoderAttrs, inputs: Specs, rng: Any) -> list[Any]:
        """An image of one row, if that fits."""
        (spec,) = required(self, inputs, 1)
        x = random_array(spec, rng)
        head = b"P5 %d 1 255\n" % max(1, x.size - 16)
        if x.size >= 32 and not spec.is_const:
            x[: len(head)] = np.frombuffer(head, np.uint8)
        return [x]


def _decoded(data: bytes, mode: str) -> Array | None:
    """The image in a mode of Pillow; None if it cannot be read, or is so large that it is taken for
    an attack.
    """
    try:
        from PIL import Image
    except ImportError as e:
        raise ExecutionError(
            "Pillow is not installed",
            who=ImageDecoder.key,
            why=str(e),
            do="pip install 'tactix[image]'",
        ) from e
    try:
        with Image.open(io.BytesIO(data), formats=FILES) as image:
            return np.asarray(image if image.mode == mode else image.convert(mode))
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        return None


LAYERS: tuple[Layer, ...] = (ImageDecoder(),)
