"""The memory layout of a plan at each shape: sizes, offsets, and whether the shape is one that the
plan can run at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

from tactix.base.arithmetic import ArithmeticWriter, Evaluator, IntegerArithmetic, python
from tactix.base.dims import Env, related
from tactix.base.errors import ShapeError
from tactix.base.formulas import Formulas
from tactix.plan.demands import Demand
from tactix.plan.extents import SIZE_LIMIT, Extent, check, size_at
from tactix.plan.memory import Lifetimes, Stacking, plan_memory
from tactix.plan.parts import PART, located
from tactix.plan.schema import Buffer, Plan
from tactix.run.shapes import evaluated

LINGER = 8
"""Steps for which the memory of small tensors is not used again, where steps run beside each other.
"""

MOST_STACKED = 4096
"""Tensors of a plan whose order in the arena is kept for other shapes; the function of more of them
would take longer to make than many searches.
"""


@dataclass(frozen=True)
class Layout:
    """A bound shape: shapes of inputs and outputs by name, bytes of the arena, and offsets in it of
    all buffers, 0 for what is not in it.
    """

    env: Env
    shapes: Mapping[str, tuple[int, ...]]
    offsets: Sequence[int]
    arena: int


@dataclass(frozen=True)
class LayoutPlaces:
    """Where a writer of arithmetic has what a layout consists of: the ``dims`` of inputs and
    outputs in a row, the bytes of the ``arena``, and ``offsets`` in it of all buffers.
    """

    dims: Sequence[int]
    arena: int
    offsets: Sequence[int]


class _Sizes:
    """Bytes of buffers at each shape; the same formulas are one kind of buffer."""

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._owners = {b.nbytes: b.name for b in buffers}
        self.kinds = {d: k for k, d in enumerate(self._owners)}
        self._formulas = Formulas(self._owners)
        self.formulas = (self._formulas,)

    def write(self, writer: ArithmeticWriter) -> list[int]:
        """Places of the sizes, by kind, which make sense."""
        places = [writer.dim(d) for d in self._owners]
        for place in places:
            _write_limits(writer, place)
        return places

    def at(self, env: Env) -> Sequence[int]:
        """By kind. Raises ShapeError that names a buffer whose size makes no sense."""
        try:
            found = self._formulas.at(env)
        except ShapeError:
            found = (-1,)
        if min(found, default=0) < 0 or max(found, default=0) >= SIZE_LIMIT:
            return tuple([size_at(d, env, who) for d, who in self._owners.items()])
        return found


class _Demands:
    """What must hold between symbols, compared at once."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        self._demands = tuple(demands)
        self._relations = [d.assumption.relation for d in self._demands]
        self._left = Formulas(d.assumption.left for d in self._demands)
        self._right = Formulas(d.assumption.right for d in self._demands)
        self.formulas = self._left, self._right

    def write(self, writer: ArithmeticWriter) -> None:
        for a in (d.assumption for d in self._demands):
            writer.operation(a.relation, writer.dim(a.left), writer.dim(a.right))

    def check(self, env: Env) -> None:
        """Raises ShapeError for the first that does not hold."""
        try:
            holds = all(map(related, self._left.at(env), self._relations, self._right.at(env)))
        except ShapeError:
            holds = False
        if not holds:
            check(self._demands, env)


class _Extents:
    """That steps have room for what they use, compared at once."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._extents = tuple(extents)
        self._taken = Formulas(e.nbytes for e in self._extents)
        self._capacity = Formulas(e.capacity for e in self._extents)
        self.formulas = self._taken, self._capacity

    def write(self, writer: ArithmeticWriter) -> None:
        for e in self._extents:
            taken, capacity = writer.dim(e.nbytes), writer.dim(e.capacity)
            _write_limits(writer, taken)
            _write_limits(writer, capacity)
            writer.operation(">=", capacity, taken)

    def check(self, env: Env) -> None:
        """Raises ShapeError for the first that does not hold."""
        try:
            pairs = zip(self._taken.at(env), self._capacity.at(env), strict=True)
            holds = all(0 <= taken <= capacity < SIZE_LIMIT for taken, capacity in pairs)
        except ShapeError:
            holds = False
        if not holds:
            check(self._extents, env)


def _write_limits(writer: ArithmeticWriter, size: int) -> None:
    """That a size in bytes makes sense."""
    writer.operation(">=", size, writer.constant(0))
    writer.operation(">=", writer.constant(SIZE_LIMIT - 1), size)


class Layouts:
    """Makes the layouts of one plan.

    Placements are searched for at the sizes that the first profile is tuned for, at the highest of
    each profile, and where there are no symbols. Elsewhere tensors keep the order of a placement at
    sizes near by: each symbol at three quarters of the next power of two, so that what a shape gets
    depends on nothing but the shape. What would then take more than the highest shapes, whose bytes
    a user may have given, is searched for, too.

    ``placed``: the buffers in the arena, but for the ``parts`` of others. ``spread``: bytes up to
    which memory is used again late. ``make``: what runs their arithmetic.
    """

    def __init__(
        self, plan: Plan, spread: int, make: Callable[[IntegerArithmetic], Evaluator] = python
    ) -> None:
        self._spread, self._make = spread, make
        buffers = plan.buffers
        self.placed = [i for i, b in enumerate(buffers) if b.kind in ("arena", "workspace")]
        self._count = len(buffers)
        self.parts = [i for i, b in enumerate(buffers) if b.kind == PART]
        self._places = [located(buffers, i) for i in self.parts]
        self._starts = Formulas(d for _, d in self._places)
        self._lifetimes = [(buffers[i].first, buffers[i].last) for i in self.placed]
        self._sizes = _Sizes(buffers)
        self._kinds = [self._sizes.kinds[buffers[i].nbytes] for i in self.placed]
        self._demands = _Demands(chain(*plan.demands.values()))
        self._extents = _Extents(chain(*plan.extents.values()))
        self._ios = (*plan.inputs, *plan.outputs)
        ends = [0, *accumulate(len(io.shape) for io in self._ios)]
        self._spans = [(io.name, *span) for io, span in zip(self._ios, pairwise(ends), strict=True)]
        self._axes = ends[-1]
        self._shapes = [Formulas(io.shape) for io in self._ios]
        formulas = (*self._shapes, *self._sizes.formulas, *self._demands.formulas)
        formulas = (*formulas, *self._extents.formulas, self._starts)
        self._known = sorted({s for f in formulas for s in f.symbols})
        self._near: dict[tuple[int, ...], Evaluator | None] = {}
        tuned = [{s: r[1] for s, r in p.dims.items()} for p in plan.profiles[:1]]
        self._tops = [
            {s: high for s, (_, _, high) in p.dims.items() if high is not None}
            for p in plan.profiles
        ]
        self._searched_at = [{}, *tuned, *self._tops]
        self._highest: float | None = None

    def at(self, env: Env) -> Layout:
        """Raises ShapeError."""
        found = self._stacked(env)
        if found is not None and found.arena <= self._most():
            return found
        self._demands.check(env)  # first: they say more than a size can
        kinds = self._sizes.at(env)
        self._extents.check(env)
        offsets, arena = self._searched(kinds)
        by_buffer = self._by_buffer(offsets, 0)
        for i, (whole, _), start in zip(
            self.parts, self._places, self._starts.at(env), strict=True
        ):
            by_buffer[i] = by_buffer[whole] + start
        return Layout(env, self._io_shapes(env), by_buffer, arena)

    def sizes(self, env: Env) -> list[int]:
        """Bytes of each placed buffer. Raises ShapeError."""
        return self._placed_sizes(self._sizes.at(env))

    def _by_buffer(self, placed: Sequence[int], others: int) -> list[int]:
        """What is said of placed buffers, and of the others."""
        said = dict(zip(self.placed, placed, strict=True))
        return [said.get(i, others) for i in range(self._count)]

    def _placed_sizes(self, kinds: Sequence[int]) -> list[int]:
        """Bytes of each placed buffer, from those of each kind."""
        return [kinds[k] for k in self._kinds]

    def _searched(self, kinds: Sequence[int]) -> tuple[list[int], int]:
        """A placement at these sizes: offsets, and the bytes of the arena."""
        return plan_memory(self._placed_sizes(kinds), self._lives(kinds))

    def _io_shapes(self, env: Env) -> dict[str, tuple[int, ...]]:
        try:
            return {
                io.name: tuple(shape.at(env))
                for io, shape in zip(self._ios, self._shapes, strict=True)
            }
        except ShapeError:
            return {io.name: evaluated(io, env) for io in self._ios}  # which names the tensor

    def _lives(self, kinds: Sequence[int]) -> Lifetimes:
        """First and last steps between which memory is not used by others."""
        return [
            (first, last + LINGER * (kinds[k] <= self._spread))
            for k, (first, last) in zip(self._kinds, self._lifetimes, strict=True)
        ]

    def _stacked(self, env: Env) -> Layout | None:
        """The layout in the order of a placement near by; none where something makes no sense, and
        at the shapes that are searched for.
        """
        values = [env[s] for s in self._known if s in env]
        if env in self._searched_at or len(values) < len(self._known):
            return None
        near = tuple([3 << n.bit_length() >> 2 for n in values])
        if near not in self._near:
            self._near[near] = self._evaluator(dict(zip(self._known, near)))
        evaluator = self._near[near]
        found = evaluator(values) if evaluator else None
        if found is None:
            return None
        dims = tuple(found[: self._axes])
        shapes = {name: dims[start:end] for name, start, end in self._spans}
        return Layout(env, shapes, found[self._axes + 1 :], found[self._axes])

    def _evaluator(self, near: Env) -> Evaluator | None:
        """What gives the layouts around a shape: dims of inputs and outputs, bytes of the arena,
        offsets. None where that shape makes no sense, or making it would take long.
        """
        if len(self.placed) > MOST_STACKED:
            return None
        writer = ArithmeticWriter(self._known)
        try:
            found = self.write(writer, near)
        except ShapeError:  # of what is demanded between symbols
            return None
        return self._make(writer.arithmetic([*found.dims, found.arena, *found.offsets]))

    def write(self, writer: ArithmeticWriter, near: Env) -> LayoutPlaces:
        """The layout at any shape, where tensors lie in the order that a placement at the shape
        ``near`` gives them, and what must hold for it. Raises ShapeError where there is none.
        """
        kinds = self._sizes.at(near)
        self._demands.write(writer)
        sizes = self._sizes.write(writer)
        self._extents.write(writer)
        stacking = Stacking(self._searched(kinds)[0], self._placed_sizes(kinds), self._lives(kinds))
        offsets, arena = stacking.write(writer, self._placed_sizes(sizes))
        dims = [writer.dim(d) for io in self._ios for d in io.shape]
        by_buffer = self._by_buffer(offsets, writer.constant(0))
        for i, (whole, start) in zip(self.parts, self._places, strict=True):
            by_buffer[i] = writer.operation("+", by_buffer[whole], writer.dim(start))
        return LayoutPlaces(dims, arena, by_buffer)

    def _most(self) -> float:
        """Bytes of the arena at the highest shapes of the profiles, infinite if they have none."""
        if self._highest is None:
            try:
                found = [self._sizes.at(top) for top in self._tops]
            except ShapeError:  # a symbol has no highest value
                found = []
            self._highest = max((self._searched(kinds)[1] for kinds in found), default=math.inf)
        return self._highest
