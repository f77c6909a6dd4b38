"""Scales, zero points and integers of ranges and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType

LARGEST = 127
"""Of int8 that stands for the magnitude of a symmetric range, and for weights: -128 is not used, as
products of two of them overflow the pairs of 16 bits that processors add.
"""
MOST = 1 << 30
"""Largest bias in int32: sums of products stay within int32 beside it."""


@dataclass(frozen=True)
class IntegerScale:
    """``scale * (q - zero)`` is the number that the integer q stands for."""

    scale: np.float32
    zero: int
    dtype: DType


@dataclass(frozen=True)
class IntegerWeights:
    """int8, and a scale for each output channel."""

    whole: Array
    scales: Array


def is_usable(low: float, high: float) -> bool:
    """Whether a range has a scale that is a normal float32: one of zeros has none."""
    return bool(max(-low, high) / 255 > np.finfo(np.float32).tiny)


def usable(ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Those ranges that have a scale."""
    return {name: r for name, r in ranges.items() if is_usable(*r)}


def affine(low: float, high: float, symmetric: bool) -> IntegerScale:
    """For numbers from low to high, int8 with zero point 0 where they are ``symmetric`` or shall be
    taken so, else uint8. Zero is always an integer. A range that is empty, or so small that its
    scale is no normal float32, is as if it reached one.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    symmetric = symmetric or low == -high
    span = max(-low, high) / LARGEST if symmetric else (high - low) / 255
    scale = np.float32(span) if span > np.finfo(np.float32).tiny else np.float32(1 / LARGEST)
    if symmetric:
        return IntegerScale(scale, 0, DType.INT8)
    zero = int(np.clip(np.rint(-low / float(scale)), 0, 255))
    return IntegerScale(scale, zero, DType.UINT8)


def quantized_weights(w: Array, axis: int, per_channel: bool = True) -> IntegerWeights:
    """``axis``: of the channels."""
    others = tuple(i for i in range(w.ndim) if i != axis) if per_channel else None
    most = np.abs(w).max(axis=others).astype(np.float32)
    scales = np.atleast_1d(most / np.float32(LARGEST))
    scales = np.where(scales > np.finfo(np.float32).tiny, scales, np.float32(1 / LARGEST))
    shape = [-1 if i == axis else 1 for i in range(w.ndim)] if per_channel else [1] * w.ndim
    whole = np.clip(np.rint(w / scales.reshape(shape)), -LARGEST, LARGEST)
    return IntegerWeights(whole.astype(np.int8), scales.astype(np.float32))


def quantized_bias(bias: Array, scales: Array) -> Array | None:
    """In units of the scales, int32; None where that does not hold it."""
    whole = np.rint(bias.astype(np.float64) / scales)
    return None if np.abs(whole).max(initial=0) >= MOST else whole.astype(np.int32)


def limits(a: IntegerScale) -> tuple[int, int]:
    """Lowest and highest integer of a tensor."""
    return (0, 255) if a.dtype is DType.UINT8 else (-128, 127)
