"""Plans with kernels of their own for some profiles: one step, which holds a plan for each set of
kernels; the one that is for the shapes of a run runs in place of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.base.errors import PlanFormatError
from tactix.plan.reader import Reader

if TYPE_CHECKING:
    from tactix.plan.schema import Plan

KEY = "kernel_sets"
"""In the params of the step."""


def kernel_sets(plan: Plan) -> tuple[int, ...]:
    """For each profile the index of its plan among those of the step; empty where there is one set
    of kernels for all. Raises PlanFormatError.
    """
    if len(plan.steps) != 1 or KEY not in plan.steps[0].artifact.params:
        return ()
    step = plan.steps[0]
    rows = Reader(step.artifact.params[KEY], f"{step.name}.{KEY}").items()
    found = tuple(r.integer(0, max(1, len(step.plans))) for r in rows)
    if not found or not step.plans or len(found) != len(plan.profiles):
        raise PlanFormatError("a set of kernels for each profile is missing", who=step.name)
    return found


def check(plan: Plan) -> None:
    """Raises PlanFormatError where the plans of sets are not of what the whole is of."""
    if not plan.kernel_sets:
        return
    for p in plan.steps[0].plans:
        if p.produced or p.kernel_sets or p.given != plan.given or _faces(p) != _faces(plan):
            who = f"step {plan.steps[0].name!r}"
            raise PlanFormatError("a set of kernels has other inputs or outputs", who=who)


def _faces(plan: Plan) -> list[list[tuple[object, ...]]]:
    return [[(io.name, io.dtype, io.shape) for io in ios] for ios in (plan.inputs, plan.outputs)]
