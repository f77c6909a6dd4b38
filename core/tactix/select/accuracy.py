"""The accuracy gate: how far an output may depart from the reference, per dtype."""

from __future__ import annotations

from typing import Any

from tactix.contracts.graph import Node
from tactix.words.dtypes import DType

BUDGET = {
    DType.FP64: 1e-10, DType.FP32: 2e-5, DType.FP16: 4e-3, DType.BF16: 3e-2,
    DType.FP8: 2e-1, DType.FP8FNUZ: 2e-1, DType.FP8E5M2: 4e-1, DType.FP8E5M2FNUZ: 4e-1,
}  # fmt: skip
"""Largest difference relative to the reference's largest magnitude (at least 1e-3). Other dtypes must be equal."""

SLACK = {"tf32": BUDGET[DType.FP16] / BUDGET[DType.FP32]}
"""Budgets that a tactic's kind of numerics grants: tf32 has the mantissa of float16."""


def slack(node: Node) -> float:
    """How many budgets of its output any tactic may use: halves on the way round more. At least 1."""
    made = node.body.infer([v.spec for v in node.given])[node.body.arity :]
    out = BUDGET.get(node.outputs[0].spec.dtype, float("inf"))
    coarsest = max(BUDGET.get(x.dtype, 0.0) for x in made) if len(node.outputs) == 1 else 0.0
    return max(1.0, coarsest / out)


def departure(got: Any, want: Any, dtype: DType) -> float:
    """The largest difference in units of the budget: at most 1 passes. Not finite where the reference is: infinite."""
    import numpy as np

    if got.shape != want.shape:
        return float("inf")
    if dtype not in BUDGET:
        return 0.0 if np.array_equal(got, want) else float("inf")
    wide: Any = np.float32 if dtype.bits <= 16 else np.float64
    a, b = np.asarray(got, wide), np.asarray(want, wide)
    with np.errstate(all="ignore"):
        worst = float(np.abs(a - b).max(initial=0))
    if not np.isfinite(worst):
        finite = np.isfinite(b)
        if any(not np.array_equal(f(a), f(b)) for f in (np.isnan, np.isposinf, np.isfinite)):
            return float("inf")
        a, b = a[finite], b[finite]
        worst = float(np.abs(a - b).max(initial=0))
    return worst / (BUDGET[dtype] * max(float(np.abs(b).max(initial=0)), 1e-3))
