"""Times of the steps of a native run: executor/executor.c: tx_profile stamps each launch on each
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from tactix.contracts.launcher import Step, StepSpan
from tactix_cpu.launcher import ElfRun

BEGIN, END, BUSY = range(3)
"""Of txe_span, in ticks."""


class StampedRun:
    """The launches of some steps as one native call that keeps timestamps.

    A step ends when the last thread has made its last share of it, and the next begins there, so
    that waiting for threads is part of the step that they are waited for.
    """

    def __init__(self, run: ElfRun, steps: Sequence[Step], threads: int) -> None:
        assert run.executor is not None
        self._run, self._profile = run, run.executor.profile
        self.bind, self.rebind, self.repeat = run.bind, run.rebind, run.repeat
        counts = [len(s.artifact.launches) for s in steps]
        self._edges = list(pairwise((0, *accumulate(counts))))
        self._spans = np.zeros((threads, max(1, sum(counts)), 3), np.uint64)
        self._stamps = np.zeros(5, np.uint64)  # txe_stamps
        self._stamps[4] = self._spans.ctypes.data
        self._addresses = run.table, self._stamps.ctypes.data
        self._first: tuple[int, int] | None = None

    def __call__(self) -> None:
        self._profile(*self._addresses)
        faults = self._run.faults
        if faults is not None and faults.flag[0]:
            faults.fail()

    def spans(self) -> Sequence[StepSpan]:
        begun, _, begun_ns, _, _ = map(int, self._stamps)
        scale, spans = self._seconds_of_tick(), self._spans.astype(np.int64)
        worked = spans[:, :, BUSY] * scale
        ends = np.where(spans[:, :, END] > 0, spans[:, :, END] - begun, 0).max(0) * scale
        out, at, last = [], begun_ns * 1e-9, 0.0
        for first, stop in self._edges:
            end = max([last, *ends[first:stop].tolist()])
            busy = tuple(worked[:, first:stop].sum(1).tolist())
            out.append(StepSpan(at + last, at + end, busy))
            last = end
        return out

    def _seconds_of_tick(self) -> float:
        """By all runs so far: the longer between two readings of both clocks, the better."""
        begun, ended, begun_ns, ended_ns, _ = map(int, self._stamps)
        self._first = self._first or (begun, begun_ns)
        ticks, ns = ended - self._first[0], ended_ns - self._first[1]
        return ns * 1e-9 / max(1, ticks)
