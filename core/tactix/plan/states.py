"""The states of a plan: which inputs and outputs are one tensor that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tactix.base.dims import sym, symbols, to_json
from tactix.base.errors import PlanFormatError
from tactix.contracts.states import StatePair, States
from tactix.plan.reader import Reader

if TYPE_CHECKING:
    from tactix.plan.schema import Plan, TensorIO

KEY = "states"
"""In ``Plan.meta``."""


def encoded(states: States | None) -> dict[str, Any]:
    """The entry of ``Plan.meta``; empty where there are no states."""
    if states is None:
        return {}
    pairs = [[p.input, p.output, p.axis] for p in states.pairs]
    return {KEY: [states.length, to_json(states.after), states.room, pairs]}


def decoded(plan: Plan) -> States | None:
    """The states that ``Plan.meta`` tells of. Raises PlanFormatError."""
    if KEY not in plan.meta:
        return None
    length, after, room, pairs = Reader(plan.meta[KEY], f"meta.{KEY}").row(4)
    rows = (r.row(3) for r in pairs.items())
    found = tuple(StatePair(a.text(), b.text(), axis.integer()) for a, b, axis in rows)
    return States(length.text(), after.dim(), room.text(), found)


def check(plan: Plan) -> None:
    """Raises PlanFormatError for states that the plan's inputs and outputs do not bear out."""
    states = plan.states
    if states is None:
        return
    if plan.given != {states.length} or plan.produced:
        raise PlanFormatError("states in a plan whose symbols they do not tell", who=plan.name)
    told = {states.length, *(s for io in plan.inputs for d in io.shape for s in symbols(d))}
    if not symbols(states.after) <= told:
        raise PlanFormatError("the length of states follows from no input", who=plan.name)
    inputs = {io.name: io for io in plan.inputs}
    outputs = {io.name: io for io in plan.outputs}
    for p in states.pairs:
        if not _fits(inputs.get(p.input), outputs.get(p.output), p.axis, states.room):
            what = f"{p.input!r} and {p.output!r} are no state along axis {p.axis}"
            raise PlanFormatError(what, who=plan.name)


def _fits(before: TensorIO | None, after: TensorIO | None, axis: int, room: str) -> bool:
    if before is None or after is None:
        return False
    same = (before.dtype, before.shape) == (after.dtype, after.shape)
    return same and 0 <= axis < len(before.shape) and before.shape[axis] == sym(room)
