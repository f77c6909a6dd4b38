"""Plans whose branches and loops, and steps that tell sizes, run without coming back to Python: all
woven into one program at the shapes of some inputs, and at the sizes that are expected.

That can be where all steps but branches and loops are of one launcher that makes programs. A body
is woven in the same way, where shapes follow from its inputs' alone. Where a step tells another
size than expected the program binds what follows anew, as far as there is room; else it ends before
it, and the rest of that run is made step by step.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dims import Assumption, Dim, Env, evaluate, evaluate_shape, prod, sym, symbols
from tactix.base.errors import ExecutionError, TactixError
from tactix.base.formulas import Formulas
from tactix.base.host_memory import check_array_fits
from tactix.contracts.launcher import Launcher, Step
from tactix.contracts.program import (
    BoundBody,
    BoundTensor,
    ChangingSizes,
    GivenSizes,
    GrowingBody,
    LoopPart,
    Part,
)
from tactix.plan.extents import check, size_at
from tactix.plan.schema import Buffer, Plan
from tactix.run.arrays import AcceptedArrays, address_of
from tactix.run.bound import KEPT_BYTES
from tactix.run.link import LinkedPlan
from tactix_runtime.growth import LEAST_RUNS, StateGrowth, growth_of
from tactix_runtime.host_mirror import empty_array
from tactix_runtime.segment import Segment, bind_shape

Shapes = Sequence[tuple[int, ...]]
NOTHING: Env = {}
NO_ROOMS: Mapping[int, int] = {}
NONE = -1
"""Room of an output whose size stays."""
GROWTH = 1.5
"""So many times the bytes that they take are reserved for tensors whose sizes data tells, as for
the memory of contexts: pages that nothing touches are not there.
"""
UNKNOWN = 1
"""What a size is taken for that no run has told yet."""
LEAST_ROOM = 1 << 10
"""Bytes of such a tensor, so that few elements need no other memory than none."""


class Weave:
    """The program of a context's plan at the shapes that it was last asked for. ``inner``: those of
    its steps' bodies.

    It shares the segments, their memory included, with runs step by step.
    """

    def __init__(
        self,
        program: LinkedPlan,
        segments: Sequence[tuple[Segment, int]],
        inner: Mapping[int, Sequence[Weave]],
    ) -> None:
        self._program, self._segments, self._inner = program, segments, inner
        self._launcher = _maker(program)
        self._asked: tuple[Any, ...] = ()
        self._found: BoundBody | None = None
        self.sizes: ProgramSizes | None = None
        self._run = _Sizes({}, [], {})
        self._places: list[int] = []
        self._rooms: dict[int, int] = {}
        self.telling = {
            k: names
            & program.launchers[program.plan.steps[k].artifact.launcher].told(program.plan.steps[k])
            for k, names in program.plan.produced.items()
        }
        self._told = frozenset[str]().union(*self.telling.values())
        self.changes = bool(self._told) and not any(
            segment.changes_with(self._told) for segment, _ in segments
        )
        within = [w for weaves in inner.values() for w in weaves]
        self.tells: bool = bool(self._told) or any(w.tells for w in within)
        self._expected: Env = NOTHING
        self._growth: StateGrowth | None = None
        self._growing: tuple[Any, ...] = ()
        self._given: GivenSizes | None = None
        self._lasting = 0
        self._memory: list[Array] = []
        self._around: weakref.ref[Weave] | None = None
        for weave in within:
            weave._around = weakref.ref(self)

    @property
    def rooms(self) -> Mapping[int, int]:
        """Bytes of buffers whose sizes may be others in each run."""
        return self._rooms

    @property
    def _open(self) -> frozenset[str]:
        """Symbols that may have another value in each run of a program."""
        told = self._told if self.changes else frozenset[str]()
        return told if self._growth is None else told | self._growth.steps.keys()

    @property
    def held_bytes(self) -> int:
        """Memory for what steps with bodies make and work in, at most."""
        return sum(x.nbytes for x in self._memory)

    @property
    def able(self) -> bool:
        """Whether there may be a program at some shapes."""
        return self._launcher is not None

    def expect(self, told: Env) -> None:
        """The sizes that steps told in a run, for programs to come."""
        if told != self._expected:
            self._expected = told
            self._ask_again()

    def _ask_again(self) -> None:
        """That there was no program does not hold any more, around it, too."""
        self._asked = ()
        if around := self._around and self._around():
            around._ask_again()

    def at(self, shapes: Shapes, given: Env) -> BoundBody | None:
        """The program, at the sizes that are expected of steps; ``given``: symbols of the plan
        around this one. None where a run needs Python, or fails: who runs it step by step says why.
        """
        return self._at(shapes, given, None)

    def growing(
        self, shapes: Shapes, given: Env, states: Sequence[tuple[int, int]], runs: int, most: int
    ) -> GrowingBody | None:
        """As ``StepBody.growing``."""
        growth = self._growth_at(shapes, given, states)
        if growth is None:
            return None
        lasting = growth.affordable(max(runs, self._lasting))
        if lasting < min(most, LEAST_RUNS):
            return None
        self._lasting = max(self._lasting, lasting)
        growth = replace(growth, runs=lasting)
        bound = self._at(shapes, given, growth)
        if bound is None or self._given is None:
            return None
        of_states, steps = [s.growth for s in growth.states], [*growth.steps.values()]
        sizes = [growth.env[name] for name in growth.steps]
        return GrowingBody(bound, lasting, of_states, self._given.told, sizes, steps)

    def _growth_at(
        self, shapes: Shapes, given: Env, states: Sequence[tuple[int, int]]
    ) -> StateGrowth | None:
        """How states grow from these shapes on; None as ``growing``."""
        if self._growing[:3] != (shapes, given, states):
            try:
                env = self._program.solve(shapes, self._program.plan.profiles, given)
                growth = growth_of(self._program.plan, env, states)
            except TactixError:
                growth = None
            if growth is not None and self._stays_with(frozenset(growth.steps)):
                growth = None
            self._growing = [*shapes], {**given}, [*states], growth
        found: StateGrowth | None = self._growing[3]
        return found

    def _stays_with(self, names: frozenset[str]) -> bool:
        """Whether something hangs on these symbols that is not bound anew when they change."""
        nests = [step for step in self._program.plan.steps if step.plans]
        named = frozenset[str]().union(*map(_named, nests))
        return bool(named & names) or any(s.changes_with(names) for s, _ in self._segments)

    def _at(self, shapes: Shapes, given: Env, growth: StateGrowth | None) -> BoundBody | None:
        """As ``at``, and ``growing``."""
        if self._launcher is None:
            return None
        weights = self._program.addresses  # a new list where weights have moved
        asked = self._asked[:2] == (shapes, given) and self._growth == growth
        if not asked or self._asked[2] is not weights:
            self.forget()
            self._growth = growth
            try:
                self._found = self._woven(self._launcher, shapes, given)
            except TactixError:
                self._found = None
            self._asked = [*shapes], {**given}, weights
        return self._found

    def within(self, shapes: Shapes, given: Env) -> BoundBody | None:
        """As ``at``, for a program around it; None also where outputs may have another shape in
        each run.
        """
        changing = self._told if self.changes else frozenset[str]()
        if any(symbols(d) & changing for io in self._program.plan.outputs for d in io.shape):
            return None
        return self.at(shapes, given)

    def stopped(self, part: int) -> Stopped:
        """What is done, where the program ended at that part of it, as a size was another."""
        step, produced = self._places[part], self._program.plan.produced
        open_still = frozenset[str]().union(*(told for k, told in produced.items() if k >= step))
        found = self._run.env if self.sizes is None else self.sizes.env()
        env = {name: n for name, n in found.items() if name not in open_still}
        made = frozenset(o.buffer for s in self._program.plan.steps[:step] for o in s.outputs)
        return Stopped(step, env, list(self._run.addresses), made)

    def results(self, shapes: Shapes, given: Env) -> Sequence[tuple[int, ...] | None]:
        """As ``BindableBody.results``."""
        plan = self._program.plan
        env = self._program.solve(shapes, plan.profiles, given)
        known = env.keys()
        return [
            evaluate_shape(io.shape, env) if all(symbols(d) <= known for d in io.shape) else None
            for io in plan.outputs
        ]

    def holds(self, bound: BoundBody) -> bool:
        """Whether it can run still."""
        return self._found is bound and self._asked[2] is self._program.addresses

    def forget(self) -> None:
        """The segments are bound for something else, so that programs with them cannot run any
        more, those of plans around included. That there was none stays known.
        """
        if self._found is None:
            return
        self._asked, self._found = (), None
        if around := self._around and self._around():
            around.forget()

    def _woven(self, launcher: Launcher, shapes: Shapes, given: Env) -> BoundBody | None:
        program, plan = self._program, self._program.plan
        env = program.solve(shapes, plan.profiles, given)
        run = self._run = _Sizes(env, list(program.addresses), {})
        parts = list[Part]()
        self._places = places = list[int]()
        self._memory.clear()
        telling, conditions = -1, dict[int, list[Assumption]]()
        if self._growth is not None:
            self._given = _given_sizes(self._growth, env)
            telling = len(parts)
            parts.append(self._given)
            places.append(0)
        for segment, k in self._segments:
            self._place(segment, run)
            conditions.setdefault(telling, []).extend(self._conditions(segment, run))
            if segment.steps:
                parts.append(segment.bind(run.env, run.addresses))
                places.append(k)
                segment.displaced()
            if k < len(plan.steps):
                part = self._part(k, run)
                if part is None:
                    return None
                conditions[telling] += (c for e in plan.extents.get(k, ()) for c in e.conditions())
                conditions[telling] += self._fixed_sizes(k, run)
                if self.telling[k]:
                    telling = len(parts)
                    conditions[telling] = self._rooms_of(k, run)
                parts.append(part)
                places.append(k)
        self.sizes = None
        if self._open:
            names, values = tuple(run.env), np.array([*run.env.values()], np.int64)
            inside = self._around is not None
            self.sizes = ProgramSizes(ChangingSizes(names, values, self._open, conditions, inside))
        changing = self.sizes.sizes if self.sizes else None
        made = launcher.program(parts, run.addresses, program.io_buffers, changing)
        if made is None:
            return None
        each = zip(plan.inputs, shapes, strict=True)
        inputs = [BoundTensor(io.buffer, shape, io.dtype) for io, shape in each]
        outputs = [run.made[io.buffer] for io in plan.outputs]
        buffers = {io.name: io.buffer for io in (*plan.inputs, *plan.outputs)}
        in_place = frozenset((buffers[a], buffers[b]) for a, b in plan.in_place)
        return BoundBody(made, inputs, outputs, in_place)

    def _place(self, segment: Segment, run: _Sizes) -> None:
        """Buffers of ordinary steps. Raises ExecutionError for one that nothing has placed."""
        if segment.is_empty:
            return
        segment.lay_out(run.env, self._room)
        for buffer, place in zip(segment.own, segment.places, strict=True):
            run.addresses[buffer] = place
        moving, buffers = self._program.io_buffers, self._program.plan.buffers
        made = (o.buffer for s in segment.steps for o in s.outputs if o.buffer in moving)
        run.made.update((b, _tensor(b, buffers[b], run.env)) for b in made)
        for b in segment.outer:
            declared = buffers[b]
            placed = run.addresses[b] or b in moving
            if not placed and size_at(declared.nbytes, run.env, declared.name):
                raise ExecutionError(f"buffer {b} has no memory", do="Build the plan again")

    def _room(self, buffer: int, nbytes: int) -> int:
        """Bytes of a buffer that takes so many: half as many more, where they may change, and no
        less than it had.
        """
        declared = self._program.plan.buffers[buffer].nbytes
        if not symbols(declared) & self._open:
            return nbytes
        if self._growth is not None:
            nbytes = max(nbytes, size_at(declared, self._growth.last, str(buffer)))
        if nbytes > self._rooms.get(buffer, -1):
            self._rooms[buffer] = max(LEAST_ROOM, int(nbytes * GROWTH))
        return self._rooms[buffer]

    def _conditions(self, segment: Segment, run: _Sizes) -> list[Assumption]:
        """What must hold for a segment to run at other sizes where it is."""
        if not self._open:
            return []
        found = [c for e in segment.checks for c in e.conditions()]
        buffers, moving = self._program.plan.buffers, self._program.io_buffers
        given_out = [o.buffer for s in segment.steps for o in s.outputs if o.buffer in moving]
        found += (Assumption(d, ">=", 0) for b in given_out for d in buffers[b].shape)
        for b in (*segment.own, *given_out):
            nbytes = buffers[b].nbytes
            found += self._fits(nbytes, self._room(b, evaluate(nbytes, run.env)))
        return found

    def _rooms_of(self, k: int, run: _Sizes) -> list[Assumption]:
        """That what a step tells has room."""
        if not self._open:
            return []
        found, buffers = list[Assumption](), self._program.plan.buffers
        for o in self._program.plan.steps[k].outputs:
            declared = buffers[o.buffer].nbytes
            room = self._room(o.buffer, evaluate(declared, run.env))
            found += (Assumption(d, ">=", 0) for d in o.spec.shape)
            found += self._fits(declared, room)
            found += self._fits(prod(o.spec.shape) * o.spec.dtype.itemsize, room)
        return found

    def _fixed_sizes(self, k: int, run: _Sizes) -> list[Assumption]:
        """That the sizes at which bodies are bound stay as they are."""
        step = self._program.plan.steps[k]
        if not (self._open and step.plans):
            return []
        before = _named(step) & self._open & run.env.keys() - self.telling[k]
        return [Assumption(sym(name), "==", run.env[name]) for name in sorted(before)]

    def _fits(self, nbytes: Dim, room: int) -> list[Assumption]:
        if not symbols(nbytes) & self._open:
            return []
        return [Assumption(nbytes, ">=", 0), Assumption(room, ">=", nbytes)]

    def _part(self, k: int, run: _Sizes) -> Part | None:
        """A step that is produced otherwise; its outputs get memory."""
        program, step = self._program, self._program.plan.steps[k]
        check(program.plan.extents.get(k, ()), run.env)
        bodies = [_Woven(w, run.env) for w in self._inner[k]]
        told, names = self._expected, self.telling[k]
        if self.changes:  # what has not run yet, as in a branch that nothing has chosen
            expected = {name: told.get(name, UNKNOWN) for name in names}
        else:
            expected = {name: told[name] for name in names if name in told}
        launcher = program.launchers[step.artifact.launcher]
        found = launcher.part(step, run.env, expected, bodies, program.context)
        if found is None or len(found.shapes) != len(step.outputs):
            return None
        for o, shape, room in zip(step.outputs, found.shapes, found.rooms, strict=False):
            may_change = (
                self.changes and symbols(program.plan.buffers[o.buffer].nbytes) & self._open
            )
            if not may_change and room > math.prod(shape) * o.spec.dtype.itemsize:
                return None
            self._room(o.buffer, room)
        for o, shape in zip(step.outputs, found.shapes, strict=True):
            bind_shape(step.name, o.spec.shape, shape, run.env)
            made = run.made[o.buffer] = BoundTensor(o.buffer, shape, o.spec.dtype)
            if o.buffer not in program.io_buffers:
                self._reserve(made, run)
        part = found.part
        if not isinstance(part, LoopPart):
            return part
        self._memory += (s.spare for s in part.states if s.spare is not None)
        if part.count is not None:
            rooms = [n for n in (part.count.room, self._rows(part, step, run)) if n >= 0]
            return replace(part, count=replace(part.count, room=min(rooms, default=-1)))
        return part

    def _rows(self, part: LoopPart, step: Step, run: _Sizes) -> int:
        """For how many rows of a loop there is room; -1 for any number."""
        made = {o.buffer for o in step.outputs}
        rows = [(r, run.made[r.around].nbytes) for r in part.rows if r.around in made]
        return min((self._room(r.around, n) // r.stride for r, n in rows if r.stride), default=-1)

    def _reserve(self, made: BoundTensor, run: _Sizes) -> None:
        """Memory for a result, and for what steps take its buffer to be."""
        declared = self._program.plan.buffers[made.buffer]
        size = max(made.nbytes, size_at(declared.nbytes, run.env, declared.name))
        room = empty_array((self._room(made.buffer, size),), np.uint8)
        self._memory.append(room)
        run.addresses[made.buffer] = address_of(room)


@dataclass(frozen=True, eq=False)
class ProgramSizes:
    """Sizes that may be others in each run of a program."""

    sizes: ChangingSizes

    def env(self) -> dict[str, int]:
        """Of the last run."""
        return dict(zip(self.sizes.symbols, self.sizes.values.tolist(), strict=True))


@dataclass(frozen=True)
class Stopped:
    """A run that ended before a step: its index, the symbols that are known before it, where
    buffers lie, and which of them steps have ``made``.
    """

    step: int
    env: dict[str, int]
    addresses: list[int]
    made: frozenset[int]


@dataclass(frozen=True)
class _Sizes:
    """What is known of a plan while it is woven: symbols, addresses of buffers, and by buffer what
    is given out, among others.
    """

    env: dict[str, int]
    addresses: list[int]
    made: dict[int, BoundTensor]


def _named(step: Step) -> frozenset[str]:
    """Symbols of a step with bodies, and of these."""
    dims = (d for o in (*step.inputs, *step.outputs) for d in o.spec.shape)
    return frozenset[str]().union(*map(symbols, dims), *(p.named for p in step.plans))


def _given_sizes(growth: StateGrowth, env: Env) -> GivenSizes:
    """Those that grow, as they are before the first run."""
    told, expected = (np.array([env[name] for name in growth.steps], np.int64) for _ in range(2))
    return GivenSizes(tuple(growth.steps), told, expected)


def _tensor(index: int, declared: Buffer, env: Env) -> BoundTensor:
    """A buffer as it is declared: the step that writes it may take it to have another shape."""
    return BoundTensor(index, evaluate_shape(declared.shape, env), declared.dtype)


@dataclass(frozen=True)
class _Woven:
    """A body in a step. ``given``: symbols of the plan around it."""

    weave: Weave
    given: Env

    def results(self, shapes: Shapes) -> Sequence[tuple[int, ...] | None]:
        return self.weave.results(shapes, self.given)

    def bound(self, shapes: Shapes) -> BoundBody | None:
        return self.weave.within(shapes, self.given)

    def growing(
        self, shapes: Shapes, states: Sequence[tuple[int, int]], runs: int, most: int
    ) -> GrowingBody | None:
        if self.weave.tells:  # a run that ends would cost all of the loop
            return None
        return self.weave.growing(shapes, self.given, states, runs, most)


def _maker(program: LinkedPlan) -> Launcher | None:
    """The launcher of all ordinary steps, those of bodies included; None where some are not woven,
    or there are none.
    """
    plans = _nested(program)
    makers = list({x.key: x for p in plans for x in _makers(p)}.values())
    able = len(makers) == 1 and makers[0].iterates and all(_weavable(p) for p in plans)
    return makers[0] if able else None


def _nested(program: LinkedPlan) -> list[LinkedPlan]:
    inner = [q for bodies in program.bodies.values() for p in bodies for q in _nested(p)]
    return [program, *inner]


def _makers(program: LinkedPlan) -> list[Launcher]:
    return [program.launchers[s.artifact.launcher] for s in program.plan.steps if not s.plans]


def _weavable(program: LinkedPlan) -> bool:
    """Whether nothing but its sizes can be in the way."""
    plan, moving = program.plan, program.io_buffers
    produced = [plan.steps[k] for k in plan.produced]
    nests = all(program.launchers[s.artifact.launcher].nests for s in produced)
    objects = any(io.dtype.on_host for io in (*plan.inputs, *plan.outputs))
    apart = len(set(moving)) == len(moving)
    return program.device.host_memory and nests and not objects and apart and not plan.kernel_sets


class WholeRun:
    """Runs of a program on arrays. ``inputs``, ``outputs``: their shapes, by name the latter, of
    the last run. ``stopped``: at which part of it the last run ended, as a size was another; None
    at its end. ``sizes``: those that may be others in each run, and ``rooms``: bytes of outputs, by
    buffer.
    """

    def __init__(
        self,
        bound: BoundBody,
        plan: Plan,
        sizes: ProgramSizes | None = None,
        rooms: Mapping[int, int] = NO_ROOMS,
    ) -> None:
        self.bound, self._program = bound, bound.program
        inputs = AcceptedArrays((t.dtype.numpy, t.shape) for t in bound.inputs)
        self.accepts = inputs.accepts
        self._made = [(t.shape, t.dtype.numpy) for t in bound.outputs]
        self._names = [io.name for io in plan.outputs]
        self.inputs = [t.shape for t in bound.inputs]
        self.outputs = {n: t.shape for n, t in zip(self._names, bound.outputs, strict=True)}
        self._sizes = sizes
        self._now = sizes.sizes.values.data.cast("B") if sizes else memoryview(b"")
        self._shown = bytes(self._now)
        self._shapes = [Formulas(io.shape) for io in plan.outputs]
        self._rooms = [rooms.get(t.buffer, NONE) if sizes else NONE for t in bound.outputs]
        self.stopped: int | None = None
        for shape, dtype in self._made:
            check_array_fits(shape, dtype)
        needed = (t.nbytes if n == NONE else n for t, n in zip(bound.outputs, self._rooms))
        self._kept = self._empty() if sum(needed) <= KEPT_BYTES else []
        self._kept_at = [address_of(y) for y in self._kept]
        self._seen = self._as_shown(self._kept)

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        """New outputs for what is accepted; of a run that stopped, those that are made before.
        Raises as the program does, and MemoryError.
        """
        outputs = self._kept or self._empty()
        where = self._kept_at or [address_of(y) for y in outputs]
        self._program.place([*map(address_of, values), *where])
        self.stopped = self._program()
        if self._now != self._shown:
            self._show()
        if self._kept:
            return [y.copy() for y in self._seen]
        seen = zip(self._as_shown(outputs), self._rooms, strict=True)
        return [y.copy() if 2 * y.nbytes < room else y for y, room in seen]

    def _empty(self) -> list[Array]:
        """Memory for outputs."""
        return [
            np.empty(shape, dtype) if room == NONE else np.empty(room, np.uint8)
            for (shape, dtype), room in zip(self._made, self._rooms, strict=True)
        ]

    def _show(self) -> None:
        """Outputs have the shapes that were told."""
        assert self._sizes is not None
        self._shown, env = bytes(self._now), self._sizes.env()
        shapes = [tuple(f.at(env)) for f in self._shapes]
        self._made = [(shape, dtype) for shape, (_, dtype) in zip(shapes, self._made, strict=True)]
        self.outputs = dict(zip(self._names, shapes, strict=True))
        self._seen = self._as_shown(self._kept)

    def _as_shown(self, memory: Sequence[Array]) -> list[Array]:
        """Outputs in memory that has room for them. Those of a run that stopped may be of any
        size: they are not made.
        """
        found = list[Array]()
        for y, (shape, dtype), room in zip(memory, self._made, self._rooms, strict=False):
            fits = min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize <= room
            found.append(np.ndarray(shape, dtype, y) if fits else y)
        return found
