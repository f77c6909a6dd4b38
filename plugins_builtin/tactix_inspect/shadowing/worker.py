"""The thread between the served path and the references."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

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
from tactix.run.arrays import as_input, in_order
from tactix.run.engine import Engine
from tactix.run.observed import StepObserver
from tactix_inspect.shadowing.facts import CheckedRequest, LookedAt

Named = Mapping[str, Any]
"""Arrays by name."""

CURE = (
    "Take the engine out of service, and load its plan again or build it anew; "
    "`tactix debug layers` looks at a plan step by step"
)
RESTART = "Shadow the engine again; it is served meanwhile"
ADDED_UP = "no step departs by itself: roundings add up, or decided a near tie"
NOT_AGAIN = "run again the engine gives other outputs: memory or code of its context was changed"
NOT_LOOKED = "not looked at step by step"
END_SECONDS = 10.0
"""How long closing waits for the thread."""


@dataclass(frozen=True)
class Sample:
    """A request and its answer, copied. ``plan``: the engine's at that time."""

    number: int
    plan: Plan
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    nbytes: int


class References(Protocol):
    """What the thread asks; see ``ReferenceProcess``."""

    def take(self, plan: Plan, tolerance: float) -> None: ...

    def check(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> CheckedRequest: ...

    def look(self, inputs: Mapping[str, Any], run: Callable[[StepObserver], None]) -> LookedAt: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Judged:
    """A plan of the engine's, its references, and the tolerance of their outputs."""

    plan: Plan
    references: Plan
    tolerance: float


class ShadowWorker:
    """Takes samples, and checks them one after the other in a thread of its own.

    ``first``: what is judged by at the beginning; ``judge``: the same of another plan, as refitting
    gives the engine.
    """

    def __init__(
        self,
        engine: Engine,
        references: References,
        first: Judged,
        judge: Callable[[Plan], Judged],
        options: ShadowOptions,
    ) -> None:
        self._engine, self._references, self._judged, self._judge = engine, references, first, judge
        self._options = options
        self._stats = ShadowStats()
        self._by_step: dict[str, int] = {}
        self._looked = self._waiting_bytes = 0
        self._waiting: deque[Sample] = deque()
        self._busy, self._closed = True, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tactix shadow", daemon=True)
        self._thread.start()

    @property
    def _logger(self) -> Logger:
        """That of what the engine was made by, which is told to it after it is made."""
        return self._engine.error_log or Logger()

    # -- the served path's side -------------------------------------------------------------------

    def offer(
        self, number: int, args: tuple[Any, ...], named: Mapping[str, Any], answer: object
    ) -> None:
        """Take a request and its answer, if there is room. Never raises."""
        try:
            sample = self._sampled(number, args, named, answer)
        except Exception as e:
            self._logger.warning(
                punctuated((f"a request could not be copied: {e!r}", "Please report it"))
            )
            sample = None
        with self._changed:
            self._count(sampled=1, dropped=int(sample is None))
            if sample is not None:
                self._waiting.append(sample)
                self._waiting_bytes += sample.nbytes
                self._changed.notify_all()

    def _sampled(
        self, number: int, args: tuple[Any, ...], named: Mapping[str, Any], answer: object
    ) -> Sample | None:
        """None where there is no room for it."""
        if self._closed or len(self._waiting) >= self._options.queue:
            return None
        ios, plan = self._engine.inputs, self._engine.plan
        arrays = [as_input(io, x) for io, x in zip(ios, in_order(ios, args, named), strict=True)]
        inputs = {io.name: x for io, x in zip(ios, arrays, strict=True)}
        outs = self._engine.outputs
        outputs = {outs[0].name: answer} if len(outs) == 1 else dict(cast(Named, answer))
        nbytes = sum(getattr(x, "nbytes", 0) for x in (*inputs.values(), *outputs.values()))
        if self._waiting_bytes + nbytes > self._options.queue_bytes:
            return None
        return Sample(number, plan, copy.deepcopy(inputs), copy.deepcopy(outputs), nbytes)

    def stats(self) -> ShadowStats:
        with self._changed:
            return replace(self._stats, by_step=dict(self._by_step))

    def drain(self, seconds: float) -> bool:
        """Wait until no sample waits or is checked; whether it came to that in so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._busy or self._waiting), seconds)

    def close(self) -> None:
        """Samples that wait are given up."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()
        self._references.close()
        if self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)

    # -- the thread's side ------------------------------------------------------------------------

    def _run(self) -> None:
        state, error = "closed", ""
        try:
            self._references.take(self._judged.references, self._judged.tolerance)
            with self._changed:
                self._stats = replace(self._stats, state="running")
            while (sample := self._next()) is not None:
                start, before = time.monotonic(), self._stats.seconds
                self._check(sample)
                self._rest(self._stats.seconds - before, start)
        except Exception as e:
            if not self._closed:
                state, error = "failed", str(e) if isinstance(e, TactixError) else repr(e)
        with self._changed:
            self._closed, self._busy = True, False
            self._waiting.clear()
            self._stats = replace(self._stats, state=state, error=error)
            self._changed.notify_all()
        if error:
            told = f"no request of {self._engine.name or 'an engine'} is looked at any more"
            self._logger.warning(punctuated((f"{told}: {error}", RESTART)))

    def _next(self) -> Sample | None:
        """None once it is closed."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            self._busy = True
            sample = self._waiting.popleft()
            self._waiting_bytes -= sample.nbytes
            return sample

    def _rest(self, seconds: float, start: float) -> None:
        """Until references have not taken more than their share of the time since the start, and
        the pause is over: around each check this thread and the served one hand the interpreter's
        lock to each other, which delays some calls by more than they take.
        """
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            whole = max(self._options.pause, seconds / self._options.load)
            left = min(whole - (time.monotonic() - start), threading.TIMEOUT_MAX)
            self._changed.wait_for(lambda: self._closed, max(0.0, left))

    def _check(self, sample: Sample) -> None:
        if sample.plan is not self._judged.plan:  # perhaps it ran on the weights of before
            self._judged = self._judge(sample.plan)
            self._references.take(self._judged.references, self._judged.tolerance)
            return
        checked = self._references.check(sample.inputs, sample.outputs)
        departed = tuple(
            OutputDrift(a.output, a.max_rel, a.outside, a.note)
            for a in checked.outputs
            if not a.passed
        )
        with self._changed:
            self._count(checked=1, departed=int(bool(departed)))
        self._spent(checked.seconds)
        if departed:
            self._report(sample, departed)

    def _report(self, sample: Sample, departed: tuple[OutputDrift, ...]) -> None:
        steps, note = self._looked_at(sample)
        with self._changed:
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
        if self._looked >= self._options.looks and not _is_power_of_two(self._stats.departed):
            return (), NOT_LOOKED
        self._looked += 1
        again: dict[str, Any] = {}

        def run(observer: StepObserver) -> None:
            with self._engine.create_execution_context() as context:
                context.observer = observer
                again.update(context.run(sample.inputs))

        try:
            looked = self._references.look(sample.inputs, run)
        except TactixError as e:
            if self._closed:
                raise
            return (), f"{NOT_LOOKED}: {e}"
        self._spent(looked.seconds)
        if looked.steps:
            return looked.steps, ""
        return (), ADDED_UP if _same(again, sample.outputs) else NOT_AGAIN

    def _spent(self, seconds: float) -> None:
        with self._changed:
            self._stats = replace(self._stats, seconds=self._stats.seconds + seconds)

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._stats, name) + n for name, n in more.items()}
        self._stats = replace(self._stats, **now)


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
