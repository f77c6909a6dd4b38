"""Weights as pages of the plan's file: they come when they are asked for or read, and go when they
are let go of.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tactix.plan.schema import Plan
from tactix.run.arrays import address_of
from tactix.run.weight_schedule import Group, StreamingWindow, WeightSchedule

AROUND = 64 << 10
"""Bytes that Linux maps beside a page that is read, if it has them in memory."""
Range = tuple[int, int]
"""Offset and length in the file's map, in whole pages."""


class Pages:
    """Where in the map of a file the weights lie. ``sizes``: bytes in whole pages, by blob; none if
    there is no map.
    """

    window = StreamingWindow()
    weights: Any = None

    def __init__(self, plan: Plan, blobs: Iterable[str]) -> None:
        self.ranges: dict[str, Range] = {}
        self._map: mmap.mmap | None = None
        for name in blobs:
            view = memoryview(plan.blobs[name])
            if not isinstance(view.obj, mmap.mmap) or self._map not in (None, view.obj):
                self.ranges.clear()
                break
            self._map = view.obj
            self.ranges[name] = self._range(view)
        self.sizes = {name: length for name, (_, length) in self.ranges.items()}

    def _range(self, view: memoryview) -> Range:
        whole = np.frombuffer(self._map, np.uint8)  # type: ignore[arg-type]
        start = address_of(np.frombuffer(view, np.uint8)) - address_of(whole)
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        return first, -(-(start + view.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE - first

    def release(self) -> None:
        """Let go of all."""
        self.drop(self.sizes)

    def arrange(self, schedule: WeightSchedule) -> None:
        """Nothing: what stays comes when it is first read."""

    def places(self, group: Group) -> Mapping[str, int]:
        """None but where the file is mapped."""
        return {}

    def run(self, work: Callable[[], None]) -> None:
        work()

    def fetch(self, group: Group) -> None:
        """Have the system read its blobs; returns at once."""
        self._advise(group.blobs, mmap.MADV_WILLNEED, 0)

    def take(self, group: Group) -> None:
        """Nothing: what is not here yet is read."""

    def leave(self, group: Group) -> None:
        self.drop(group.blobs)

    def drop(self, blobs: Iterable[str]) -> None:
        """Unmap them, and what was mapped beside: who reads it again gets it from the file."""
        self._advise(blobs, mmap.MADV_DONTNEED, AROUND)

    def _advise(self, blobs: Iterable[str], advice: int, around: int) -> None:
        assert self._map is not None
        for name in blobs:
            start, length = self.ranges[name]
            first = max(0, start - around)
            self._map.madvise(advice, first, min(start + length + around, len(self._map)) - first)
