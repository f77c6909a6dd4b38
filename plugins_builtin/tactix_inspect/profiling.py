"""Where the time of a run goes: runs with timestamps, in turns with runs without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tactix.base import dims
from tactix.base.dims import Dim, Env
from tactix.base.errors import ShapeError
from tactix.contracts.device import Device
from tactix.contracts.launcher import Step, StepSpan
from tactix.plan.precision import precision
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.arrays import in_order
from tactix.run.context import ExecutionContext
from tactix.run.engine import Engine
from tactix.run.segments import SpanProfiler, Spans
from tactix_inspect.peaks import NoRoofline, measured
from tactix_inspect.placed import PlacedArrays
from tactix_inspect.profile import CopyTime, PlanProfile, Roofline, StepTime

RUNS, WARM = 50, 64
"""Warm-up takes as many runs as choosing which steps are shared between threads does."""
MOST_SECONDS, MOST_WARM_SECONDS = 10.0, 1.0
"""Fewer runs are made where they would take longer; at least three, if so many are asked for."""
LEAST_RUNS = 3
TOGETHER = "timestamps of each step on each thread, within runs as they are otherwise"


IN_BODIES = (
    "steps of branches and loops in runs of their own, step by step from Python, and these as a "
    "whole by what other steps leave of a run without timestamps"
)


@dataclass(frozen=True)
class SpanOfRun:
    """A step of a plan, perhaps of a body, in one run."""

    plan: Plan
    index: int
    span: StepSpan


class SpanCollector(SpanProfiler):
    """Keeps what is told of a run, and when the last of it was. ``bodies``: whether steps of bodies
    are told, too.
    """

    def __init__(self, bodies: bool = True) -> None:
        self.bodies = bodies
        self._told: list[tuple[Plan, int, Spans]] = []
        self.end = 0.0

    def report_spans(self, plan: Plan, first: int, spans: Spans) -> None:
        self.end = time.perf_counter()
        self._told.append((plan, first, spans))

    def taken(self) -> Callable[[], list[SpanOfRun]]:
        """What works out the spans since this was last called."""
        told, self._told = self._told, []
        return lambda: [
            SpanOfRun(plan, i, span)
            for plan, first, spans in told
            for i, span in enumerate(spans(), first)
        ]


@dataclass
class StepRuns:
    """What all runs tell of a step: a row for each run. Seconds."""

    plan: Plan
    index: int
    seconds: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    threads: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, spans: Sequence[StepSpan], begin: float) -> None:
        """Of one run, which began then."""
        self.seconds.append(sum(s.seconds for s in spans))
        self.start.append(spans[0].begin - begin)
        self.times.append(len(spans))
        every = zip(*(s.threads for s in spans), strict=False)
        self.threads.append(tuple(sum(t) for t in every))


@dataclass(frozen=True)
class ProfiledRuns:
    """Seconds of runs without and with timestamps, the steps in the order in which they ran first,
    and the spans of the run that took the median time, with when it began. Where there are bodies,
    that is one whose bodies were run step by step. ``copies``: of inputs and outputs, where runs
    are of copies on the device; no part of a run.
    """

    plain: Sequence[float]
    stamped: Sequence[float]
    steps: Sequence[StepRuns]
    typical: Sequence[SpanOfRun]
    begin: float
    together: bool
    copies: tuple[CopyTime, ...] = ()


def profile(
    engine: Engine,
    inputs: Mapping[str, Any],
    runs: int = RUNS,
    session: Session | None = None,
) -> PlanProfile:
    """Times of the steps of an engine for inputs, numpy arrays by name.

    Runs with timestamps are made in turns with runs without. ``session``: with a compiler for the
    peaks of the processor; without it there is no roofline. Raises as a run does.
    """
    return told(engine, inputs, observed(engine, inputs, runs), session)


def observed(engine: Engine, inputs: Mapping[str, Any], runs: int = RUNS) -> ProfiledRuns:
    """Runs in turns. Raises as a run does."""
    given = in_order(engine.plan.inputs, (inputs,), {})
    subject = ProfileSubject(engine, given)
    call = subject.caller(engine.create_execution_context())
    once = _warm(call)
    stamped = StampedRuns(subject, bodies=False)
    has_bodies = any(True for _ in _bodies(engine.plan))
    watched = StampedRuns(subject, bodies=True) if has_bodies else stamped
    turns = [stamped, watched] if has_bodies else [stamped]
    every = once + sum(t.once for t in turns)
    count = min(runs, max(LEAST_RUNS, int(MOST_SECONDS / max(every, 1e-9))))
    seconds: list[float] = []
    for _ in range(count):
        seconds.append(_timed(call)[1])
        for t in turns:
            t.run()
    found, looked = stamped.found(), watched.found()
    _, begin, spans = sorted(looked, key=lambda r: r[0])[len(looked) // 2]
    rows = _rows(looked)
    rows = dict(sorted(rows.items(), key=lambda r: statistics.median(r[1].start)))
    steps = list({**rows, **_rows(found)}.values())  # around bodies as native calls
    together = any(any(r.threads[0]) for r in steps)
    copies = subject.placed.copies() if subject.placed else ()
    return ProfiledRuns(seconds, [r[0] for r in found], steps, spans, begin, together, copies)


FoundRun = tuple[float, float, list[SpanOfRun]]
"""Seconds of a run, when it began, and its spans."""


class ProfileSubject:
    """An engine at inputs. ``placed``: where runs read and write again and again; None where sizes
    hang on data, so that each run makes arrays. Raises as a run does.
    """

    def __init__(self, engine: Engine, given: Sequence[Any]) -> None:
        context = engine.create_execution_context()
        self.engine, self._given = engine, given
        made = context.infer(given)
        arrays = all(isinstance(y, np.ndarray) for y in (*given, *made))
        self.placed = None if context.segmented or not arrays else self._place(made)

    def _place(self, made: Sequence[Any]) -> PlacedArrays:
        plan = self.engine.plan
        sides = ((plan.inputs, self._given), (plan.outputs, made))
        inputs, outputs = (
            [
                (io.name, np.require(x, requirements=("C", "A")))
                for io, x in zip(ios, arrays, strict=True)
            ]
            for ios, arrays in sides
        )
        return PlacedArrays(self.engine.device, self.engine.allocator, inputs, outputs)

    def caller(self, context: ExecutionContext) -> Callable[[], object]:
        """A run in a context of the engine."""
        context.infer(self._given)  # takes the shapes
        if self.placed is None:
            return lambda: context.infer(self._given)
        addresses = self.placed.addresses
        return lambda: context.execute_v2(addresses)


class StampedRuns:
    """Runs of a context of their own with timestamps. ``once``: seconds of the second one, which is
    not kept.
    """

    def __init__(self, subject: ProfileSubject, bodies: bool) -> None:
        context = subject.engine.create_execution_context()
        context.profiler = self._collector = SpanCollector(bodies)
        self._call = subject.caller(context)
        self._call()
        self.once = _timed(self._call)[1]
        self._collector.taken()
        self._later: list[tuple[float, float, Callable[[], list[SpanOfRun]]]] = []

    def run(self) -> None:
        begin, _ = _timed(self._call)
        self._later.append((self._collector.end - begin, begin, self._collector.taken()))

    def found(self) -> list[FoundRun]:
        return [(own, begin, spans()) for own, begin, spans in self._later]


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """When it began, and how long it took."""
    begin = time.perf_counter()
    call()
    return begin, time.perf_counter() - begin


def _warm(call: Callable[[], object]) -> float:
    """Seconds of the last call."""
    end = time.perf_counter() + MOST_WARM_SECONDS
    took = 0.0
    for k in range(WARM):
        _, took = _timed(call)
        if k >= LEAST_RUNS and time.perf_counter() > end:
            break
    return took


def _rows(found: Sequence[FoundRun]) -> dict[tuple[int, int], StepRuns]:
    """By step, in the order in which they ran first; a run that did not come to a step tells
    nothing of it.
    """
    rows: dict[tuple[int, int], StepRuns] = {}
    for _, begin, spans in found:
        own: dict[tuple[int, int], list[SpanOfRun]] = {}
        for s in spans:
            own.setdefault((id(s.plan.steps), s.index), []).append(s)
        for key, group in own.items():
            row = rows.setdefault(key, StepRuns(group[0].plan, group[0].index))
            row.add([s.span for s in group], begin)
    return rows


# -- as a profile --------------------------------------------------------------------------------


def told(
    engine: Engine, inputs: Mapping[str, Any], found: ProfiledRuns, session: Session | None
) -> PlanProfile:
    """The profile that runs tell."""
    plan, threads = engine.plan, _threads(found)
    shapes = {name: tuple(np.shape(x)) for name, x in inputs.items()}
    memory = engine.inspect()["memory"]
    peaks: Roofline | NoRoofline = NoRoofline("it was not asked for")
    if session is not None:
        touched = int(memory["weights"]) + int(memory.get("arena", 0))
        peaks = measured(session, engine.device, engine.allocator, threads, touched)
    roofline = peaks if isinstance(peaks, Roofline) else None
    inside = {id(p.steps): outer for outer, p in _bodies(plan)}
    env, tables = symbols_of(plan, shapes), _tables(session)
    steps = []
    for row in found.steps:
        outer = inside.get(id(row.plan.steps), "")
        steps.append(_step(row, outer, {} if outer else env, tables, roofline))
    return PlanProfile(
        engine.name,
        plan.seal.digest.hex() if plan.seal else "",
        dict(plan.device),
        threads,
        len(found.stamped),
        method(found, engine.device, any(s.inside for s in steps)),
        shapes,
        statistics.median(found.plain),
        statistics.median(found.stamped),
        fitted(plan, steps, statistics.median(found.plain)),
        roofline,
        memory,
        "" if isinstance(peaks, Roofline) else peaks.why,
        found.copies,
    )


def fitted(plan: Plan, steps: Sequence[StepTime], seconds: float) -> tuple[StepTime, ...]:
    """Steps with bodies, and those that tell sizes, take no more than others leave of a run, which
    may be one native call where a profiled one comes back to Python for them.
    """
    apart = set() if plan.kernel_sets else {*plan.produced}
    own = [s for s in steps if not s.inside]
    theirs = sum(s.seconds for s in own if s.index in apart)
    left = seconds - sum(s.seconds for s in own if s.index not in apart)
    if not 0 < left < theirs:
        return tuple(steps)
    share = left / theirs
    return tuple(s if s.inside or s.index not in apart else _scaled(s, share) for s in steps)


def _scaled(s: StepTime, share: float) -> StepTime:
    return replace(
        s,
        seconds=s.seconds * share,
        low=s.low * share,
        high=s.high * share,
        of_roofline=s.of_roofline and s.of_roofline / share,
    )


def method(found: ProfiledRuns, device: Device, has_bodies: bool) -> str:
    """How the times were taken."""
    how = TOGETHER if found.together else device.timing
    return f"{how}; {IN_BODIES}" if has_bodies else how


def _threads(found: ProfiledRuns) -> int:
    return max([1, *(len(t) for row in found.steps for t in row.threads)])


def _bodies(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans of bodies, with the step that holds each; sets of kernels stand for the plan itself."""
    for step in plan.steps:
        for inner in step.plans:
            if not plan.kernel_sets:
                yield step.name, inner
            yield from _bodies(inner)


def symbols_of(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Of those that the shapes of inputs tell."""
    env: dict[str, int] = {}
    for io in plan.inputs:
        dims.learn(io.shape, shapes.get(io.name, ()), env)
    return env


def _tables(session: Session | None) -> Mapping[str, tuple[int, ...]]:
    """Inputs of layers of which a run reads only what others point to."""
    layers = session.layers.values() if session else ()
    return {layer.key: layer.tables for layer in layers if layer.tables}


def _step(
    row: StepRuns,
    inside: str,
    env: Env,
    tables: Mapping[str, tuple[int, ...]],
    roofline: Roofline | None,
) -> StepTime:
    step = row.plan.steps[row.index]
    seconds = statistics.median(row.seconds)
    low, high = np.quantile(row.seconds, (0.1, 0.9)).tolist()
    nbytes, flops = moved(row.plan, step, env, tables), operations(step, env)
    times = statistics.fmean(row.times)
    least = _least(roofline, precision(step), nbytes * times, flops * times)
    return StepTime(
        row.index,
        step.name,
        str(step.info.get("kind", "")),
        str(step.info.get("tactic", step.artifact.launcher)),
        seconds,
        low,
        high,
        statistics.median(row.start),
        tuple(np.median([t for t in row.threads if t] or [()], axis=0).tolist()),
        nbytes,
        flops,
        least / seconds if least and seconds else None,
        names_of(step, "makes"),
        names_of(step, "consumes"),
        names_of(step, "origin"),
        inside,
        times,
    )


def names_of(step: Step[Plan], key: str) -> tuple[str, ...]:
    """A list of names in the step's notes."""
    told = step.info.get(key, ())
    return tuple(map(str, told)) if isinstance(told, (list, tuple)) else ()


def operations(step: Step[Plan], env: Env) -> int:
    """What its layers take, a multiply-add being two; 0 for a plan that does not tell, and where
    only running tells sizes.
    """
    told = step.info.get("operations")
    return 0 if told is None else size_at(dims.from_json(told), env)


def moved(
    plan: Plan, step: Step[Plan], env: Env, tables: Mapping[str, tuple[int, ...]] | None = None
) -> int:
    """Bytes of what it reads and writes, each once; of a table as many as it writes. 0 where only
    running tells sizes.
    """
    layers = names_of(step, "layers")
    looked_up = (tables or {}).get(layers[0], ()) if len(layers) == 1 else ()
    written = sum(size_at(o.spec.nbytes(o.format), env) for o in step.outputs)
    read = 0
    for i, o in enumerate(step.inputs):
        own = size_at(o.spec.nbytes(o.format), env) if o.buffer >= 0 else 0
        read += min(own, written) if i in looked_up else own
    constants = {b: plan.buffers[b].nbytes for b in step.constants.values()}
    return written + read + sum(size_at(n, env) for n in constants.values())


def size_at(d: Dim, env: Env) -> int:
    """0 where a symbol has no value."""
    if dims.symbols(d) <= env.keys():
        try:
            return max(0, dims.evaluate(d, env))
        except ShapeError:
            return 0
    return 0


def _least(roofline: Roofline | None, dtype: str, nbytes: float, flops: float) -> float:
    """Seconds that a step takes at least by the peaks; 0 where none is known."""
    if roofline is None:
        return 0.0
    peak = roofline.flops.get(WORDS.get(dtype, dtype), roofline.flops.get("f32", 0.0))
    return max(flops / peak if peak else 0.0, nbytes / roofline.nbytes)


WORDS = {"u8": "i8", "i4": "i8", "u4": "i8"}
"""Types that are multiplied as another."""
