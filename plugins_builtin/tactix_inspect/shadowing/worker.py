"""Between the served path and the references: samples go there from the calls themselves, and a
thread sleeps until something departs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.errors import TactixError, punctuated
from tactix.base.logger import LogEvent, Logger, Severity
from tactix.contracts.shadow import (
    DriftReport,
    OutputDrift,
    ShadowOptions,
    ShadowStats,
    StepDrift,
)
from tactix.plan.schema import Plan
from tactix.run.arrays import as_input
from tactix.run.engine import Engine
from tactix.run.observed import StepObserver
from tactix_inspect.shadowing import ring
from tactix_inspect.shadowing.facts import Departed, PlanWanted, ReferencePace, Sample
from tactix_inspect.shadowing.references import ReferenceProcess
from tactix_inspect.shadowing.ring import SampleRing

CURE = (
    "Take the engine out of service, and load its plan again or build it anew; "
    "`tactix debug layers` looks at a plan step by step"
)
RESTART = "Shadow the engine again; it is served meanwhile"
ADDED_UP = "no step departs by itself: roundings add up, or decided a near tie"
NOT_AGAIN = "run again the engine gives other outputs: memory or code of its context was changed"
NOT_LOOKED = "not looked at step by step"
FORKED = "this process was forked from the one that shadows the engine"
END_SECONDS = 10.0
"""How long closing waits for the thread."""
DRAIN_SECONDS = 0.002
"""How often draining looks."""


@dataclass(frozen=True)
class Judged:
    """A plan of the engine's, its references, and the tolerance of their outputs."""

    plan: Plan
    references: Plan
    tolerance: float


class ShadowWorker:
    """Takes samples, has them checked one after the other, and tells what departs.

    ``first``: what is judged by at the beginning; ``judge``: the same of another plan, as refitting
    gives the engine. ``full``: what ``ring.DONE`` of ``numbers`` is while there is no room. Raises
    AllocationError.
    """

    def __init__(
        self,
        engine: Engine,
        references: ReferenceProcess,
        first: Judged,
        judge: Callable[[Plan], Judged],
        options: ShadowOptions,
    ) -> None:
        self._engine, self._references, self._judge = engine, references, judge
        self._options, self._judged = options, first
        self._samples = SampleRing.made(options.queue, options.queue_bytes)
        self._taken, self._put = first.plan, 0
        self._plans = deque[Plan]()
        self._stats = ShadowStats()
        self.numbers, self.full = self._samples.numbers, -options.queue
        self._by_step: dict[str, int] = {}
        self._looked = 0
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tactix shadow", daemon=True)
        self._thread.start()

    @property
    def _logger(self) -> Logger:
        """That of what the engine was made by, which is told to it after it is made."""
        return self._engine.error_log or Logger()

    # -- the served path's side -------------------------------------------------------------------

    def offer(self, number: int, given: Sequence[Any], made: Sequence[Any]) -> None:
        """Take a request and its answer, in the engine's order, if there is room. Never raises."""
        problem = None
        with self._lock:
            try:
                taken = self._take(number, given, made)
            except Exception as e:
                taken, problem = False, e
            self._put += taken
            self.full = self._put - self._samples.places
        if problem is not None:
            told = f"a request could not be copied: {problem!r}"
            self._logger.warning(punctuated((told, "Please report it")))

    def _take(self, number: int, given: Sequence[Any], made: Sequence[Any]) -> bool:
        if self._closed or self.numbers[ring.DONE] == self.full:
            return False
        plan = self._engine.plan
        if plan is not self._taken:  # perhaps this request ran on the weights of before
            said = self._references.offer(ring.RENEWAL)
            if said:
                self._plans.append(plan)
                self._taken = plan
            return said
        inputs = {io.name: as_input(io, x) for io, x in zip(self._engine.inputs, given)}
        outputs = dict(zip((io.name for io in self._engine.outputs), made, strict=True))
        put = self._samples.put(self._put, Sample(number, inputs, outputs))
        return put and self._references.offer(ring.SAMPLE)

    def stats(self) -> ShadowStats:
        """``sampled``: those that were taken."""
        samples = self._samples
        with self._lock:
            return replace(
                self._stats,
                sampled=self._put,
                by_step=dict(self._by_step),
                checked=samples[ring.CHECKED],
                departed=samples[ring.DEPARTED],
                seconds=samples[ring.MICROSECONDS] / 1e6,
            )

    def drain(self, seconds: float) -> bool:
        """Wait until no sample waits or is checked; whether it came to that in so many seconds."""
        end = time.monotonic() + seconds
        while not (done := self._idle()) and time.monotonic() < end:
            time.sleep(DRAIN_SECONDS)
        return done

    def _idle(self) -> bool:
        with self._lock:
            if self._stats.state == "starting":
                return False
            return self._stats.state != "running" or self._samples[ring.DONE] == self._put

    def close(self) -> None:
        """Samples that wait are given up."""
        with self._lock:
            self._closed = True
        self._references.close()
        if self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)

    def abandon(self) -> None:
        """In a process that was forked, where there is no thread, and locks may be locked."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            self._stats = replace(self._stats, state="closed", error=FORKED)
            self._references.abandon()

    # -- the thread's side ------------------------------------------------------------------------

    def _run(self) -> None:
        state, error = "closed", ""
        try:
            self._references.start(
                self._samples, ReferencePace(self._options.load, self._options.pause)
            )
            self._references.take(self._judged.references, self._judged.tolerance)
            with self._lock:
                self._stats = replace(self._stats, state="running")
            while not self._closed:
                self._heed(self._references.told())
        except Exception as e:
            if not self._closed:
                state, error = "failed", str(e) if isinstance(e, TactixError) else repr(e)
        with self._lock:
            self._closed = True
        try:
            if error:
                self._tell_end(error)
        finally:
            # Not before: whoever sees that it ended finds in the log why.
            with self._lock:
                self._stats = replace(self._stats, state=state, error=error)
            self._references.close()
            self._references.release()

    def _tell_end(self, error: str) -> None:
        told = f"no request of {self._engine.name or 'an engine'} is looked at any more"
        self._logger.warning(punctuated((f"{told}: {error}", RESTART)))

    def _heed(self, told: Departed | PlanWanted) -> None:
        if isinstance(told, PlanWanted):
            self._judged = self._judge(self._plans.popleft())
            self._references.take(self._judged.references, self._judged.tolerance)
            return
        sample = self._samples.sample(told.place)
        assert isinstance(sample, Sample)
        self._report(sample, told)
        self._references.go_on()

    def _report(self, sample: Sample, told: Departed) -> None:
        departed = tuple(
            OutputDrift(a.output, a.max_rel, a.outside, a.note)
            for a in told.checked.outputs
            if not a.passed
        )
        steps, note = self._looked_at(sample)
        with self._lock:
            for s in steps:
                self._by_step[s.step] = self._by_step.get(s.step, 0) + 1
        tolerance = self._judged.tolerance
        report = DriftReport(
            self._engine.name, sample.number, tolerance, departed, steps, note, self.stats()
        )
        if _is_power_of_two(report.stats.departed):
            self._logger.tell(Severity.WARNING, _event(report))
        try:
            if self._options.on_drift is not None:
                self._options.on_drift(report)
        except Exception as e:
            do = "Mend the callback; the report is in the log"
            self._logger.warning(punctuated((f"on_drift raised {e!r}", do)))

    def _looked_at(self, sample: Sample) -> tuple[tuple[StepDrift, ...], str]:
        """Steps that depart, or why none is named."""
        departed = self._samples[ring.DEPARTED]
        if self._looked >= self._options.looks and not _is_power_of_two(departed):
            return (), NOT_LOOKED
        self._looked += 1
        again: dict[str, Any] = {}

        def run(observer: StepObserver) -> None:
            with self._engine.create_execution_context() as context:
                context.observer = observer
                again.update(context.run(sample.inputs))

        try:
            looked = self._references.look(run)
        except TactixError as e:
            if self._closed:
                raise
            return (), f"{NOT_LOOKED}: {e}"
        if looked.steps:
            return looked.steps, ""
        return (), ADDED_UP if _same(again, sample.outputs) else NOT_AGAIN


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """To the bit, but for numbers that are none."""
    import numpy as np

    return all(np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f") for name in a)


def _event(report: DriftReport) -> LogEvent:
    fields = {
        "engine": report.engine,
        "request": report.request,
        "outputs": tuple(a.output for a in report.outputs),
        "steps": tuple(s.step for s in report.steps),
        "departed": report.stats.departed,
        "checked": report.stats.checked,
    }
    return LogEvent("drift", punctuated((report.text, CURE)), fields)
