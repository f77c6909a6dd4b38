"""Loops on arrays whose runs of the body differ in addresses alone: they are made in one native
call. Loops inside of what runs so are parts of programs (native_control.py). What is sliced and
what is stacked lies in rows along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.contracts.launcher import StepBody
from tactix.contracts.program import BoundBody, Displacement, Iteration
from tactix.run.arrays import address_of
from tactix_ops.growing_loops import LoopControl, grown
from tactix_ops.layers.control import truth
from tactix_ops.loop_memory import LoopState, longer, room, row_move

FIRST_BYTES = 1 << 20
"""Of a stack where the number of runs is not known; it doubles when it is full. No measurement of
the number is on record: pages that are not written cost next to nothing."""


def steadily(
    kind: str, params: Mapping[str, Any], body: StepBody, values: Sequence[Any]
) -> list[Any] | None:
    """The results of a ``Loop`` or ``Scan``; None where nothing would run, or a run needs Python or
    gives states of other shapes than it takes: then each run is a call of the body.

    Raises what the body does.
    """
    run = STEADY.get(kind)
    return run(params, body, values) if run else None


def _loop(params: Mapping[str, Any], body: StepBody, values: Sequence[Any]) -> list[Any] | None:
    most, n = int(np.asarray(values[0]).reshape(())), params["states"]
    if most <= 0 or not truth(values[1]):
        return None
    of_count, of_going = ((1,) * rank for rank in params.get("ranks", (0, 0)))
    counter, going = np.zeros(of_count, np.int64), np.ones(of_going, np.bool_)
    given = _arrays([counter, going, *values[2:]])
    if given is None:
        return None
    runs = _bound(body, given, Places(n, inputs=2, outputs=1))
    if runs is None:
        return grown(LoopControl(most, counter, going), body, given[2:], n)
    if runs.results[0].size != 1 or runs.results[0].dtype != np.bool_:
        return None
    return runs.whole(most, counter, runs.results[0])


def _scan(params: Mapping[str, Any], body: StepBody, values: Sequence[Any]) -> list[Any] | None:
    n, k = params["states"], len(params["input_axes"])
    if params["batched"] or not k:
        return None
    ways = zip(values[n : n + k], params["input_axes"], params["input_directions"], strict=True)
    sliced = [Sliced.of(x, axis, bool(backwards)) for x, axis, backwards in ways]
    lengths = {len(s.rows) for s in sliced}
    if len(lengths) > 1 or lengths == {0}:
        return None
    heads = [s.head for s in sliced]
    given = _arrays([*values[:n], *heads, *values[n + k :]])
    runs = None if given is None else _bound(body, given, Places(n))
    if runs is None:
        return None
    moves = [s.move(t.buffer) for s, t in zip(sliced, runs.bound.inputs[n:], strict=False)]
    backwards = [bool(way) for way in params["output_directions"]]
    found = runs.sliced(lengths.pop(), moves, backwards)
    axes = params["output_axes"] or [0] * len(backwards)
    stacks = zip(found[n:], axes, strict=True)
    return [*found[:n], *(np.moveaxis(y, 0, axis) for y, axis in stacks)]


STEADY: Mapping[str, Callable[[Mapping[str, Any], StepBody, Sequence[Any]], list[Any] | None]] = {
    "Loop": _loop,
    "Scan": _scan,
}
"""By the layers' names; a branch runs its body once."""


@dataclass(frozen=True)
class Places:
    """How many states there are, and the first of them among a body's inputs and outputs."""

    states: int
    inputs: int = 0
    outputs: int = 0

    def steady(
        self, taken: Sequence[tuple[int, ...]], made: Sequence[tuple[int, ...] | None]
    ) -> bool:
        """Whether states keep their shapes, as far as is known before a run: a body of which one
        grows need not be bound for runs that follow each other.
        """
        states = made[self.outputs : self.outputs + self.states]
        given = taken[self.inputs : self.inputs + self.states]
        return all(y is None or x == y for x, y in zip(given, states, strict=True))


@dataclass(frozen=True, eq=False)
class Sliced:
    """What a scan slices: contiguous ``rows``, from the last to the first if ``backwards``."""

    rows: Array
    backwards: bool

    @classmethod
    def of(cls, x: Array, axis: int, backwards: bool) -> Sliced:
        return cls(np.asarray(np.moveaxis(x, axis, 0), order="C"), backwards)

    @property
    def head(self) -> Array:
        """The row that the first run takes; there is one."""
        return self.rows[-1 if self.backwards else 0, ...]

    def move(self, buffer: int) -> Displacement:
        return row_move(buffer, self.rows, len(self.rows) if self.backwards else 0)


def _arrays(values: Sequence[Any]) -> list[Array] | None:
    """None where one is a sequence or another object."""
    if not all(isinstance(x, (np.ndarray, np.generic)) for x in values):
        return None
    return [np.asarray(x, order="C") for x in values]


def _bound(body: StepBody, given: Sequence[Array], where: Places) -> BodyRuns | None:
    """The body at these inputs; None where its runs cannot follow each other."""
    shapes = [x.shape for x in given]
    if not where.steady(shapes, body.results(shapes)):
        return None
    bound = body.bound(shapes)
    if bound is None or any(
        x.dtype != t.dtype.numpy for x, t in zip(given, bound.inputs, strict=True)
    ):
        return None
    results = [room(t.shape, t.dtype.numpy) for t in bound.outputs]
    bound.program.place([address_of(x) for x in (*given, *results)])
    taken = given[where.inputs : where.inputs + where.states]
    made = results[where.outputs : where.outputs + where.states]
    pairs = list(zip(taken, made, strict=True))
    if any((x.shape, x.dtype) != (y.shape, y.dtype) for x, y in pairs):
        return None
    buffers = zip(bound.inputs[where.inputs :], bound.outputs[where.outputs :], strict=False)
    alone = [(a.buffer, b.buffer) in bound.in_place for a, b in buffers]
    states = [
        LoopState(x, (y, y if one else np.empty_like(y)))
        for (x, y), one in zip(pairs, alone, strict=False)
    ]
    return BodyRuns(bound, where, states, results, given)


@dataclass(eq=False)
class BodyRuns:
    """Runs of a body that follow each other. ``results``: room for the outputs of one run.
    ``given``: what its inputs are in the first.
    """

    bound: BoundBody
    where: Places
    states: Sequence[LoopState]
    results: Sequence[Array]
    given: Sequence[Array] = field(repr=False)

    def whole(self, most: int, counter: Array, going: Array) -> list[Array]:
        """Final states, then stacks, after the run that says it is the last, or ``most`` runs, at
        least one.
        """
        count, capacity, more = 0, self._first_rows(most), True
        stacks = self._stacks(capacity)
        iteration = partial(Iteration, counter=address_of(counter), going=address_of(going))
        while more:
            moves = [*self._state_moves(), *self._stack_moves(stacks)]
            count = self.bound.program.iterate(iteration(moves), count, capacity)
            more = count == capacity < most and bool(going.reshape(()))
            if more:
                capacity = min(most, 2 * capacity)
                stacks = [longer(y, capacity) for y in stacks]
        return [*(s.after(count) for s in self.states), *(y[:count] for y in stacks)]

    def sliced(
        self, count: int, moves: Sequence[Displacement], backwards: Sequence[bool]
    ) -> list[Array]:
        """Final states, then stacks, of which some are filled from the last row on, after so many
        runs.
        """
        stacks = self._stacks(count)
        starts = [count if way else 0 for way in backwards]
        moves = [*self._state_moves(), *moves, *self._stack_moves(stacks, starts)]
        self.bound.program.iterate(Iteration(moves), 0, count)
        return [*(s.after(count) for s in self.states), *stacks]

    def _rows(self) -> Sequence[Array]:
        """What a run gives beside states."""
        return self.results[self.where.outputs + self.where.states :]

    def _first_rows(self, most: int) -> int:
        """Runs until stacks are made larger."""
        largest = max((row.nbytes for row in self._rows()), default=0)
        return min(most, max(1, FIRST_BYTES // max(1, largest))) if self._rows() else most

    def _stacks(self, count: int) -> list[Array]:
        return [room((count, *row.shape), row.dtype) for row in self._rows()]

    def _state_moves(self) -> list[Displacement]:
        read = self.bound.inputs[self.where.inputs :]
        written = self.bound.outputs[self.where.outputs :]
        each = zip(self.states, read, written, strict=False)
        moves = (s.moves(a.buffer, b.buffer) for s, a, b in each)
        return [m for pair in moves for m in pair]

    def _stack_moves(
        self, stacks: Sequence[Array], starts: Sequence[int] = ()
    ) -> list[Displacement]:
        buffers = self.bound.outputs[self.where.outputs + self.where.states :]
        starts = starts or [0] * len(stacks)
        each = zip(buffers, stacks, starts, strict=True)
        return [row_move(t.buffer, stack, start) for t, stack, start in each]
