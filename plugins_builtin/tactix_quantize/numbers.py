"""Scales, zero points and numbers of 8 bits, of ranges and weights: integers, or floats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType

LARGEST = 127
"""Of int8 that stands for the magnitude of a symmetric range, and for weights: -128 is not used, as
products of two of them overflow the pairs of 16 bits that processors add.
"""
LARGEST_REDUCED = 64
"""Of weights with a reduced range: two of their products with 255 add up to 32640, which 16 bits
hold. So processors without VNNI add them exactly, as they come (VPMADDUBSW of Intel's manual).
"""
LARGEST_FLOAT = 448
"""The largest finite number of float8 e4m3fn (OCP 8-bit Floating Point Specification, 1.0)."""
MOST = 1 << 30
"""Largest bias in int32: sums of products stay within int32 beside it."""
TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class NarrowScale:
    """``scale * (q - zero)`` is what the number q of 8 bits stands for."""

    scale: np.float32
    zero: int
    dtype: DType


@dataclass(frozen=True)
class NarrowWeights:
    """Numbers as they are stored, and a scale for each output channel, or one for all."""

    stored: Array
    scales: Array


class NarrowNumbers(ABC):
    """Numbers of 8 bits that products read in place of float32. ``name``: as options have it;
    ``plural``: as messages have it; ``products``: layers that compute with them; ``opset``: the
    first of ONNX whose QuantizeLinear has them, for channels, too; ``symmetric``: whether their
    ranges always reach as far below zero as above.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    products: ClassVar[frozenset[str]]
    opset: ClassVar[int]
    symmetric: ClassVar[bool]

    @abstractmethod
    def scale(self, low: float, high: float, symmetric: bool) -> NarrowScale:
        """For numbers from low to high; zero is always one of them. A range that is empty, or so
        small that its scale is no normal float32, is as if it reached one.
        """

    @abstractmethod
    def weights(self, w: Array, axis: int, per_channel: bool = True) -> NarrowWeights:
        """``axis``: of the channels."""

    @abstractmethod
    def bias(self, bias: Array, scales: Array) -> Array | None:
        """In units of the scales; None where it stays float32."""

    @abstractmethod
    def rounded(self, x: Array, a: NarrowScale) -> Array:
        """A tensor as these numbers have it, float32."""


class EightBitIntegers(NarrowNumbers):
    """int8, or uint8 for activations whose range has two ends. ``largest_weight``: what stands for
    the largest magnitude of weights.
    """

    name, plural, opset, symmetric = "int8", "integers", 13, False
    products = frozenset({"Convolution", "Gemm", "MatMul"})

    def __init__(self, largest_weight: int = LARGEST) -> None:
        self.largest_weight = largest_weight

    def scale(self, low: float, high: float, symmetric: bool) -> NarrowScale:
        """int8 with zero point 0 where numbers are ``symmetric`` or shall be taken so, else
        uint8.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        symmetric = symmetric or low == -high
        span = max(-low, high) / LARGEST if symmetric else (high - low) / 255
        scale = np.float32(span) if span > TINY else np.float32(1 / LARGEST)
        if symmetric:
            return NarrowScale(scale, 0, DType.INT8)
        zero = int(np.clip(np.rint(-low / float(scale)), 0, 255))
        return NarrowScale(scale, zero, DType.UINT8)

    def weights(self, w: Array, axis: int, per_channel: bool = True) -> NarrowWeights:
        largest = self.largest_weight
        scales, shape = _channel_scales(w, axis, per_channel, largest)
        whole = np.clip(np.rint(w / scales.reshape(shape)), -largest, largest)
        return NarrowWeights(whole.astype(np.int8), scales)

    def bias(self, bias: Array, scales: Array) -> Array | None:
        """int32; None where that does not hold it."""
        whole = np.rint(bias.astype(np.float64) / scales)
        return None if np.abs(whole).max(initial=0) >= MOST else whole.astype(np.int32)

    def rounded(self, x: Array, a: NarrowScale) -> Array:
        low, high = (0, 255) if a.dtype is DType.UINT8 else (-128, 127)
        whole: Array = np.clip(np.rint(x / a.scale) + a.zero, low, high)
        found: Array = ((whole - a.zero) * a.scale).astype(np.float32)
        return found


class EightBitFloats(NarrowNumbers):
    """float8 e4m3fn: the largest magnitude of a range is the largest number, and nothing is
    added.
    """

    name, plural, opset, symmetric = "fp8", "8-bit floats", 19, True
    products = frozenset({"Gemm", "MatMul"})

    def scale(self, low: float, high: float, symmetric: bool) -> NarrowScale:
        span = max(-low, high) / LARGEST_FLOAT
        return NarrowScale(np.float32(span if span > TINY else 1 / LARGEST_FLOAT), 0, DType.FP8)

    def weights(self, w: Array, axis: int, per_channel: bool = True) -> NarrowWeights:
        scales, shape = _channel_scales(w, axis, per_channel, LARGEST_FLOAT)
        return NarrowWeights(_float8(w / scales.reshape(shape)), scales)

    def bias(self, bias: Array, scales: Array) -> Array | None:
        return None

    def rounded(self, x: Array, a: NarrowScale) -> Array:
        found: Array = (_float8(x / a.scale).astype(np.float32) * a.scale).astype(np.float32)
        return found


INTEGERS, FLOATS8 = EightBitIntegers(), EightBitFloats()
NUMBERS: Mapping[str, NarrowNumbers] = {n.name: n for n in (INTEGERS, FLOATS8)}
"""By name."""
REDUCED = EightBitIntegers(LARGEST_REDUCED)
"""int8 whose weights have a reduced range."""


def _channel_scales(
    w: Array, axis: int, per_channel: bool, largest: int
) -> tuple[Array, tuple[int, ...]]:
    """float32, and the shape in which they broadcast over the weights."""
    others = tuple(i for i in range(w.ndim) if i != axis) if per_channel else None
    most = np.abs(w).max(axis=others).astype(np.float32)
    scales = np.atleast_1d(most / np.float32(largest))
    scales = np.where(scales > TINY, scales, np.float32(1 / largest)).astype(np.float32)
    return scales, tuple(-1 if per_channel and i == axis else 1 for i in range(w.ndim))


def _float8(x: Array) -> Array:
    """To the nearest, even where two are as near; what is beyond the largest becomes that."""
    found: Array = np.clip(x, -LARGEST_FLOAT, LARGEST_FLOAT).astype(DType.FP8.numpy)
    return found


def is_usable(low: float, high: float) -> bool:
    """Whether a range has a scale that is a normal float32: one of zeros has none."""
    return bool(max(-low, high) / LARGEST_FLOAT > TINY)


def usable(ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Those ranges that have a scale."""
    return {name: r for name, r in ranges.items() if is_usable(*r)}
