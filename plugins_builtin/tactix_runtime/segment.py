"""The ordinary steps between two produced ones: laid out and bound when their symbols have
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tactix.base.dims import Env, Shape, evaluate, evaluate_shape, learn, show, symbols
from tactix.base.errors import DataError, ExecutionError
from tactix.contracts.launcher import Runnable, bind
from tactix.plan.extents import Checked, check, size_at
from tactix.plan.memory import plan_memory
from tactix.plan.parts import PART, located
from tactix.plan.schema import symbols_of
from tactix.run.link import LinkedPlan
from tactix.run.memory import Memory
from tactix.run.watchers import UNWATCHED
from tactix_runtime.host_mirror import RunValues


def _exact(buffer: int, nbytes: int) -> int:
    return nbytes


class Segment:
    """The ordinary steps [first, stop) of a program; their memory is its own while it lives."""

    def __init__(self, program: LinkedPlan, first: int, stop: int) -> None:
        plan = program.plan
        self.program, self.steps = program, plan.steps[first:stop]
        buffers = plan.buffers
        self._placed = [
            i
            for i, b in enumerate(buffers)
            if b.kind in ("arena", "workspace") and first <= b.first < stop
        ]
        # a buffer that a later segment reads keeps its place to the end of this one
        self.lives = [(buffers[i].first, min(buffers[i].last, stop)) for i in self._placed]
        found = [(i, located(buffers, i)) for i, b in enumerate(buffers) if b.kind == PART]
        ranks = {i: k for k, i in enumerate(self._placed)}
        self._parts = [(ranks[whole], start) for _, (whole, start) in found if whole in ranks]
        self.own = [*self._placed, *(i for i, (whole, _) in found if whole in ranks)]
        made = [o.buffer for s in self.steps for o in s.outputs]
        outputs = [(i, buffers[i]) for i in made if buffers[i].kind == "output"]
        self.outputs = [(i, b.shape, b.dtype.numpy) for i, b in outputs]
        self.shapes: list[tuple[int, ...]] = []
        touched = {o.buffer for s in self.steps for o in (*s.inputs, *s.outputs) if o.buffer >= 0}
        self.outer = sorted(touched - set(self.own))
        self.constants = sorted({b for s in self.steps for b in s.constants.values()})
        self._weights: list[int] = []
        self.checks: list[Checked] = list(plan.demands.get(first, ()))
        self.checks += (e for k in range(first, stop) for e in plan.extents.get(k, ()))
        self.is_empty = not (self.steps or self.own or self.checks)
        self._named = self._names()
        self.watch = UNWATCHED
        self.runnable: Runnable | None = None
        self.places: list[int] = []
        self._env: Mapping[str, int] | None = None
        self._memory = Memory(0, 0)
        self._bound: list[int] = []

    def run(self, env: Env, run_values: RunValues) -> None:
        """Make its outputs, place its buffers, bind what changed, run."""
        if self.is_empty:
            return
        known, addresses = self._at(env), run_values.addresses
        fresh = known != self._env
        if fresh:
            self.lay_out(env)
        for (buffer, _, dtype), shape in zip(self.outputs, self.shapes, strict=True):
            run_values.make(buffer, shape, dtype)
        for i, address in zip(self.own, self.places, strict=True):
            addresses[i] = address
        if not self.steps:
            self._env = known
            return
        run_values.place(self.outer)
        if fresh:
            self._check_places(env, run_values)
        if fresh or self.runnable is None:
            self.bind(env, addresses)
        else:
            self._rebind(addresses)
            for b in () if run_values.weights is self._weights else self.constants:
                self.runnable.rebind(b, addresses[b])
        self._weights = run_values.weights
        if self.runnable is not None:
            self.runnable()

    def _names(self) -> frozenset[str] | None:
        """The symbols that its memory and its steps hang on; None for all: of steps that are no
        machine code only their launcher knows.
        """
        plan, launchers = self.program.plan, self.program.launchers
        if not all(launchers[s.artifact.launcher].iterates for s in self.steps):
            return None
        buffers = [plan.buffers[b] for b in {*self.own, *self.outer}]
        return symbols_of(self.steps, buffers, self.checks)

    def _at(self, env: Env) -> Mapping[str, int]:
        """The values of the symbols that it hangs on, those that are known."""
        if self._named is None:
            return dict(env)
        return {name: n for name, n in env.items() if name in self._named}

    @property
    def held_bytes(self) -> int:
        """Of its own memory."""
        return self._memory.size

    def displaced(self) -> None:
        """Something else places and binds it from now on: the next run does so anew."""
        self._env = None

    def changes_with(self, told: frozenset[str]) -> bool:
        """Whether its buffers lie elsewhere, in their own memory, at other values of these."""
        return any(symbols(start) & told for _, start in self._parts)

    def _check_places(self, env: Env, run_values: RunValues) -> None:
        """Raises ExecutionError for a buffer that the steps touch and nothing has placed."""
        for b in self.outer:
            if not run_values.addresses[b] and (
                b not in run_values.values or run_values.values[b].nbytes
            ):
                buffer = self.program.plan.buffers[b]
                if size := size_at(buffer.nbytes, env, buffer.name):
                    what = f"buffer {buffer.name!r} of {size} bytes has no memory"
                    raise ExecutionError(what, who=self.steps[0].name, do="Build the plan again")

    def lay_out(self, env: Env, room: Callable[[int, int], int] = _exact) -> None:
        """``places`` of its own buffers, and ``shapes`` of its outputs. ``room``: bytes that a
        buffer gets, from its index and those that it takes.
        """
        self._env = None
        check(self.checks, env)
        buffers = self.program.plan.buffers
        sizes = [room(i, size_at(buffers[i].nbytes, env, buffers[i].name)) for i in self._placed]
        offsets, total = plan_memory(sizes, self.lives)
        if self._memory.size < total:
            self._memory = Memory.allocate(self.program.allocator, total)
        offsets += [offsets[k] + evaluate(start, env) for k, start in self._parts]
        self.places = [self._memory.address + offset for offset in offsets]
        self.shapes = [evaluate_shape(shape, env) for _, shape, _ in self.outputs]

    def bind(self, env: Env, addresses: Sequence[int]) -> Runnable:
        """The steps at those sizes and addresses."""
        if self.runnable is None:
            self.runnable = self.program.link_steps(self.steps, self.program.context, self.watch)
        bind(self.runnable, self.steps, env, addresses)
        self._env, self._bound = self._at(env), [addresses[b] for b in self.outer]
        return self.runnable

    def _rebind(self, addresses: list[int]) -> None:
        assert self.runnable is not None
        for k, b in enumerate(self.outer):
            if addresses[b] != self._bound[k]:
                self._bound[k] = addresses[b]
                self.runnable.rebind(b, addresses[b])


def segments(program: LinkedPlan) -> list[tuple[Segment, int]]:
    """What lies between produced steps, each with the step behind it, or the number of steps."""
    plan = program.plan
    stops = (*plan.produced, len(plan.steps))
    starts = (0, *(k + 1 for k in plan.produced))
    return [(Segment(program, a, b), b) for a, b in zip(starts, stops, strict=True)]


def bind_shape(name: str, declared: Shape, shape: tuple[int, ...], env: dict[str, int]) -> None:
    """Bind the symbols of a declared shape that have no value yet. Raises DataError if the rest
    differs.
    """
    if len(declared) == len(shape):
        learn(declared, shape, env)
        if evaluate_shape(declared, env) == shape:
            return
    known = ", ".join(f"{k} = {env[k]}" for d in declared for k in sorted(symbols(d)) if k in env)
    why = f"declared is {show(declared)}" + (f" at {known}" if known else "")
    raise DataError(f"gave shape {show(shape)}", who=name, why=why)
