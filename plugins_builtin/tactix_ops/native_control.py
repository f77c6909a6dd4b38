"""Branches and loops as parts of programs: what a step does, over buffers, at sizes that are known.

States alternate between the result's memory and as much beside it, of which a run reads one and
writes the other, so that none is copied; one that a body changes in place has the first alone. What
is sliced and what is stacked lies in rows one behind the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tactix.base.dims import Env, evaluate_shape, learn, symbol_name, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR
from tactix.contracts.launcher import BindableBody, Operand, Step
from tactix.contracts.program import (
    BoundBody,
    BoundTensor,
    BranchPart,
    BranchSizes,
    CarriedState,
    GrowingBody,
    LoopCount,
    LoopPart,
    LoopRows,
    NestedBody,
    PlacedPart,
)
from tactix_ops.growing_loops import FIRST_RUNS
from tactix_ops.loop_memory import progressions, room
from tactix_ops.steady_loops import Places

Shapes = Sequence[tuple[int, ...]]


def told(step: Step) -> frozenset[str]:
    """The symbols of a branch's results, of a loop's states that may grow, and of how often a loop
    runs that stacks rows.
    """
    params = step.artifact.params
    states = params.get("states")
    dims = [d for o in step.outputs for d in o.spec.shape]
    if params.get("control") == "Loop" and isinstance(states, int):
        dims = [d for o in step.outputs[:states] for d in o.spec.shape]
        dims += [d for o in step.outputs[states:] for d in o.spec.shape[:1]]
    elif params.get("control") != "If":
        return frozenset()
    return frozenset(name for d in dims if (name := symbol_name(d)))


def part(step: Step, env: Env, expected: Env, bodies: Sequence[BindableBody]) -> PlacedPart | None:
    """As ``Launcher.part``. Raises ShapeError, and as steps of damaged plans do: LookupError,
    TypeError, ValueError.
    """
    make = PARTS.get(str(step.artifact.params["control"]))
    operands = (*step.inputs, *step.outputs)
    odd = (o.buffer < 0 or o.format != LINEAR or o.spec.dtype.on_host for o in operands)
    if make is None or any(odd):
        return None
    inputs = [
        BoundTensor(o.buffer, evaluate_shape(o.spec.shape, env), o.spec.dtype) for o in step.inputs
    ]
    return make(_Nesting(step, env, expected, inputs), bodies)


@dataclass(frozen=True, eq=False)
class _Nesting:
    """A step at sizes."""

    step: Step
    env: Env
    expected: Env
    inputs: Sequence[BoundTensor]

    @property
    def params(self) -> Mapping[str, Any]:
        return self.step.artifact.params

    @property
    def outputs(self) -> Sequence[Operand]:
        return self.step.outputs

    def runs(self) -> int:
        """How many rows the outputs behind the states have; -1 where only running tells."""
        stacks = self.outputs[self.params["states"] :]
        known = [o.spec.shape[0] for o in stacks if symbols(o.spec.shape[0]) <= self.env.keys()]
        return evaluate_shape(known[:1], self.env)[0] if known else -1

    @functools.cached_property
    def fresh(self) -> tuple[str, ...]:
        """Symbols of the outputs that nothing before the step tells."""
        named = (symbol_name(d) for o in self.outputs for d in o.spec.shape)
        return tuple(dict.fromkeys(n for n in named if n and n not in self.env))

    @property
    def expectations(self) -> list[int | None]:
        return [self.expected.get(name) for name in self.fresh]

    def learned(self, shapes: Shapes) -> list[int] | None:
        """The values of the fresh symbols where outputs have these shapes; None where they cannot
        have them.
        """
        env = dict(self.env)
        for o, shape in zip(self.outputs, shapes, strict=True):
            if len(o.spec.shape) != len(shape):
                return None
            learn(o.spec.shape, shape, env)
        fits = all(
            evaluate_shape(o.spec.shape, env) == shape
            for o, shape in zip(self.outputs, shapes, strict=True)
        )
        return [env[name] for name in self.fresh] if fits else None

    def course(self, states: Shapes, made: Shapes) -> _Course | None:
        """Of a loop with states of these shapes before the first run, which gives shapes ``made``:
        states, then rows. None where results cannot have the shapes that are declared, where nobody
        expects a number of runs, or rows would have no shape where there are none.
        """
        stacks = [o.spec.shape for o in self.outputs[len(states) :]]
        rows = self.runs() if stacks else -1
        firm = all(symbols(d) <= self.env.keys() for shape in stacks for d in shape[1:])
        found = _Course(states, made, rows)
        begins, after = (self.learned(found.after(runs)) for runs in (0, 1))
        if (stacks and rows < 0 and not firm) or begins is None or after is None:
            return None
        hanging, may_tell = list[_Hanging](), told(self.step)
        for name, begin, then in zip(self.fresh, begins, after, strict=True):
            if name in may_tell:
                hanging.append(_Hanging(name, begin, then - begin, self.expected.get(name)))
        if any(h.step < 0 or (h.step and h.expected is None) for h in hanging):
            return None
        return replace(found, hanging=hanging)


@dataclass(frozen=True)
class _Hanging:
    """A size that is ``begin`` where nothing runs, and larger by ``step`` after each run."""

    name: str
    begin: int
    step: int
    expected: int | None

    @property
    def runs(self) -> int:
        """How many are expected; 0 where this does not tell."""
        return (self.expected - self.begin) // self.step if self.step and self.expected else 0


@dataclass(frozen=True, eq=False)
class _Course:
    """What a loop gives, after any number of runs. ``states``: shapes before the first; ``made``:
    those that it gives, states, then rows. ``rows``: how many there are; -1 for each run one.
    ``hanging``: sizes of results that are told.
    """

    states: Shapes
    made: Shapes
    rows: int
    hanging: Sequence[_Hanging] = ()

    @property
    def likely(self) -> int:
        """How often it runs, as far as that is expected."""
        return max((0, *(h.runs for h in self.hanging)))

    def growth(self, i: int) -> tuple[int, ...]:
        """Of a state, along each axis, in a run."""
        return tuple(m - n for n, m in zip(self.states[i], self.made[i], strict=True))

    def after(self, runs: int) -> list[tuple[int, ...]]:
        """The results' shapes."""
        rows = runs if self.rows < 0 else self.rows
        states = [
            tuple(n + runs * k for n, k in zip(shape, self.growth(i), strict=True))
            for i, shape in enumerate(self.states)
        ]
        return [*states, *((rows, *y) for y in self.made[len(self.states) :])]

    def count(self, room: int = -1) -> LoopCount | None:
        """None where nothing is told."""
        names = tuple(h.name for h in self.hanging)
        likely = [h.begin + self.likely * h.step for h in self.hanging]
        begins, steps = [h.begin for h in self.hanging], [h.step for h in self.hanging]
        told, expected = (np.array(likely, np.int64) for _ in range(2))
        of_runs = np.array(begins, np.int64), np.array(steps, np.int64)
        return LoopCount(names, told, expected, *of_runs, room) if names else None


def _branch(nesting: _Nesting, bodies: Sequence[BindableBody]) -> PlacedPart | None:
    condition, *values = nesting.inputs
    chosen, shapes, bounds = list[NestedBody](), list[Shapes](), list[BoundBody]()
    for body, which in zip(bodies, nesting.params["captures"], strict=True):
        given = [values[i] for i in which]
        bound = body.bound([x.shape for x in given])
        if bound is None or not _alike(given, bound.inputs) or not _gives(nesting, bound.outputs):
            return None
        around = [*(x.buffer for x in given), *(o.buffer for o in nesting.outputs)]
        own = [x.buffer for x in (*bound.inputs, *bound.outputs)]
        chosen.append(NestedBody(bound.program, list(zip(around, own, strict=True))))
        shapes.append([y.shape for y in bound.outputs])
        bounds.append(bound)
    if not _is_one(condition, DType.BOOL):
        return None
    part = BranchPart(condition.buffer, chosen[0], chosen[1])
    if not nesting.fresh:
        return PlacedPart(part, shapes[0]) if shapes[0] == shapes[1] else None
    found = [nesting.learned(s) for s in shapes]
    if any(f is None for f in found):
        return None
    likely = 1 if found[1] == nesting.expectations else 0
    told, expected, *both = (np.array(found[i], np.int64) for i in (likely, likely, 0, 1))
    made = BranchSizes(nesting.fresh, told, expected, *both)
    bytes_of = ([y.nbytes for y in b.outputs] for b in bounds)
    rooms = [max(pair) for pair in zip(*bytes_of, strict=True)]
    return PlacedPart(replace(part, sizes=made), shapes[likely], rooms)


def _loop(nesting: _Nesting, bodies: Sequence[BindableBody]) -> PlacedPart | None:
    n = nesting.params["states"]
    most, start, *values = nesting.inputs
    if not _is_one(most, DType.INT64) or not _is_one(start, DType.BOOL):
        return None
    told = [(1,) * rank for rank in nesting.params.get("ranks", (0, 0))]
    shapes = [*told, *(x.shape for x in values)]
    made = bodies[0].results(shapes)
    if not Places(n, inputs=2, outputs=1).steady(shapes, made):
        return _growing_loop(nesting, bodies[0], shapes, made)
    bound = bodies[0].bound(shapes)
    if bound is None:
        return None
    course = nesting.course(shapes[2 : 2 + n], [y.shape for y in bound.outputs[1:]])
    if course is None:
        return None
    return _repeated(nesting, bound, course)


def _growing_loop(
    nesting: _Nesting,
    body: BindableBody,
    shapes: Shapes,
    made: Sequence[tuple[int, ...] | None],
) -> PlacedPart | None:
    """One of which states are larger after each run, by as many bytes."""
    n = nesting.params["states"]
    states, results = shapes[2 : 2 + n], [y for y in made[1:] if y is not None]
    if [*map(len, states)] != [*map(len, results[:n])] or len(results) < len(made) - 1:
        return None
    course = nesting.course(states, results)
    if course is None or any(sum(map(bool, course.growth(i))) > 1 for i in range(n)):
        return None
    runs, pairs = max(FIRST_RUNS, 2 * course.likely), [(2 + i, 1 + i) for i in range(n)]
    growing = body.growing(shapes, pairs, runs, runs)
    return None if growing is None else _repeated(nesting, growing.bound, course, growing)


def _repeated(
    nesting: _Nesting, bound: BoundBody, course: _Course, growing: GrowingBody | None = None
) -> PlacedPart | None:
    """A loop whose body is bound at the shapes of the first run."""
    n = nesting.params["states"]
    most, start, *values = nesting.inputs
    (counter, condition, *_), (going, *made) = bound.inputs, bound.outputs
    dtypes = counter.dtype is DType.INT64 and condition.dtype is DType.BOOL
    run = _Runs(nesting, bound, bound.inputs[2:], made)
    fits = _alike(values, run.inputs) and _gives(nesting, made)
    if growing is None and not run.steady(values):
        return None
    if not (dtypes and fits and _is_one(going, DType.BOOL)):
        return None
    rows = run.stacked([0] * len(made[n:]), [False] * len(made[n:]), course.rows)
    if rows is None:
        return None
    number, more, yes = (_word(t) for t in (np.int64, np.bool_, np.bool_))
    yes[...] = True
    fixed = [(counter.buffer, number), (condition.buffer, yes), (going.buffer, more)]
    body = NestedBody(bound.program, run.captured(values[n:], n), fixed)
    often, likely = (most.buffer, start.buffer), course.after(course.likely)
    if growing is None:
        states, count = run.states(values), course.count()
        loop = LoopPart(body, states, rows, *often, number, more, course.rows, count)
        return PlacedPart(loop, likely)
    states, count = run.states(values, growing.runs), course.count(growing.runs)
    sizes = progressions(growing)
    loop = LoopPart(body, states, rows, *often, number, more, course.rows, count, sizes)
    largest = zip(made, course.after(growing.runs), strict=True)
    return PlacedPart(loop, likely, [replace(y, shape=shape).nbytes for y, shape in largest])


def _scan(nesting: _Nesting, bodies: Sequence[BindableBody]) -> PlacedPart | None:
    p, values = nesting.params, nesting.inputs
    n, k = p["states"], len(p["input_axes"])
    if p["batched"] or not k:
        return None
    sliced, captures = values[n : n + k], values[n + k :]
    axes = [axis % len(x.shape) for x, axis in zip(sliced, p["input_axes"], strict=True)]
    runs = sliced[0].shape[axes[0]]
    slices = [_Slices(x, axis) for x, axis in zip(sliced, axes, strict=True)]
    if any(s.count != runs or not s.in_a_row for s in slices):
        return None
    heads = [s.head for s in slices]
    given = [*values[:n], *heads, *captures]
    shapes = [x.shape for x in given]
    if not Places(n).steady(shapes, bodies[0].results(shapes)):
        return None
    bound = bodies[0].bound(shapes)
    if bound is None or not _alike(given, bound.inputs):
        return None
    run = _Runs(nesting, bound, bound.inputs, bound.outputs)
    stacks = bound.outputs[n:]
    output_axes = [
        axis % (len(y.shape) + 1)
        for y, axis in zip(stacks, p["output_axes"] or [0] * len(stacks), strict=True)
    ]
    rows = run.stacked(output_axes, p["output_directions"], runs)
    if rows is None or not run.steady(values):
        return None
    moved = [
        _rows(x.buffer, inside, runs, bool(back))
        for x, inside, back in zip(sliced, bound.inputs[n:], p["input_directions"], strict=False)
    ]
    body = NestedBody(bound.program, run.captured(captures, n + k))
    loop = LoopPart(body, run.states(values), [*moved, *rows], np.array(runs), runs=runs)
    return PlacedPart(loop, run.shapes(output_axes, runs))


PARTS: Mapping[str, Callable[[_Nesting, Sequence[BindableBody]], PlacedPart | None]] = {
    "If": _branch,
    "Loop": _loop,
    "Scan": _scan,
}
"""By the layers' names."""


@dataclass(frozen=True)
class _Slices:
    """What a scan slices along an axis."""

    of: BoundTensor
    axis: int

    @property
    def count(self) -> int:
        return self.of.shape[self.axis]

    @property
    def in_a_row(self) -> bool:
        """Whether each slice is one piece of memory."""
        return math.prod(self.of.shape[: self.axis]) == 1

    @property
    def head(self) -> BoundTensor:
        shape = (*self.of.shape[: self.axis], *self.of.shape[self.axis + 1 :])
        return BoundTensor(self.of.buffer, shape, self.of.dtype)


@dataclass(frozen=True)
class _Runs:
    """Runs of a loop's body. ``inputs``, ``made``: of the body from the first state on."""

    nesting: _Nesting
    bound: BoundBody
    inputs: Sequence[BoundTensor]
    made: Sequence[BoundTensor]

    @property
    def count(self) -> int:
        """Of states."""
        n: int = self.nesting.params["states"]
        return n

    def steady(self, given: Sequence[BoundTensor]) -> bool:
        """Whether a run gives states as it takes them, and the step declares what is made."""
        n = self.count
        return _alike(given[:n], self.made[:n]) and _gives(self.nesting, self.made)

    def captured(self, captures: Sequence[BoundTensor], first: int) -> list[tuple[int, int]]:
        """Buffers around and within, of inputs from ``first`` on."""
        pairs = zip(captures, self.inputs[first:], strict=True)
        return [(x.buffer, inside.buffer) for x, inside in pairs]

    def states(self, given: Sequence[BoundTensor], runs: int = 0) -> list[CarriedState]:
        """``runs``: so many there is room for, where a state is larger after each."""
        n = self.count
        each = zip(given[:n], self.nesting.outputs[:n], self.inputs, self.made, strict=False)
        return [self._state(x, y.buffer, a, b, runs) for x, y, a, b in each]

    def _state(
        self, given: BoundTensor, result: int, a: BoundTensor, b: BoundTensor, runs: int
    ) -> CarriedState:
        read, written, more = a.buffer, b.buffer, b.nbytes - a.nbytes
        alone = (read, written) in self.bound.in_place
        spare = None if alone else room((given.nbytes + runs * more,), np.dtype(np.uint8))
        return CarriedState(given.buffer, result, read, written, given.nbytes, spare, more)

    def stacked(
        self, axes: Sequence[int], backwards: Sequence[bool], runs: int
    ) -> list[LoopRows] | None:
        """What is stacked along those axes; None where a row is not one piece of memory."""
        stacks = list(zip(self.made[self.count :], axes, backwards, strict=True))
        if any(math.prod(y.shape[:axis]) != 1 for y, axis, _ in stacks):
            return None
        outputs = self.nesting.outputs[self.count :]
        return [
            _rows(o.buffer, y, runs, bool(back))
            for o, (y, _, back) in zip(outputs, stacks, strict=True)
        ]

    def shapes(self, axes: Sequence[int], runs: int) -> Shapes:
        """Of the step's outputs."""
        n = self.count
        stacks = zip(self.made[n:], axes, strict=True)
        rows = [(*y.shape[:axis], runs, *y.shape[axis:]) for y, axis in stacks]
        return [*(y.shape for y in self.made[:n]), *rows]


def _rows(around: int, inside: BoundTensor, runs: int, backwards: bool) -> LoopRows:
    stride = inside.nbytes
    first = (runs - 1) * stride if backwards else 0
    return LoopRows(around, inside.buffer, first, -stride if backwards else stride)


def _is_one(x: BoundTensor, dtype: DType) -> bool:
    """Whether it is one element of that type."""
    return x.dtype is dtype and math.prod(x.shape) == 1


def _alike(given: Sequence[BoundTensor], taken: Sequence[BoundTensor]) -> bool:
    """Whether one can lie where the other does."""
    found = [(x.shape, x.dtype) for x in given]
    return found == [(y.shape, y.dtype) for y in taken]


def _gives(nesting: _Nesting, made: Sequence[BoundTensor]) -> bool:
    """Whether a body makes what the step declares, but for shapes."""
    return [y.dtype for y in made] == [o.spec.dtype for o in nesting.outputs]


def _word(dtype: type[np.generic]) -> Any:
    return np.zeros((), dtype)
