"""In what element type a step computes, told from its operands."""

from __future__ import annotations

from tactix.contracts.launcher import Step


def precision(step: Step) -> str:
    """The narrowest type of numbers that a step reads or writes; its output's where it has none."""
    own = [o.spec.dtype for o in (*step.inputs, *step.outputs)]
    numbers = [t for t in own if t.is_float or t.is_small_int]
    narrowest = min(numbers, key=lambda t: (t.itemsize, t.value), default=own[-1] if own else None)
    return narrowest.value if narrowest else ""
