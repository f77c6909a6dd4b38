"""What a device links of steps that several launchers share: their runnables as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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


Spans = Callable[[], Sequence[StepSpan]]
"""Works out when steps took place; later, where that would be in the way of a run."""


class SpanProfiler:
    """A profiler that is told of each step when it took place, and on which threads; of steps of
    bodies in each of their runs, too, which then are run from Python, unless ``bodies`` is false.
    """

    bodies = True

    def report_spans(self, plan: Plan, first: int, spans: Spans) -> None:
        """Steps from ``first`` on of a plan, perhaps of a body, have run."""
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

    def spans(self) -> Spans:
        found = (self._span,)
        return lambda: found


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
        found = [p.spans() for p in self.parts]
        report(self._profiler, self._plan, self._first, partial(_together, found))


def _together(found: Sequence[Spans]) -> list[StepSpan]:
    return [span for spans in found for span in spans()]


def report(profiler: Profiler, plan: Plan, first: int, spans: Spans) -> None:
    """Tell a profiler of steps that have run."""
    if isinstance(profiler, SpanProfiler):
        profiler.report_spans(plan, first, spans)
        return
    for step, span in zip(plan.steps[first:], spans(), strict=False):
        profiler.report_layer_time(step.name, span.seconds * 1e3)


def timed_parts(
    device: Device, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
) -> list[TimedRunnable]:
    """Steps linked so that times are known: together where the device or their launcher can tell
    them.
    """
    whole = device.link_timed(steps, launchers, ctx)
    if whole is not None:
        return [whole]
    parts: list[TimedRunnable] = []
    for key, group in groupby(steps, key=lambda s: s.artifact.launcher):
        own = list(group)
        together = launchers[key].link_timed(own, ctx) if key in launchers else None
        alone = [] if together else [device.link([s], launchers, ctx) for s in own]
        parts += [together] if together else [StepByItself(p, device.timed) for p in alone]
    return parts
