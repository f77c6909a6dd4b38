"""Which outputs of a plan may lie where an input lies: a step changes it, and copies nothing, or
the input has been read by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.plan.parts import around, holds

if TYPE_CHECKING:
    from tactix.contracts.launcher import Operand, Step
    from tactix.plan.schema import Plan


def in_place(plan: Plan) -> frozenset[tuple[str, str]]:
    """Names of (input, output): one step makes the output of the input in place, and nothing else
    reads the input, so that no order of steps can see it changed.
    """
    if plan.kernel_sets:
        return frozenset.intersection(*(p.in_place for p in plan.steps[0].plans))
    inputs = _read_once(plan)
    outputs = {io.buffer: io.name for io in plan.outputs}
    found = (pair for s in plan.steps for pair in _pairs(s))
    return frozenset((inputs[i], outputs[o]) for i, o in found if i in inputs and o in outputs)


def one_memory(plan: Plan) -> frozenset[tuple[str, str]]:
    """Names of (input, output) that may be one piece of memory: those that are made in place, and
    where whatever writes the output needs what the only reader of the input makes.
    """
    if plan.kernel_sets:
        return frozenset.intersection(*(p.one_memory for p in plan.steps[0].plans))
    found = ((name, o) for i, name in _read_once(plan).items() for o in _written_later(plan, i))
    return plan.in_place | frozenset(found)


def _read_once(plan: Plan) -> dict[int, str]:
    """Inputs that one step reads, by buffer."""
    reads = Counter(o.buffer for s in plan.steps for o in s.inputs)
    return {io.buffer: io.name for io in plan.inputs if reads[io.buffer] == 1}


def _written_later(plan: Plan, buffer: int) -> list[str]:
    """Outputs that only steps write which need what the reader of a buffer makes."""
    first = next(k for k, s in enumerate(plan.steps) if buffer in _buffers(s.inputs))
    made = _buffers(plan.steps[first].outputs)
    # with some of it in it
    mixed = {i for b in made for i in around(plan.buffers, b)}
    early = {o for s in plan.steps[: first + 1] for o in _buffers(s.outputs)}
    for s in plan.steps[first + 1 :]:
        follows = any(b in mixed or holds(plan.buffers, made, b) for b in _buffers(s.inputs) - {-1})
        (made if follows else early).update(_buffers(s.outputs))
        if follows:
            mixed.update(i for o in s.outputs for i in around(plan.buffers, o.buffer))
    return [io.name for io in plan.outputs if io.buffer in made - early]


def _buffers(operands: Sequence[Operand]) -> set[int]:
    return {o.buffer for o in operands}


def _pairs(step: Step) -> list[tuple[int, int]]:
    """Buffers (input, output) of a step that may be one piece of memory."""
    known = (
        (step.inputs[i], step.outputs[o])
        for o, i in step.artifact.in_place
        if 0 <= i < len(step.inputs) and 0 <= o < len(step.outputs)
    )
    return [(x.buffer, y.buffer) for x, y in known if (x.spec, x.format) == (y.spec, y.format)]
