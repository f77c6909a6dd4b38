"""The most that sizes may be which only a run tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, Shape, bounds, learn, symbols

if TYPE_CHECKING:
    from tactix.plan.schema import Plan

FOUND = "tactix.NonZero@1"
"""It finds at most as many places as its input has elements."""


def of(plan: Plan) -> dict[str, Dim]:
    """By symbol, in the order of the steps: a limit may hang on those before it."""
    return {
        s: step.inputs[0].spec.numel
        for step in plan.steps
        if step.info.get("kind") == FOUND
        for d in step.outputs[0].spec.shape
        for s in symbols(d)
    }


def at_most(
    shape: Shape, inputs: Sequence[tuple[Shape, Sequence[int]]], limits: Mapping[str, Dim]
) -> tuple[int, ...]:
    """The largest sizes, -1 where there is no limit. ``inputs``: shapes, and what they are now."""
    env: dict[str, int] = {}
    for symbolic, sizes in inputs:
        learn(symbolic, sizes, env)
    ranges: dict[str, tuple[int, int | None]] = {s: (n, n) for s, n in env.items()}
    for symbol, limit in limits.items():
        ranges[symbol] = (0, bounds(limit, ranges)[1])
    highest = (bounds(d, ranges)[1] for d in shape)
    return tuple(-1 if n is None else n for n in highest)
