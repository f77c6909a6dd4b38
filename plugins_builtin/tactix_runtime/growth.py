"""How states of a loop grow: by as much along the same axes in each run of its body."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim, Env, evaluate, evaluate_shape, symbol_name, symbols
from tactix.plan.schema import Plan, TensorIO

MOST_BYTES = 256 << 20
"""That states take behind the last run that there is room for. Pages that nothing touches are not
there, but count where memory of a process is limited.
"""
LEAST_RUNS = 16
"""For which there must be room: to bind a body for fewer is not worth it, where states are as large
as that.
"""


@dataclass(frozen=True)
class GrowingState:
    """A state before the first run, by how much it is larger along each axis after each, and bytes
    of an element.
    """

    shape: tuple[int, ...]
    growth: tuple[int, ...]
    itemsize: int

    def nbytes(self, runs: int) -> int:
        """After so many runs."""
        grown = (n + runs * k for n, k in zip(self.shape, self.growth, strict=True))
        return math.prod(grown) * self.itemsize


@dataclass(frozen=True)
class StateGrowth:
    """``env``: symbols before the first run; ``steps``: by symbol what each size that grows is
    larger by after a run. ``runs``: for how many there is to be room.
    """

    env: Env
    steps: Mapping[str, int]
    states: tuple[GrowingState, ...]
    runs: int = 0

    @property
    def last(self) -> dict[str, int]:
        """The symbols after the last run."""
        return {**self.env, **{n: self.env[n] + self.runs * k for n, k in self.steps.items()}}

    def affordable(self, runs: int) -> int:
        """So many runs, or as many as there can be room for."""
        while runs and sum(s.nbytes(runs) for s in self.states) > MOST_BYTES:
            runs //= 2
        return runs


def growth_of(plan: Plan, env: Env, states: Sequence[tuple[int, int]]) -> StateGrowth | None:
    """``states``: inputs of the plan, and the outputs that they are in the next run. None where
    none of them grows, or not by a number that is the same for each run, or where anything else
    that a run gives has a size that grows.
    """
    pairs = [(plan.inputs[i], plan.outputs[j]) for i, j in states]
    if any(len(a.shape) != len(b.shape) for a, b in pairs):
        return None
    dims = dict(_grown(pairs))
    steps = {name: evaluate(d, env) for name, d in dims.items() if symbols(d) <= env.keys()}
    names = dims.keys()
    if (
        not dims
        or "" in dims
        or len(steps) < len(dims)
        or any(symbols(d) & names for d in dims.values())
    ):
        return None
    if min(steps.values()) < 0 or not max(steps.values()):
        return None
    made = {j for _, j in states}
    rest = [io for j, io in enumerate(plan.outputs) if j not in made]
    if any(symbols(d) & names for io in rest for d in io.shape):
        return None
    found = []
    for before, after in pairs:
        shape, then = (evaluate_shape(io.shape, env) for io in (before, after))
        growth = tuple(b - a for a, b in zip(shape, then, strict=True))
        if growth != tuple(steps.get(symbol_name(d) or "", 0) for d in before.shape):
            return None
        found.append(GrowingState(shape, growth, before.dtype.itemsize))
    return StateGrowth(env, steps, tuple(found))


def _grown(pairs: Sequence[tuple[TensorIO, TensorIO]]) -> list[tuple[str, Dim]]:
    """By symbol of a state's axis what that is larger by after a run; an empty name for an axis
    that is no symbol by itself.
    """
    return [
        (symbol_name(a) or "", b - a)
        for before, after in pairs
        for a, b in zip(before.shape, after.shape, strict=False)
        if a != b
    ]
