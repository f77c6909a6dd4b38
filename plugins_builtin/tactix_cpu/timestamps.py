"""Times of the steps of a native run: executor/executor.c: tx_profile stamps each launch on each
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from tactix.base.arrays import Array
from tactix.contracts.launcher import Step, StepSpan
from tactix_cpu.launcher import ElfRun

BEGIN, END, BUSY = range(3)
"""Of txe_span, in ticks."""
NEVER = 1 << 62
"""More ticks than a run takes."""


class StampedRun:
    """The launches of some steps as one native call that keeps timestamps.

    A step ends when the last thread has made its last share of it, and the next begins there, so
    that waiting for threads is part of the step that they are waited for.
    """

    def __init__(self, run: ElfRun, steps: Sequence[Step], threads: int) -> None:
        self._run = run
        self.bind, self.rebind, self.repeat = run.bind, run.rebind, run.repeat
        counts = [len(s.artifact.launches) for s in steps]
        self._edges = list(pairwise((0, *accumulate(counts))))
        self._spans = np.zeros((threads, max(1, sum(counts)), 3), np.uint64)
        self._stamps = np.zeros(6, np.uint64)  # txe_stamps
        self._stamps[[0, 5]] = run.table, self._spans.ctypes.data
        stamper = run.executor.stamper(self._stamps.ctypes.data) if run.executor else None
        assert stamper is not None
        self._profile, self._faults = stamper, run.faults
        self._first: tuple[int, int] | None = None

    def __call__(self) -> None:
        self._profile()
        if self._faults is not None and self._faults.flag[0]:
            self._faults.fail()

    def spans(self) -> Callable[[], Sequence[StepSpan]]:
        stamps = tuple(map(int, self._stamps[1:5]))
        self._first = self._first or (stamps[0], stamps[2])
        found = self._spans.copy()
        self._spans[:] = 0
        return partial(self._worked_out, stamps, found)

    def _worked_out(self, stamps: tuple[int, ...], found: Array) -> Sequence[StepSpan]:
        begun, _, begun_ns, _ = stamps
        scale, spans = self._seconds_of_tick(stamps), found.astype(np.int64)
        worked = spans[:, :, BUSY] * scale
        ends = np.where(spans[:, :, END] > 0, spans[:, :, END] - begun, 0).max(0) * scale
        firsts = np.where(spans[:, :, BEGIN] > 0, spans[:, :, BEGIN] - begun, NEVER) * scale
        out, at, last = [], begun_ns * 1e-9, 0.0
        for first, stop in self._edges:
            end = max([last, *ends[first:stop].tolist()])
            busy = tuple(worked[:, first:stop].sum(1).tolist())
            starts = (at + firsts[:, first:stop].min(1, initial=end)).tolist()
            out.append(StepSpan(at + last, at + end, busy, tuple(starts)))
            last = end
        return out

    def _seconds_of_tick(self, stamps: tuple[int, ...]) -> float:
        """By all runs up to that one: two readings of both clocks far apart tell it best."""
        assert self._first is not None
        ticks, ns = stamps[1] - self._first[0], stamps[3] - self._first[1]
        return ns * 1e-9 / max(1, ticks)
