"""The accuracy gate: how far an output may depart from the reference, per dtype."""

from __future__ import annotations

from typing import Any

from tactix.words.dtypes import DType

BUDGET = {
    DType.FP64: 1e-10,
    DType.FP32: 2e-5,
    DType.FP16: 4e-3,
    DType.BF16: 3e-2,
    DType.FP8: 2e-1,
    DType.FP8E5M2: 4e-1,
    DType.FP8FNUZ: 2e-1,
    DType.FP8E5M2FNUZ: 4e-1,
}
"""Largest difference relative to the reference's largest magnitude (at least 1e-3). Other dtypes must be equal."""


def departure(got: Any, want: Any, dtype: DType) -> float:
    """The largest difference in units of the budget: at most 1 passes. Not finite where the reference is: infinite."""
    import numpy as np

    if got.shape != want.shape:
        return float("inf")
    if dtype not in BUDGET:
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(np.isposinf(a), np.isposinf(b)):
        return float("inf")
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(b[finite]).max()), 1e-3)
    return float(np.abs(a[finite] - b[finite]).max()) / (BUDGET[dtype] * scale)
