"""Signals and matrices: discrete Fourier transforms, mel filters, determinants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, floordiv, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, axis_of, pick, required, same_dim, wide
from tactix_ops.layers.dynamic import numbers


@dataclass(frozen=True)
class DFTAttrs:
    """``axis``: the signal's. ``length``: it is cut or filled with zeros to it; 0: as it is.

    ``onesided``: only the first half of the result, or that half as input of the inverse, whose
    result is real.
    """

    axis: int = -2
    length: Dim = 0
    inverse: bool = False
    onesided: bool = False


class DFT(Layer):
    """The discrete Fourier transform of x (..., 1 or 2): real numbers, or pairs of real and
    imaginary part.
    """

    key = "tactix.DFT@1"
    Attrs = DFTAttrs

    def infer(self, attrs: DFTAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        axis = axis_of(attrs.axis, x.rank, self.key)
        if x.rank < 2 or axis == x.rank - 1 or x.shape[-1] not in (1, 2):
            raise ShapeError(
                f"{self.key}: axis {axis} of {x}, whose last axis holds real and imaginary parts"
            )
        size, parts = attrs.length, 2
        if size == 0 and attrs.onesided and attrs.inverse:
            size = (x.shape[axis] - 1) * 2
        size = x.shape[axis] if size == 0 else size
        if attrs.onesided:
            size, parts = (size, 1) if attrs.inverse else (floordiv(size, 2) + 1, 2)
        return [TensorSpec(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 : -1], parts))]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        z = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
        axis = attrs.axis % x.ndim
        length = attrs.length or None
        if not attrs.onesided:
            y: Array = (np.fft.ifft if attrs.inverse else np.fft.fft)(z, length, axis)
        elif attrs.inverse:
            y = np.fft.irfft(z, length, axis)
        else:
            y = np.fft.rfft(z.real, length, axis)
        parts = [y] if attrs.onesided and attrs.inverse else [y.real, y.imag]
        return (np.stack(parts, axis=-1).astype(inputs[0].dtype),)


@dataclass(frozen=True)
class DynamicDFTAttrs:
    """As those of DFT, but for ``axis`` and ``length``."""

    symbol: str = "dft"
    inverse: bool = False
    onesided: bool = False


class DynamicDFT(Layer):
    """DFT with length and axis (-2) in scalars; inputs x, length?, axis?."""

    key = "tactix.DynamicDFT@1"
    Attrs = DynamicDFTAttrs

    def infer(self, attrs: DynamicDFTAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        parts = 1 if attrs.onesided and attrs.inverse else 2
        return [
            TensorSpec(x.dtype, (*(sym(f"{attrs.symbol}_{i}") for i in range(x.rank - 1)), parts))
        ]

    def reference(self, attrs: DynamicDFTAttrs, *inputs: Array) -> tuple[Array, ...]:
        length, axis = (
            None if a is None else numbers(a)[0] for a in (pick(inputs, 1), pick(inputs, 2))
        )
        static = DFTAttrs(-2 if axis is None else axis, length or 0, attrs.inverse, attrs.onesided)
        return DFT().reference(static, inputs[0])

    def sample(self, attrs: DynamicDFTAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out: list[Array] = super().sample(attrs, inputs, rng)
        return [
            out[0],
            *(
                x if x is None else np.full_like(x, v)
                for x, v in zip(out[1:], (5, -2), strict=False)
            ),
        ]


@dataclass(frozen=True)
class STFTAttrs:
    """``frame_step``: from a frame's begin to the next one's; ``frame_length``: of a frame."""

    frame_step: int = 1
    frame_length: int = 1
    onesided: bool = True


class STFT(Layer):
    """Fourier transforms of frames of a signal (batch, n, 1 or 2): (batch, frames, bins, 2).
    Inputs: x, window?.
    """

    key = "tactix.STFT@1"
    Attrs = STFTAttrs

    def infer(self, attrs: STFTAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.rank != 3:
            raise ShapeError(f"{self.key} takes (batch, n, 1 or 2), not {x}")
        frames = floordiv(x.shape[1] - attrs.frame_length, attrs.frame_step) + 1
        bins = attrs.frame_length // 2 + 1 if attrs.onesided else attrs.frame_length
        return [TensorSpec(x.dtype, (x.shape[0], frames, bins, 2))]

    def reference(self, attrs: STFTAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, window = wide(inputs[0]), pick(inputs, 1)
        view = np.lib.stride_tricks.sliding_window_view(x, attrs.frame_length, axis=1)
        frames = np.moveaxis(view[:, :: attrs.frame_step], -1, 2)
        if window is not None:
            frames = frames * wide(window)[:, None]
        y = DFT().reference(DFTAttrs(2, 0, False, attrs.onesided), frames)[0]
        return (y.astype(inputs[0].dtype, copy=False),)


class DynamicSTFT(Layer):
    """STFT with its numbers in scalars; inputs x, frame_step, window?, frame_length?."""

    key = "tactix.DynamicSTFT@1"
    Attrs = DynamicDFTAttrs

    def infer(self, attrs: DynamicDFTAttrs, inputs: Specs) -> list[TensorSpec]:
        x, _ = required(self, inputs, 2)
        return [
            TensorSpec(x.dtype, (x.shape[0], sym(f"{attrs.symbol}_0"), sym(f"{attrs.symbol}_1"), 2))
        ]

    def reference(self, attrs: DynamicDFTAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, step, window, length = inputs[0], numbers(inputs[1])[0], pick(inputs, 2), pick(inputs, 3)
        size = (
            numbers(length)[0]
            if length is not None
            else x.shape[1]
            if window is None
            else len(window)
        )
        static = STFTAttrs(step, size, attrs.onesided)
        return STFT().reference(static, x, *([] if window is None else [window]))

    def sample(self, attrs: DynamicDFTAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out: list[Array] = super().sample(attrs, inputs, rng)
        out[1] = np.full_like(out[1], 2)
        if len(out) > 3 and out[3] is not None:
            out[3] = np.full_like(out[3], 4 if out[2] is None else len(out[2]))
        return out


@dataclass(frozen=True)
class MelWeightMatrixAttrs:
    """``symbol``: the result's dims are called ``symbol_0`` and ``symbol_1``."""

    symbol: str = "mel"
    dtype: DType = DType.FP32


class MelWeightMatrix(Layer):
    """Triangular filters (dft_length // 2 + 1, bins), evenly spaced on the mel scale, 2595 log10(1
    + f / 700).

    Inputs, all scalars: number of bins, dft_length, sample rate in Hz, lowest and highest frequency
    in Hz.
    """

    key = "tactix.MelWeightMatrix@1"
    Attrs = MelWeightMatrixAttrs

    def infer(self, attrs: MelWeightMatrixAttrs, inputs: Specs) -> list[TensorSpec]:
        required(self, inputs, 5)
        return [TensorSpec(attrs.dtype, (sym(f"{attrs.symbol}_0"), sym(f"{attrs.symbol}_1")))]

    def reference(self, attrs: MelWeightMatrixAttrs, *inputs: Array) -> tuple[Array, ...]:
        count, length, rate, low, high = (x.item() for x in inputs)
        ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
        mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
        places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
        row = np.arange(length // 2 + 1)[:, None]
        first, middle, last = places[:-2], places[1:-1], places[2:]
        rise = np.where(
            (row >= first) & (row < middle), (row - first) / np.maximum(middle - first, 1), 0
        )
        fall = np.where(
            (row > middle) & (row < last), (last - row) / np.maximum(last - middle, 1), 0
        )
        return (np.where(row == middle, 1, rise + fall).astype(attrs.dtype.numpy),)

    def sample(self, attrs: MelWeightMatrixAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out: list[Array] = super().sample(attrs, inputs, rng)
        return [np.full_like(x, v) for x, v in zip(out, (8, 16, 8192, 0, 4096), strict=True)]


class Det(Layer):
    """The determinant of each matrix (..., n, n)."""

    key = "tactix.Det@1"
    imports = ("onnx:ai.onnx::Det",)

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.rank < 2:
            raise ShapeError(f"{self.key} takes matrices, not {x}")
        same_dim(x.shape[-2], x.shape[-1], self.key, "the number of rows and columns")
        return [TensorSpec(x.dtype, x.shape[:-2])]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.linalg.det(wide(inputs[0]))).astype(inputs[0].dtype, copy=False),)


class Inverse(Layer):
    """The inverse of each matrix (..., n, n); of a singular one, NaN."""

    key = "tactix.Inverse@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.rank < 2:
            raise ShapeError(f"{self.key} takes matrices, not {x}")
        same_dim(x.shape[-2], x.shape[-1], self.key, "the number of rows and columns")
        return [x.plain()]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        singular = np.linalg.det(x) == 0
        y = np.linalg.inv(
            np.where(singular[..., None, None], np.eye(x.shape[-1], dtype=x.dtype), x)
        )
        return (np.where(singular[..., None, None], np.nan, y).astype(inputs[0].dtype, copy=False),)


LAYERS: tuple[Layer, ...] = (
    DFT(),
    DynamicDFT(),
    STFT(),
    DynamicSTFT(),
    MelWeightMatrix(),
    Det(),
    Inverse(),
)
