"""How much a plan tells of its layers: for people, as none of it is needed to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tactix.config import ProfilingVerbosity
from tactix.contracts.launcher import Step
from tactix.pipeline import shortfall
from tactix.plan.schema import Plan

NAMES = frozenset({"origin", "makes", "consumes"})
"""Of the notes of a step."""
NEEDED = frozenset({"kind", "reference"})
"""What stays in any case: who adapts engines looks at kinds, and references run in place of code
that is not trusted.
"""
SUMS, PRECISION = (shortfall.KEY, "predicted_seconds", "opt"), "precision"
"""Of the ledger; the last names layers that were lowered, and why others were not."""


def trimmed(plan: Plan, verbosity: ProfilingVerbosity) -> Plan:
    """The plan with as much in the notes of its steps and in its ledger."""
    if verbosity is ProfilingVerbosity.DETAILED:
        return plan
    steps = tuple(_step(i, s, verbosity) for i, s in enumerate(plan.steps))
    kept = (*SUMS, PRECISION) if verbosity is ProfilingVerbosity.LAYER_NAMES_ONLY else SUMS
    return replace(plan, steps=steps, ledger=_ledger(plan.ledger, kept))


def _step(index: int, step: Step[Plan], verbosity: ProfilingVerbosity) -> Step[Plan]:
    named = verbosity is ProfilingVerbosity.LAYER_NAMES_ONLY
    kept = NEEDED | NAMES if named else NEEDED
    info = {k: v for k, v in step.info.items() if k in kept}
    plans = tuple(trimmed(p, verbosity) for p in step.plans)
    return replace(step, name=step.name if named else f"step {index}", info=info, plans=plans)


def _ledger(ledger: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    """Some entries of it; no rules, nor what bid and how fast it was."""
    found = {k: ledger[k] for k in kept if k in ledger}
    nothing: dict[str, Any] = {
        "nodes": {},
        "fusion": {"fired": [], "nearly": [], "split": [], "outrun": []},
        "rules": {},
    }
    return {**nothing, **found}
