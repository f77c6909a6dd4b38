#!/usr/bin/env python3
"""Every operator at every version at which it changed: tactix against ONNX Runtime, or onnx's
reference.

    python tests/opsets/sweep.py [--match TEXT] [--all-sources]

Prints what differs, and a table of who told what is right.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "onnx_suite"))
sys.path.insert(0, str(Path(__file__).parent))

from batch import BatchBuilder
from forms import FORMS, Case
from oracle import Expected, cases, expected

FAMILIES = ("bodies", "classical", "networks", "pointwise", "reductions", "shapes")
"""Modules that register forms."""

for family in FAMILIES:
    importlib.import_module(family)

REFERENCES = frozenset({"numpy", "view", "control"})


@dataclass(frozen=True)
class Outcome:
    """``by``: who told what is right, empty if nobody could. ``error``: empty if tactix agrees."""

    case: Case
    by: str
    error: str = ""


def all_cases() -> list[Case]:
    return [c for op in sorted(FORMS) for c in cases(op)]


def run(chosen: Sequence[Case], sources: frozenset[str] | None) -> list[Outcome]:
    """Outcomes in the order of the cases; ``sources`` of tactics, None for all."""
    builder = BatchBuilder()
    drafts = [_plan(c, builder, sources) for c in chosen]
    made = iter(builder.finish([d for d in drafts if not isinstance(d, str)]))
    return [
        _outcome(c, d if isinstance(d, str) else next(made), builder)
        for c, d in zip(chosen, drafts, strict=True)
    ]


def _plan(case: Case, builder: Any, sources: frozenset[str] | None) -> Any:
    """A plan, or why there is none."""
    import tactix

    config = tactix.BuilderConfig(
        tactic_sources=set(sources) if sources else None,
        builder_optimization_level=0,
        timing_cache=False,
        threads=1,
    )
    try:
        return builder.build_plan(builder.import_model(case.model()), config)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def _outcome(case: Case, plan: Any, builder: Any) -> Outcome:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = expected(case)
    if want is None:
        return Outcome(case, "")
    return Outcome(
        case, want.by, plan if isinstance(plan, str) else _differs(case, plan, want, builder)
    )


def _differs(case: Case, plan: Any, want: Expected, builder: Any) -> str:
    import tactix

    quiet = tactix.Logger(tactix.Severity.INTERNAL_ERROR)
    try:
        found = tactix.Runtime(quiet, builder.session, max_threads=1, sign=False).load(plan)(
            **case.feed()
        )
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    got = list(found.values()) if isinstance(found, dict) else [found]
    for g, w in zip(got, want.values, strict=True):
        if why := apart(g, w, case.form.tolerance):
            return why
    return ""


def apart(got: Any, want: Any, tolerance: float) -> str:
    """How a value departs; empty if it does not."""
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{len(got)} elements instead of {len(want)}"
        return next(
            (why for g, w in zip(got, want, strict=True) if (why := apart(g, w, tolerance))), ""
        )
    got, want = np.asarray(got), np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind not in "fcV":
        return (
            ""
            if np.array_equal(got, want)
            else f"{int((got != want).sum())} of {want.size} elements differ"
        )
    a, b = got.astype(np.float64), want.astype(np.float64)
    if np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    wrong = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return f"{int(wrong.sum())} of {want.size} elements differ: {a[wrong][0]:.6g} instead of {b[wrong][0]:.6g}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--match", default="")
    parser.add_argument("--all-sources", action="store_true")
    options = parser.parse_args()
    chosen = [c for c in all_cases() if options.match in c.id]
    found = run(chosen, None if options.all_sources else REFERENCES)
    for o in found:
        if o.error or not o.by:
            print(f"{o.case.id}: {o.error or 'nobody can tell'}")
    for by, count in Counter(o.by or "nobody" for o in found).most_common():
        print(f"{count} by {by}")
    print(f"{sum(not o.error and bool(o.by) for o in found)}/{len(found)} agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
