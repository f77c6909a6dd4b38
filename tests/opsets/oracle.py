"""What a case should give: by ONNX Runtime, by it in another form of the same case, or by onnx's
reference.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from forms import FORMS, Case, split, versions

Values = list[Any]

OLDEST = 7
"""Main operator sets before are not promised by ONNX Runtime: its kernels may heed no attribute of
theirs.
"""


@dataclass(frozen=True)
class Expected:
    """``by``: who gave it."""

    values: Values
    by: str


def cases(op: str) -> Iterable[Case]:
    """Of all versions, oldest first."""
    return (Case(op, v, f) for v in versions(op) for f in FORMS[op](v))


def expected(case: Case) -> Expected | None:
    """None if nobody can tell."""
    if case.version >= _oldest(case.op) and (found := by_onnx_runtime(case)) is not None:
        return Expected(found, "ONNX Runtime")
    for twin in _twins(case):
        if (found := by_onnx_runtime(twin)) is not None:
            return Expected(found, "ONNX Runtime in another form")
    if (found := by_reference(case)) is not None:
        return Expected(found, "onnx's reference")
    for old in (case, *_twins(case, 1)):
        if (found := by_onnx_runtime(old)) is not None:
            return Expected(found, "ONNX Runtime, in an operator set that it does not promise")
    return None


def _oldest(op: str) -> int:
    return 1 if split(op)[0] else OLDEST


def _twins(case: Case, oldest: int = 0) -> Iterable[Case]:
    """The same case at other versions, newest first."""
    for v in reversed(versions(case.op)):
        if v != case.version and v >= (oldest or _oldest(case.op)):
            yield from (Case(case.op, v, f) for f in FORMS[case.op](v) if f.name == case.form.name)


def by_onnx_runtime(case: Case) -> Values | None:
    """None if it refuses the model."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(
            case.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, case.feed()))
    except Exception:  # its errors have no common class; whoever refuses has no say
        return None


def by_reference(case: Case) -> Values | None:
    """None if it has no such version."""
    from onnx.reference import ReferenceEvaluator

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(case.model()).run(None, case.feed()))
    except Exception:  # as above
        return None
