"""Times of steps within runs of graphs, without marks in these.

What stands around one small kernel, a launch and two events, takes longer than the kernel; and
marks in a graph are nodes that its kernels wait for. So the first step is run, then the first two,
and so on up to the whole run, each some times in a row between two events: a step's time is what it
adds, with the caches as the steps before it left them, and beside those that it runs beside.
Together they take what a whole run takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from tactix.base.dims import Env
from tactix.contracts.launcher import (
    Launcher,
    LinkContext,
    Runnable,
    Step,
    StepSpan,
    TimedRunnable,
)
from tactix.run.segments import Segments, StepByItself
from tactix_cuda.graph import COPIES

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

REPEATS, ROW_SECONDS = COPIES, 4e-3
"""Runs in a row, fewer where the whole run is long: one launch of many small ones, and the half
microsecond to which events are exact, are shared by these.
"""


class TimedPrefixes:
    """Steps as one run. ``prefixes``: the first of them, the first two, and so on up to all.
    ``measure``: seconds that so many runs in a row take.
    """

    def __init__(
        self, prefixes: Sequence[Runnable], measure: Callable[[Runnable, int], float]
    ) -> None:
        self._prefixes, self._measure = tuple(prefixes), measure
        self.repeat = self._prefixes[-1].repeat
        self._begin, self._ends, self._times = 0.0, [0.0] * len(prefixes), 1

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for p in self._prefixes:
            p.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for p in self._prefixes:
            p.rebind(buffer, address)

    def __call__(self) -> None:
        """The whole run comes last."""
        self._begin = time.perf_counter()
        self._ends = [self._measure(p, self._times) / self._times for p in self._prefixes]
        if self._ends[-1] > 0:
            self._times = max(1, min(REPEATS, int(ROW_SECONDS / self._ends[-1])))

    def spans(self) -> Callable[[], Sequence[StepSpan]]:
        begin, ends = self._begin, self._ends

        def worked_out() -> list[StepSpan]:
            edges = pairwise((0.0, *ascending(ends)))
            return [StepSpan(begin + a, begin + b) for a, b in edges]

        return worked_out


def ascending(times: Sequence[float]) -> list[float]:
    """The nearest times, by squares, of which none is less than the one before (pool adjacent
    violators; Barlow et al., Statistical Inference under Order Restrictions, 1972): errors of
    measuring make no step's time negative, and the sum no larger.
    """
    blocks: list[tuple[float, int]] = []  # mean, and of how many
    for t in times:
        block = (t, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, n = blocks.pop()
            count = n + block[1]
            block = ((mean * n + block[0] * block[1]) / count, count)
        blocks.append(block)
    return [mean for mean, n in blocks for _ in range(n)]


class TimedGroups(Segments):
    """Timed runs one after the other."""

    parts: tuple[TimedRunnable, ...]

    def spans(self) -> Callable[[], Sequence[StepSpan]]:
        found = [p.spans() for p in self.parts]
        return lambda: [span for spans in found for span in spans()]


def timed_steps(
    device: CudaDevice,
    steps: Sequence[Step],
    launchers: Mapping[str, Launcher],
    ctx: LinkContext,
    in_graph: Callable[[Step], bool],
) -> TimedRunnable:
    """Rows of steps that graphs run by their prefixes, and others by themselves."""
    parts: list[TimedRunnable] = []
    for together, group in groupby(steps, key=in_graph):
        own = list(group)
        if together:
            counts = range(1, len(own) + 1)
            prefixes = [device.link(own[:k], launchers, ctx) for k in counts]
            parts.append(TimedPrefixes(prefixes, device.measure))
        else:
            alone = (device.link([s], launchers, ctx) for s in own)
            parts += [StepByItself(p, device.timed) for p in alone]
    return TimedGroups(parts)
