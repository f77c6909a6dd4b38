"""Loops on arrays of which states are larger after each run of the body, by as much: a cache to
which each run joins a row and that it reads, as a text generator's. Runs are one native call, as
far as there is room: their sizes are numbers that each run finds one step further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.contracts.launcher import StepBody
from tactix.contracts.program import BoundTensor, GrowingBody, Iteration
from tactix.run.arrays import address_of
from tactix_ops.loop_memory import LoopState, longer, progressions, room, row_move

FIRST_RUNS = 64
"""For which there is room in the first call; four times as many as have been made in each other
one. No measurement of it is on record.
"""


@dataclass(frozen=True, eq=False)
class LoopControl:
    """What ends a loop: it runs at most ``most`` times, at least once. ``counter`` and ``going``:
    inputs of the body that are the number of the run, and true.
    """

    most: int
    counter: Array
    going: Array


def grown(
    control: LoopControl, body: StepBody, values: Sequence[Array], states: int
) -> list[Array] | None:
    """Final states, then stacks. ``values``: states before the first run, so many, then what every
    run reads.

    None where this loop cannot be run so, also where that shows when some runs are made: then
    nothing of it has happened.
    """
    try:
        return _Runs(control, body, values, states).made()
    except MemoryError:
        return None


class _Runs:
    """Runs of a body that follow each other."""

    def __init__(
        self, control: LoopControl, body: StepBody, values: Sequence[Array], states: int
    ) -> None:
        self._control, self._body, self._captured = control, body, values[states:]
        self._states = [*values[:states]]
        self._pairs = [(2 + i, 1 + i) for i in range(states)]
        self._stacks: list[Array] = []
        self._count = 0

    def made(self) -> list[Array] | None:
        """All of them."""
        more = True
        while more:
            found = self._bound()
            if found is None:
                return None
            stop = min(self._control.most, self._count + found.runs)
            going = np.ones(found.bound.outputs[0].shape, np.bool_)
            self._run(found, stop, going)
            more = bool(going.reshape(())) and self._count < self._control.most
            if more and self._count < stop:  # there was no room for a size
                return None
        return [*self._states, *(y[: self._count] for y in self._stacks)]

    def _bound(self) -> GrowingBody | None:
        """The body at the sizes that states have now."""
        given = self._given()
        runs = max(FIRST_RUNS, 3 * self._count)
        left = self._control.most - self._count
        found = self._body.growing([x.shape for x in given], self._pairs, runs, left)
        if found is None:
            return None
        inputs, (ends, *made) = found.bound.inputs, found.bound.outputs
        fits = [x.dtype == t.dtype.numpy for x, t in zip(given, inputs, strict=True)]
        kept = zip(self._states, made, strict=False)
        alike = all(fits) and all(x.dtype == t.dtype.numpy for x, t in kept)
        return found if alike and ends.nbytes == 1 and ends.dtype.numpy == np.bool_ else None

    def _given(self) -> list[Array]:
        return [self._control.counter, self._control.going, *self._states, *self._captured]

    def _run(self, found: GrowingBody, stop: int, going: Array) -> None:
        """Runs up to ``stop``, or to the last one."""
        bound, first, n = found.bound, self._count, len(self._states)
        rows = bound.outputs[1 + n :]
        self._stacks = self._longer(rows, stop)
        result = [going, *(np.empty(t.nbytes, np.uint8) for t in bound.outputs[1:])]
        bound.program.place([address_of(x) for x in (*self._given(), *result)])
        states = [self._placed(found, i, stop - first) for i in range(n)]
        each = zip(states, bound.inputs[2:], bound.outputs[1:], strict=False)
        moves = [m for s, a, b in each for m in s.moves(a.buffer, b.buffer)]
        moves += [row_move(t.buffer, y) for t, y in zip(rows, self._stacks, strict=True)]
        counter, goes = address_of(self._control.counter), address_of(going)
        iteration = Iteration(moves, counter, goes, progressions(found, first))
        self._count = bound.program.iterate(iteration, first, stop)
        self._states = [self._after(found, i, states[i], first) for i in range(n)]

    def _longer(self, rows: Sequence[BoundTensor], count: int) -> list[Array]:
        """Stacks with room for so many rows; MemoryError."""
        if self._stacks:
            return [longer(stack, count) for stack in self._stacks]
        return [room((count, *t.shape), t.dtype.numpy) for t in rows]

    def _placed(self, found: GrowingBody, i: int, runs: int) -> LoopState:
        """A state with room for so many runs. It lies where the next one reads it."""
        x = self._states[i]
        pair = found.bound.inputs[2 + i].buffer, found.bound.outputs[1 + i].buffer
        nbytes = max(1, math.prod(self._shape(found, i, runs)) * x.dtype.itemsize)
        even = room((nbytes,), np.dtype(np.uint8))
        odd = even if pair in found.bound.in_place else room((nbytes,), np.dtype(np.uint8))
        given = np.ndarray(x.shape, x.dtype, even if self._count % 2 else odd)
        given[...] = x
        return LoopState(given, (even, odd))

    def _shape(self, found: GrowingBody, i: int, runs: int) -> tuple[int, ...]:
        """Of a state after so many runs."""
        each = zip(self._states[i].shape, found.growth[i], strict=True)
        return tuple(n + runs * k for n, k in each)

    def _after(self, found: GrowingBody, i: int, state: LoopState, first: int) -> Array:
        """A state behind the runs from ``first`` on."""
        memory, shape = state.after(self._count), self._shape(found, i, self._count - first)
        x: Array = np.ndarray(shape, self._states[i].dtype, memory)
        return x.copy() if 2 * x.nbytes < memory.nbytes else x
