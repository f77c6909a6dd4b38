"""Running plans in which a shape follows from data, a value is a Python object, or a step has
bodies.

Such steps are produced one by one: they give arrays or objects, whose shapes bind the symbols that
their outputs name. The ordinary steps between two of them are a segment, laid out and bound when
its symbols have changed. Where the sizes that data told were those of the run before, the next run
is one native call, if it can be (weave.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from tactix.base.dims import Env, Shape, show
from tactix.base.dtypes import DType
from tactix.base.error_recorder import recording
from tactix.base.errors import (
    AllocationError,
    ExecutionError,
    InvalidArgument,
    ShapeError,
    TactixError,
)
from tactix.contracts.launcher import Operand, Step, StepSpan
from tactix.contracts.program import BoundBody, GrowingBody
from tactix.plan.extents import check
from tactix.run.arrays import in_order, read
from tactix.run.closed_part import ClosedPart
from tactix.run.context import ExecutionContext
from tactix.run.link import LinkedPlan
from tactix.run.memory import ALIGNMENT
from tactix.run.observed import RunningStep
from tactix.run.segments import Profiler, SpanProfiler, report
from tactix.run.watchers import Watchers
from tactix_runtime.host_mirror import MirroredValues, RunValues
from tactix_runtime.segment import bind_shape, segments
from tactix_runtime.values import as_value
from tactix_runtime.weave import NOTHING, Weave, WholeRun

MOST_DEPARTURES = 6
"""After native calls that ended as there was no room, and where there can be none, 1, 3, 7 runs and
so on are made step by step, up to 2 to this power, so that what never has room costs little.
"""
MOST_OTHERS, RECENT, SMALL_BYTES = 7, 16, 1 << 20
"""Contexts beside one whose shapes change, how many shapes back one may have run for the first time
to get such a context, and bytes of memory that it may take: what takes more is not worth less time
to begin.
"""


@dataclass(frozen=True)
class ContextBody:
    """A body as its context runs it. ``given``: symbols of the plan around it."""

    context: SegmentedContext
    given: Env

    def __call__(self, values: Sequence[Any], /) -> list[Any]:
        return self.context.call(values, self.given)

    def results(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...] | None]:
        return self.context.results(shapes, self.given)

    def bound(self, shapes: Sequence[tuple[int, ...]]) -> BoundBody | None:
        return self.context.bound(shapes, self.given)

    def growing(
        self,
        shapes: Sequence[tuple[int, ...]],
        states: Sequence[tuple[int, int]],
        runs: int,
        most: int,
    ) -> GrowingBody | None:
        return self.context.growing(shapes, self.given, states, runs, most)


class ObjectStep(RunningStep):
    """A step that makes arrays or objects. ``found``: its outputs."""

    def __init__(
        self,
        program: LinkedPlan,
        index: int,
        env: Env,
        run_values: RunValues,
        bodies: Sequence[ContextBody],
    ) -> None:
        super().__init__(program.plan, program.plan.steps[index], env)
        self._program, self._bodies = program, bodies
        self._values = [run_values.value(self.step.name, o, env) for o in self.step.inputs]
        self.found: list[Any] = [None] * len(self.step.outputs)

    def run(self) -> None:
        launcher, step = self._program.launchers[self.step.artifact.launcher], self.step
        made = launcher.produce(step, self.env, self._values, self._bodies, self._program.context)
        if len(made) != len(step.outputs):
            raise ExecutionError(
                f"gave {len(made)} values, declared are {len(step.outputs)}", who=step.name
            )
        self.found = made

    def stored(self, o: Operand) -> Any:
        """Linear arrays, and objects."""
        places = {id(own): x for own, x in zip(self.step.inputs, self._values, strict=True)}
        places |= {id(own): x for own, x in zip(self.step.outputs, self.found, strict=True)}
        return places[id(o)]

    def store(self, o: Operand, x: Any) -> None:
        """Of outputs; an input is another for this step alone."""
        for values, own in ((self._values, self.step.inputs), (self.found, self.step.outputs)):
            for i, known in enumerate(own):
                values[i] = x if known is o else values[i]

    def read(self, o: Operand) -> Any:
        x = self.stored(o)
        return x.copy() if isinstance(x, np.ndarray) else x

    def write(self, o: Operand, x: Any) -> None:
        self.store(o, x)

    @contextmanager
    def placed(self, addresses: Mapping[int, int]) -> Iterator[None]:
        raise InvalidArgument("a step that is produced has no addresses", who=self.step.name)
        yield


class SegmentedContext(ExecutionContext):
    """An ExecutionContext for plans with produced steps. Output shapes are known after each run.

    ``execute_v2`` and ``execute_async_v3`` copy outputs to the given addresses, which must have
    room for what the run gives, or to where an output allocator says.
    """

    segmented = True

    def __init__(self, program: LinkedPlan, name: str = "") -> None:
        super().__init__(program, name)
        self._segments = segments(program)
        bodies = ((k, program.bodies.get(k, ())) for k in program.plan.produced)
        self._inner = {k: [SegmentedContext(p) for p in plans] for k, plans in bodies}
        self._results: dict[str, tuple[int, ...]] = {}
        self._whole: WholeRun | None = None
        self._solved: tuple[Any, Env, dict[str, int]] | None = None
        inner = {k: [c._weave for c in contexts] for k, contexts in self._inner.items()}
        self._weave: Weave = Weave(program, self._segments, inner)
        self._telling = sorted(frozenset[str]().union(*self._weave.telling.values()))
        self._expected: Env = {}
        self._steady = not self._telling
        self._departures = self._wait = 0
        self._others: list[SegmentedContext] = []
        self._recent: deque[tuple[tuple[int, ...], ...]] = deque(maxlen=RECENT)

    @property
    def profiler(self) -> Profiler | None:
        """As of any context; steps of bodies are part of their step."""
        return self._watch.profiler

    @profiler.setter
    def profiler(self, profiler: Profiler | None) -> None:
        self._watched(replace(self._watch, profiler=profiler))

    def _watched(self, watch: Watchers) -> None:
        """An observer sees steps of bodies, too, and so does a profiler of spans."""
        with self._running:
            self._watch = watch
            for segment, _ in self._segments:
                segment.watch, segment.runnable = watch, None
            looks = isinstance(watch.profiler, SpanProfiler) and watch.profiler.bodies
            spans = watch.profiler if looks else None
            for context in (c for contexts in self._inner.values() for c in contexts):
                context._watched(Watchers(spans, watch.observer))

    def get_tensor_shape(self, name: str) -> Shape:
        """As of the last run, for an output; symbolic before it."""
        index = self._tensor_index(name)
        if index < len(self._inputs):
            return super().get_tensor_shape(name)
        return self._results.get(name, self._outputs[index - len(self._inputs)].shape)

    def infer(
        self, given: Sequence[Any], stream: Any = None, left_out: Collection[int] = ()
    ) -> list[Any]:
        """Arrays of the device are copied to the host first; results are the host's, those that are
        ``left_out``, too. ``stream`` waits for nothing.
        """
        try:
            with self._running:
                found = self._again(given)
                found = self._elsewhere(given) if found is None else found
                return self._infer(given) if found is None else found
        except TactixError:
            with recording(self):
                raise
        except MemoryError as e:
            raise AllocationError("no memory for outputs", who=self.name, why=str(e)) from None

    def _again(self, given: Sequence[Any]) -> list[Any] | None:
        """The outputs, where all is as it was when the whole plan was one native call."""
        whole = self._whole
        if whole is None or not self._watch.is_off or not whole.accepts(given):
            return None
        if not self._weave.holds(whole.bound):
            return None
        outputs = whole(given)
        self._shapes, self._results = whole.inputs, whole.outputs
        return outputs if whole.stopped is None else self._noted(self._on(whole, given, outputs))

    def _elsewhere(self, given: Sequence[Any]) -> list[Any] | None:
        """As ``_again``, by a context that has run at these shapes before."""
        for other in self._others if self._watch.is_off else ():
            if (outputs := other._again(given)) is not None:
                self._shapes, self._results = other._shapes, other._results
                return outputs
        return None

    def _context_at(self, shapes: list[tuple[int, ...]]) -> SegmentedContext:
        """Itself, or another where it runs at a few shapes in turns: their programs then stay."""
        known = self._solved
        apart = self._exchange is None and self._weave.able and self._watch.is_off
        if known is None or known[0] == shapes or not apart:
            return self
        others = self._others
        at = [i for i, other in enumerate(others) if other._is_at(shapes)]
        if not at and tuple(shapes) not in self._recent:  # what runs once needs no program
            self._recent.append(tuple(shapes))
            return self
        if not at and self._held_bytes() > SMALL_BYTES:
            return self
        if not at and len(others) < MOST_OTHERS:
            others.append(SegmentedContext(self._program, self.name))
        else:
            others.append(others.pop(at[0] if at else 0))  # the first is the one that waits longest
        return others[-1]

    def _is_at(self, shapes: list[tuple[int, ...]]) -> bool:
        return self._solved is not None and self._solved[0] == shapes

    def _held_bytes(self) -> int:
        """Memory of its own, and of the contexts of bodies."""
        inner = sum(c._held_bytes() for contexts in self._inner.values() for c in contexts)
        own = sum(segment.held_bytes for segment, _ in self._segments)
        return inner + own + self._weave.held_bytes

    def _infer(self, given: Sequence[Any]) -> list[Any]:
        given = in_order(self._inputs, given, {})
        if self._exchange is not None:
            given = [self._exchange.fetch(io, x) for io, x in zip(self._inputs, given, strict=True)]
        values = [as_value(io, x) for io, x in zip(self._inputs, given, strict=True)]
        self._shapes = self._shapes_of(values)
        return self._noted(self._context_at(self._shapes).call(values))

    def execute_v2(self, bindings: list[int]) -> bool:
        with recording(self), self._running:
            self._check_addresses(bindings)
            self._copy_out(self._outputs_of(bindings), bindings)
        return True

    def execute_async_v3(self, stream: Any = 0) -> bool:
        addresses, arrays = list(self._addresses), dict(self._arrays)
        self._program.device.stream_of(stream).submit(partial(self._run_at, addresses, arrays))
        return True

    def _run_at(self, addresses: list[int], arrays: Mapping[str, Any]) -> None:
        """``arrays`` keeps the caller's arrays alive until then."""
        with recording(self), self._running:
            inputs = {
                io.name: shape
                for io, shape in zip(self._inputs, self._shapes, strict=True)
                if shape is not None
            }
            _check_sizes(arrays, inputs)
            outputs = self._outputs_of(addresses)
            allocated = {self._outputs[i - len(self._inputs)].name for i in self._allocators}
            _check_sizes(
                arrays,
                {name: shape for name, shape in self._results.items() if name not in allocated},
            )
            placed = self._placed(addresses, self._results)
            self._check_addresses(placed)
            self._copy_out(outputs, placed)

    def _copy_out(self, outputs: Sequence[Any], addresses: Sequence[int]) -> None:
        for address, y in zip(addresses[len(self._inputs) :], outputs, strict=True):
            self._program.device.copy_in(address, y)

    def _outputs_of(self, bindings: Sequence[int]) -> list[Any]:
        """The outputs for inputs at addresses."""
        for io in (*self._inputs, *self._outputs):
            if io.dtype.on_host:
                raise InvalidArgument(
                    f"{io.name!r} is {io.dtype.value}, which has no address", do="Call run()"
                )
        if None in self._shapes:
            raise InvalidArgument("an input has no shape yet", do="Call set_input_shape")
        self._check_addresses([*bindings[: len(self._inputs)], *(ALIGNMENT for _ in self._outputs)])
        shapes = [s for s in self._shapes if s is not None]
        given = zip(self._inputs, shapes, bindings, strict=False)
        device = self._program.device
        return self._noted(
            self.call([read(device, io.dtype, shape, address) for io, shape, address in given])
        )

    def _noted(self, results: list[Any]) -> list[Any]:
        """The outputs, whose shapes are kept."""
        self._results = {
            io.name: _shape(io.dtype, y) for io, y in zip(self._outputs, results, strict=True)
        }
        return results

    # -- one run ----------------------------------------------------------------------------------

    def call(self, values: Sequence[Any], given: Env = NOTHING) -> list[Any]:
        """All segments and produced steps in order; new outputs. ``given``: symbols of the plan
        around this one.
        """
        self._check_open()
        found = self._in_one(values, given)
        return self._by_steps(values, given) if found is None else found

    def _by_steps(self, values: Sequence[Any], given: Env) -> list[Any]:
        env, run_values = self._begun(values, given)
        return self._from(-1, env, run_values)

    def _on(self, whole: WholeRun, values: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The rest of a run that stopped, as a step told another size than expected."""
        assert whole.stopped is not None
        self._retreat()
        done, program = self._weave.stopped(whole.stopped), self._program
        run_values = RunValues(program)
        run_values.addresses = done.addresses
        for io, x in zip(self._inputs, values, strict=True):
            run_values.put(io.buffer, x, io.dtype)
        for io, y in zip(self._outputs, outputs, strict=True):
            if io.buffer in done.made:
                run_values.put(io.buffer, y, io.dtype)
        return self._from(done.step, done.env, run_values)

    def _retreat(self) -> None:
        """Some runs are made step by step now."""
        self._departures = min(MOST_DEPARTURES, self._departures + 1)
        self._wait = (1 << self._departures) - 1

    def _from(self, first: int, env: dict[str, int], run_values: RunValues) -> list[Any]:
        """The outputs, made step by step from that one on, which is produced; -1: all of them."""
        self._weave.forget()
        for segment, k in self._segments:
            if k > first:
                segment.run(env, run_values)
            if first <= k < len(self._program.plan.steps):
                start = time.perf_counter()
                self._produce(k, env, run_values)
                if self._watch.profiler is not None:
                    span = StepSpan(start, time.perf_counter())
                    report(self._watch.profiler, self._program.plan, k, partial(tuple, (span,)))
        told = {name: env[name] for name in self._telling if name in env}
        self._expected, self._steady = told, told == self._expected
        self._weave.expect(told)
        self._wait -= 1
        return [run_values.found(io.buffer) for io in self._outputs]

    def _begun(self, values: Sequence[Any], given: Env) -> tuple[dict[str, int], RunValues]:
        """The symbols of a run, and its inputs by buffer."""
        program = self._program
        if len(values) != len(self._inputs):
            raise ExecutionError(
                f"{len(values)} values for {len(self._inputs)} inputs", who=self.name
            )
        env = self._symbols(values, given)
        run_values = RunValues(program) if program.device.host_memory else MirroredValues(program)
        for io, x in zip(self._inputs, values, strict=True):
            run_values.put(io.buffer, x, io.dtype)
        return env, run_values

    def results(
        self, shapes: Sequence[tuple[int, ...]], given: Env
    ) -> Sequence[tuple[int, ...] | None]:
        """As ``BindableBody.results``; ``given`` as for ``call``."""
        self._check_open()
        return self._weave.results(shapes, given)

    def bound(self, shapes: Sequence[tuple[int, ...]], given: Env) -> BoundBody | None:
        """As ``BindableBody.bound``; ``given`` as for ``call``. None where somebody looks on, and
        where a run may end as steps tell other sizes: then each is a call.
        """
        self._check_open()
        if not self._watch.is_off or self._weave.tells:
            return None
        return self._weave.at(shapes, given)

    def growing(
        self,
        shapes: Sequence[tuple[int, ...]],
        given: Env,
        states: Sequence[tuple[int, int]],
        runs: int,
        most: int,
    ) -> GrowingBody | None:
        """As ``StepBody.growing``; ``given`` and None as for ``bound``."""
        self._check_open()
        if not self._watch.is_off or self._weave.tells:
            return None
        return self._weave.growing(shapes, given, states, runs, most)

    def _in_one(self, values: Sequence[Any], given: Env) -> list[Any] | None:
        """The outputs by one native call; None where there is none, and at shapes or told sizes
        that the last run did not have: what runs once needs no program.
        """
        known = self._solved
        if known is None or not (self._weave.able and self._watch.is_off):
            return None
        waits = self._wait > 0 and not (self._telling and self._steady)
        if waits or not (self._steady or self._weave.changes):
            return None
        if known[1] != given or known[0] != self._shapes_of(values):
            return None
        bound = self._weave.at(known[0], given)
        if bound is None:
            if self._telling:  # at other sizes there may be one, and to look takes a while
                self._retreat()
            return None
        if self._whole is None or self._whole.bound is not bound:
            weave = self._weave
            self._whole = WholeRun(bound, self._program.plan, weave.sizes, weave.rooms)
        values = [_plain(x) for x in values]
        if not self._whole.accepts(values):
            return None
        outputs = self._whole(values)
        if self._whole.stopped is not None:
            return self._on(self._whole, values, outputs)
        self._departures = 0
        return outputs

    def _symbols(self, values: Sequence[Any], given: Env) -> dict[str, int]:
        """Symbols that the shapes of the inputs give, beside those that are given."""
        shapes = self._shapes_of(values)
        if self._solved is None or self._solved[0] != shapes or self._solved[1] != given:
            env = self._program.solve(shapes, self._program.plan.profiles, given)
            self._solved = (shapes, dict(given), env)
        return dict(self._solved[2])

    def _shapes_of(self, values: Sequence[Any]) -> list[tuple[int, ...]]:
        return [_shape(io.dtype, x) for io, x in zip(self._inputs, values, strict=True)]

    def _produce(self, k: int, env: dict[str, int], run_values: RunValues) -> None:
        """Run a step that tells shapes, and bind its symbols."""
        program = self._program
        step: Step = program.plan.steps[k]
        if extents := program.plan.extents.get(k):
            check(extents, env)
        running = ObjectStep(self._program, k, env, run_values, self._bodies(k, env))
        if self._watch.observer is None:
            running.run()
        else:
            self._watch.observer.step(running)
        for o, y in zip(step.outputs, running.found, strict=True):
            bind_shape(step.name, o.spec.shape, _shape(o.spec.dtype, y), env)
            run_values.put(o.buffer, y, o.spec.dtype)

    def _bodies(self, k: int, env: Env) -> list[ContextBody]:
        return [ContextBody(c, env) for c in self._inner[k]]

    def close(self) -> None:
        super().close()
        for other in self._others:
            other.close()
        self._others.clear()
        self._segments.clear()
        self._inner.clear()
        self._weave.forget()
        self._whole = self._solved = None

    def end(self, error: Callable[[], TactixError]) -> None:
        super().end(error)
        self._weave = cast(Weave, ClosedPart(error))


def _plain(x: Any) -> Any:
    """An array that can be used as it is."""
    usable = x.__class__ is np.ndarray and x.flags.c_contiguous and x.flags.aligned
    return x if usable else np.require(x, requirements=("C", "A"))


def _check_sizes(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ShapeError for an array of the caller's that is smaller than what lies there."""
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is not None and math.prod(array.shape) < math.prod(shape):
            what = f"{name!r} is {show(shape)}, its array is {show(array.shape)}"
            raise ShapeError(what, do="Give a larger one; outputs may have an allocator")


def _shape(dtype: DType, x: Any) -> tuple[int, ...]:
    """Of a tensor; a sequence, optional or map is one object."""
    if dtype.has_element:
        return ()
    if not hasattr(x, "shape"):
        raise ExecutionError(
            f"a {type(x).__name__} where a {dtype.value} is declared", do="Build the plan again"
        )
    return x.shape  # type: ignore[no-any-return]
