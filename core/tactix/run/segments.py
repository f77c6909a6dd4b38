"""What a device links of steps that several launchers share: their runnables as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

from tactix.base.dims import Env
from tactix.contracts.device import Device
from tactix.contracts.launcher import (
    Launcher,
    LinkContext,
    Runnable,
    Step,
    StepSpan,
    TimedRunnable,
)
from tactix.plan.schema import Plan


class Segments:
    """Runs of several launchers, one after the other."""

    def __init__(self, parts: Sequence[Runnable]) -> None:
        self.parts = tuple(parts)

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for p in self.parts:
            p.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for p in self.parts:
            p.rebind(buffer, address)

    def __call__(self) -> None:
        for p in self.parts:
            p()

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()


class Profiler(Protocol):
    """What is told how long each step of a run took."""

    def report_layer_time(self, layer_name: str, ms: float, /) -> None: ...


class SpanProfiler:
    """A profiler that is told of each step when it took place, and on which threads; of steps of
    bodies in each of their runs, too.
    """

    def report_span(self, plan: Plan, index: int, span: StepSpan) -> None:
        """Step ``index`` of a plan, perhaps of a body, has run."""
        raise NotImplementedError

    def report_layer_time(self, layer_name: str, ms: float, /) -> None: ...


class StepByItself:
    """A step that nothing runs beside."""

    def __init__(self, part: Runnable, timed: Callable[[Runnable], float]) -> None:
        self._part, self._timed = part, timed
        self.bind, self.rebind, self.repeat = part.bind, part.rebind, part.repeat
        self._span = StepSpan(0.0, 0.0)

    def __call__(self) -> None:
        begin = time.perf_counter()
        self._span = StepSpan(begin, begin + self._timed(self._part))

    def spans(self) -> Sequence[StepSpan]:
        return (self._span,)


class TimedSteps(Segments):
    """Steps whose times a profiler is told of once each run is over. ``first``: the index of the
    first in its plan.
    """

    parts: tuple[TimedRunnable, ...]

    def __init__(
        self, parts: Sequence[TimedRunnable], plan: Plan, first: int, profiler: Profiler
    ) -> None:
        super().__init__(parts)
        self._plan, self._first, self._profiler = plan, first, profiler

    def __call__(self) -> None:
        super().__call__()
        spans = [span for p in self.parts for span in p.spans()]
        for i, span in enumerate(spans, self._first):
            report(self._profiler, self._plan, i, span)


def report(profiler: Profiler, plan: Plan, index: int, span: StepSpan) -> None:
    """Tell a profiler of a step that has run."""
    if isinstance(profiler, SpanProfiler):
        profiler.report_span(plan, index, span)
    else:
        profiler.report_layer_time(plan.steps[index].name, span.seconds * 1e3)


def timed_parts(
    device: Device, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
) -> list[TimedRunnable]:
    """Steps linked so that times are known: together where their launcher can tell them."""
    parts: list[TimedRunnable] = []
    for key, group in groupby(steps, key=lambda s: s.artifact.launcher):
        own = list(group)
        together = launchers[key].link_timed(own, ctx) if key in launchers else None
        alone = [] if together else [device.link([s], launchers, ctx) for s in own]
        parts += [together] if together else [StepByItself(p, device.timed) for p in alone]
    return parts
