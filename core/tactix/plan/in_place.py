"""Which outputs of a plan may lie where an input lies: a step changes it, and copies nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.launcher import Step
    from tactix.plan.schema import Plan


def in_place(plan: Plan) -> frozenset[tuple[str, str]]:
    """Names of (input, output): one step makes the output of the input in place, and nothing else
    reads the input, so that no order of steps can see it changed.
    """
    if plan.kernel_sets:
        return frozenset.intersection(*(p.in_place for p in plan.steps[0].plans))
    reads = Counter(o.buffer for s in plan.steps for o in s.inputs)
    inputs = {io.buffer: io.name for io in plan.inputs if reads[io.buffer] == 1}
    outputs = {io.buffer: io.name for io in plan.outputs}
    found = (pair for s in plan.steps for pair in _pairs(s))
    return frozenset((inputs[i], outputs[o]) for i, o in found if i in inputs and o in outputs)


def _pairs(step: Step) -> list[tuple[int, int]]:
    """Buffers (input, output) of a step that may be one piece of memory."""
    known = (
        (step.inputs[i], step.outputs[o])
        for o, i in step.artifact.in_place
        if 0 <= i < len(step.inputs) and 0 <= o < len(step.outputs)
    )
    return [(x.buffer, y.buffer) for x, y in known if (x.spec, x.format) == (y.spec, y.format)]
