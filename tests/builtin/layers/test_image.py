"""Image files of every format, damaged ones, and a machine without Pillow."""

from __future__ import annotations

import builtins
import io
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ExecutionError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix_ops.layers.image import ImageDecoder, ImageDecoderAttrs

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(6)
PICTURE = RNG.integers(0, 256, (5, 7, 3), np.uint8)
LOSSLESS = {
    "BMP": {},
    "TIFF": {},
    "PNG": {},
    "PPM": {},
    "WEBP": {"lossless": True},
    "JPEG2000": {"irreversible": False},
}
LAYER = ImageDecoder()


def encoded(picture: Any, file: str, mode: str | None = None, **options: Any) -> Any:
    stream = io.BytesIO()
    image = Image.fromarray(picture)
    (image.convert(mode) if mode else image).save(stream, file, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


def decoded(data: Any, pixels: str = "RGB") -> Any:
    (y,) = LAYER.reference(ImageDecoderAttrs(pixel_format=pixels), data)
    assert y.dtype == np.uint8
    return y


@pytest.mark.parametrize("file", LOSSLESS)
def test_lossless_files_come_back(file: str) -> None:
    data = encoded(PICTURE, file, **LOSSLESS[file])
    np.testing.assert_array_equal(decoded(data), PICTURE)
    np.testing.assert_array_equal(decoded(data, "BGR"), PICTURE[..., ::-1])
    grey = decoded(data, "Grayscale")
    luma = PICTURE @ np.array([0.299, 0.587, 0.114])
    assert grey.shape == (5, 7, 1)
    assert np.abs(grey[..., 0] - luma).max() <= 1


def test_a_smooth_photograph_comes_back_nearly() -> None:
    rows, columns = np.mgrid[0:32, 0:48]
    smooth = np.stack([rows * 7, columns * 5, rows + columns], axis=-1).astype(np.uint8)
    assert np.abs(decoded(encoded(smooth, "JPEG", quality=95)).astype(int) - smooth).max() < 12


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "LA"])
def test_other_modes_become_colours(mode: str) -> None:
    assert decoded(encoded(PICTURE, "PNG", mode)).shape == (5, 7, 3)


def test_damaged_files_are_empty() -> None:
    data = encoded(PICTURE, "PNG")
    flipped = data.copy()
    flipped[40:] ^= 255
    for wrong in (
        data[:50],
        data[:0],
        flipped,
        RNG.integers(0, 256, 100, np.uint8),
        encoded(PICTURE, "GIF"),
    ):
        assert decoded(wrong).shape == (0, 0, 3)
        assert decoded(wrong, "Grayscale").shape == (0, 0, 1)


def test_a_small_file_of_a_huge_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decoded(encoded(PICTURE, "PNG")).shape == (0, 0, 3)


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name == "PIL":
            raise ImportError("No module named 'PIL'")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ExecutionError, match=r"pip install 'tactix\[image\]'"):
        decoded(np.zeros(9, np.uint8))


def test_what_does_not_fit_is_refused() -> None:
    attrs = ImageDecoderAttrs()
    for spec, error in [((DType.INT8, (9,)), DTypeError), ((DType.UINT8, (3, 3)), ShapeError)]:
        with pytest.raises(error):
            LAYER.infer(attrs, [TensorSpec(*spec)])
    with pytest.raises(InvalidArgument, match="CMYK"):
        LAYER.infer(ImageDecoderAttrs(pixel_format="CMYK"), [TensorSpec(DType.UINT8, (9,))])
