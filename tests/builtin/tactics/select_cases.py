"""Arrays for tests of kernels that order and choose elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType

CODES = ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"]
WILD = (0.0, -0.0, np.nan, 1, np.inf, -np.inf, 1, -1, 6e-8, -6e-8, -np.nan, 0.0, 7)
"""Floats that are hard to put in order."""


def drawn(code: str, *shape: int, seed: int = 0) -> Any:
    """Random numbers from the whole range of a dtype; floats around 0."""
    rng, dtype = np.random.default_rng(seed), DType(code)
    if dtype.is_float:
        return (rng.standard_normal(shape) * 9).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)


def wild(code: str, times: int = 31) -> Any:
    """``WILD`` in a random order, so often."""
    return np.random.default_rng(3).permutation(np.tile(WILD, times)).astype(DType(code).numpy)
