"""How far two arrays are from each other, and whether that passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.launcher import Step
from tactix.contracts.tactic import Tactic
from tactix.plan.schema import Plan

RTOL = 1e-4
"""Of what is computed in float32: the order of sums differs."""
ROUNDED_RTOL = {DType.FP16: 2e-2, DType.BF16: 6e-2}
"""By what values are rounded to: some twenty units of rounding, which a deep network adds up."""
TF32_RTOL = ROUNDED_RTOL[DType.FP16]
"""Its mantissa is that of float16."""
QUANTIZED_RTOL = 6e-2
"""Of weights in 8 bits and less: a value on the edge between two steps falls to either side."""


@dataclass(frozen=True)
class Agreement:
    """One output against one peer.

    ``max_abs``: the largest difference. ``max_rel``: that, relative to the peer's largest
    magnitude. ``cosine``: of the angle between the flattened arrays. ``outside``: elements beyond
    the tolerance. ``note``: what else is wrong. ``p50``, ``p90``, ``p99``: so many per cent of the
    differences are no larger.
    """

    output: str
    peer: str
    max_abs: float
    max_rel: float
    cosine: float
    outside: int
    note: str = ""
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.outside and not self.note

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def agree(
    output: str, peer: str, got: Any, want: Any, rtol: float, atol: float | None
) -> Agreement:
    """Compare: an element passes if ``|got - want| <= atol + rtol * |want|``; integers and booleans
    must be equal.

    ``atol`` None means ``rtol`` times the largest magnitude in ``want``. NaN equals NaN, infinities
    their like.
    """
    import numpy as np

    (got, names), (want, expected) = _table(got), _table(want)
    if names != expected:
        note = f"maps of {names} instead of {expected}"
        return Agreement(output, peer, float("inf"), float("inf"), 0.0, len(want), note)
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        note = f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        return Agreement(output, peer, float("inf"), float("inf"), 0.0, want.size, note)
    exact = want.dtype.kind in "biuOSU"
    if exact and want.dtype.kind in "OSU":
        return Agreement(output, peer, 0.0, 0.0, 1.0, int((got != want).sum()))
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.where(finite, np.abs(a - b), np.inf))
    slack = (
        np.zeros_like(gap) if exact else (rtol * scale if atol is None else atol) + rtol * np.abs(b)
    )
    outside = int((~same & ~(finite & (gap <= slack))).sum())
    worst = float(gap.max(initial=0.0))
    return Agreement(
        output,
        peer,
        worst,
        worst / scale if scale else worst,
        _cosine(a[finite], b[finite]),
        outside,
        "",
        *_percentiles(gap),
    )


def _percentiles(gap: Any) -> tuple[float, float, float]:
    """The 50th, 90th and 99th of the differences, each one that is there; 0 of none."""
    import numpy as np

    if not gap.size:
        return 0.0, 0.0, 0.0
    p50, p90, p99 = np.percentile(gap, (50, 90, 99), method="higher").tolist()
    return p50, p90, p99


def _table(value: Any) -> tuple[Any, list[Any]]:
    """A list of maps as rows of their numbers, and their labels. All else as it is."""
    if not (isinstance(value, list) and value and all(isinstance(m, dict) for m in value)):
        return value, []
    labels = sorted({k for m in value for k in m}, key=str)
    return [[m.get(k, float("nan")) for k in labels] for m in value], labels


def _cosine(a: Any, b: Any) -> float:
    """1 for equal directions; two zero vectors count as equal."""
    import numpy as np

    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else float(np.array_equal(a, b))


def tolerance(plan: Plan, tactics: Mapping[str, Tactic]) -> float:
    """What a plan may depart by for what its steps round to, relative to the largest magnitude.

    ``tactics``: those that are known here, by key; only they tell of TF32.
    """
    return max((tolerance_of(s, p, tactics) for p in plan.nested() for s in p.steps), default=RTOL)


def tolerance_of(step: Step, plan: Plan, tactics: Mapping[str, Tactic]) -> float:
    """What one step may depart by, as ``tolerance``."""
    tactic = tactics.get(str(step.info.get("tactic")))
    if tactic and tactic.numerics == "tf32":
        return TF32_RTOL
    operands = (*step.inputs, *step.outputs)
    weights = {
        o.spec.dtype
        for o in step.inputs
        if o.buffer >= 0 and plan.buffers[o.buffer].kind == "weight"
    }
    if any(t.is_small_int for t in weights) or any(
        o.spec.dtype.is_float and o.spec.dtype.bits <= 8 for o in operands
    ):
        return QUANTIZED_RTOL
    return max(ROUNDED_RTOL.get(o.spec.dtype, RTOL) for o in operands) if operands else RTOL
