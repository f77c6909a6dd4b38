"""Where a plan first departs from what it should compute: each step against its own reference, and
against the model in ONNX Runtime, on the inputs that it actually had, so that errors do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import ExecutionError, PlanCompatibilityError, PluginError
from tactix.plan.schema import Plan
from tactix.run.observed import made
from tactix_inspect.replay import StepRun

REFERENCE, MODEL = "reference", "model"


@dataclass(frozen=True)
class Comparison:
    """One step against one judge. ``budgets``: the largest difference over what may be off, so that
    at most 1 passes; None where nothing could be compared, for the reason ``why``.
    """

    budgets: float | None
    why: str = ""

    @property
    def departs(self) -> bool:
        return self.budgets is not None and not self.budgets <= 1

    def to_json(self) -> dict[str, Any]:
        return {"budgets": json_number(self.budgets), "why": self.why}


def json_number(x: float | None) -> float | str | None:
    """JSON has no infinity: a text then."""
    return x if x is None or math.isfinite(x) else "inf"


@dataclass(frozen=True)
class LayerReport:
    """One step, of all its runs the worst. ``plan``: which of the plan and the bodies in it.
    ``made``: names of what it makes. ``fresh``: NaN or Inf, where it makes some of finite inputs.
    """

    plan: int
    index: int
    name: str
    tactic: str
    origin: tuple[str, ...]
    made: tuple[str, ...]
    against: Mapping[str, Comparison] = field(default_factory=dict)
    fresh: str = ""

    @property
    def departs(self) -> bool:
        return any(c.departs for c in self.against.values())

    def to_json(self) -> dict[str, Any]:
        against = {name: c.to_json() for name, c in self.against.items()}
        return {**asdict(self), "against": against, "departs": self.departs}


@dataclass(frozen=True)
class LayersReport:
    """Of a plan, in the order in which steps first ran."""

    plan: str
    layers: tuple[LayerReport, ...]

    @property
    def first_departure(self) -> LayerReport | None:
        return next((x for x in self.layers if x.departs), None)

    @property
    def first_not_finite(self) -> LayerReport | None:
        return next((x for x in self.layers if x.fresh), None)

    @property
    def passed(self) -> bool:
        """Whether no step departs or makes a NaN."""
        return self.first_departure is None and all(x.fresh != "NaN" for x in self.layers)

    def count(self, judge: str) -> int:
        """Steps that were compared with a judge."""
        found = (x.against.get(judge) for x in self.layers)
        return sum(c is not None and c.budgets is not None for c in found)

    def to_json(self) -> dict[str, Any]:
        first, odd = self.first_departure, self.first_not_finite
        return {
            "plan": self.plan,
            "passed": self.passed,
            "first_departure": first and first.to_json(),
            "first_not_finite": odd and odd.to_json(),
            "layers": [x.to_json() for x in self.layers],
        }


class Judge(Protocol):
    """Compares a step that has run with something."""

    def __call__(self, run: StepRun, /) -> Comparison: ...


def by_reference(rtol: float | None = None) -> Judge:
    """Against the step's own reference; within ``rtol`` of its largest magnitude, by default within
    the budgets of the builder's accuracy gate.
    """

    def compared(run: StepRun) -> Comparison:
        if run.is_reference:
            return Comparison(None, "it is the reference that runs")
        try:
            return Comparison(run.departure(rtol))
        except (PlanCompatibilityError, ExecutionError, PluginError) as e:
            return Comparison(None, str(e)[:200])

    return compared


class LayersComparison:
    """Takes the steps of any number of runs. ``keep``: what is called once with the first step that
    departs, and once with the first that makes NaN or Inf.
    """

    def __init__(
        self,
        plan: Plan,
        judges: Mapping[str, Judge],
        keep: Callable[[str, StepRun], None] = lambda what, run: None,
    ) -> None:
        self._plan, self._judges, self._keep = plan, judges, keep
        self._places = {
            id(s): (i, k) for i, p in enumerate(plan.nested()) for k, s in enumerate(p.steps)
        }
        self._found: dict[tuple[int, int], LayerReport] = {}
        self._kept = set[str]()

    def visit(self, run: StepRun) -> None:
        """One more step that has run."""
        key = self._places[id(run.step)]
        report = LayerReport(
            *key,
            run.step.name,
            str(run.step.info.get("tactic", "")),
            _texts(run.step.info.get("origin")),
            tuple(name for name, _ in made(run.plan, run.step)),
            {name: judge(run) for name, judge in self._judges.items()},
            fresh(run),
        )
        known = self._found.get(key)
        self._found[key] = report if known is None else _worst(known, report)
        for what, so in (("departure", report.departs), ("not_finite", bool(report.fresh))):
            if so and what not in self._kept:
                self._kept.add(what)
                self._keep(what, run)

    def report(self) -> LayersReport:
        """What was found so far."""
        return LayersReport(self._plan.name, tuple(self._found.values()))


def _worst(a: LayerReport, b: LayerReport) -> LayerReport:
    against = {
        name: max((a.against[name], c), key=lambda c: -1.0 if c.budgets is None else c.budgets)
        for name, c in b.against.items()
    }
    return LayerReport(
        a.plan, a.index, a.name, a.tactic, a.origin, a.made, against, a.fresh or b.fresh
    )


def _texts(told: object) -> tuple[str, ...]:
    return tuple(map(str, told)) if isinstance(told, list) else ()


def fresh(run: StepRun) -> str:
    """``NaN`` or ``Inf`` where a step makes one although all that it reads is finite; a NaN, too,
    where it reads infinities alone.
    """
    kinds = {k for y in run.outputs for k in _odd(y)}
    given = {k for x in run.inputs if x is not None for k in _odd(x)}
    return next((k for k in ("NaN", "Inf") if k in kinds and k not in given), "")


def _odd(x: Array) -> set[str]:
    """Which of NaN and Inf an array has."""
    wide = x if x.dtype.kind == "f" else x.astype(np.float32) if x.dtype.kind == "V" else None
    if wide is None or np.isfinite(wide).all():
        return set()
    return ({"NaN"} if np.isnan(wide).any() else set()) | (
        {"Inf"} if np.isinf(wide).any() else set()
    )
