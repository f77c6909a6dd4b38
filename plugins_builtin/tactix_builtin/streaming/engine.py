"""Engines that hold their weights in memory only as far as a budget goes: pages of the plan's file come and go."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tactix.contracts.device import Device
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.plan.schema import Plan
from tactix.run.arrays import address_of
from tactix.run.context import ExecutionContext
from tactix.words.dims import Env
from tactix.words.errors import InvalidArgument
from tactix_builtin.flavours.inspector import InspectedEngine
from tactix_builtin.streaming import schedule

AROUND = 64 << 10
"""Bytes that Linux maps beside a page that is read, if it has them in memory."""
Range = tuple[int, int]
"""Offset and length in the file's map, in whole pages."""


class StreamedEngine(InspectedEngine):
    """An engine of a plan that was built with ``WEIGHT_STREAMING``, with the names that TensorRT has for it.

    The budget is on bytes of weights that are mapped into this process; results do not depend on it. At first it is
    ``streamable_weights_size``: everything stays.
    """

    def __init__(self, plan: Plan, session: Any, device: Any, options: Any, *more: Any) -> None:
        self._pages = Pages(plan, options.copy_weights or not device.host_memory)
        self._streamer = Streamer(device, plan, self._pages)
        super().__init__(plan, session, cast("Device", self._streamer), options, *more)
        self._contexts: weakref.WeakSet[ExecutionContext] = weakref.WeakSet()

    def create_execution_context(self) -> ExecutionContext:
        context = super().create_execution_context()
        self._contexts.add(context)
        return context

    @property
    def streamable_weights_size(self) -> int:
        """Bytes of weights that can come and go; 0 if the plan was not mapped from a file."""
        return sum(self._pages.sizes.values())

    @property
    def minimum_weight_streaming_budget(self) -> int:
        """Bytes that the step with the most weights needs."""
        return schedule.least(self._streamer.uses(self.plan.steps), self._pages.sizes)

    @property
    def weight_streaming_budget_v2(self) -> int:
        """Bytes of streamable weights that may be in memory. To set it ends the calling threads' own contexts.

        Raises InvalidArgument for less than the minimum, while other contexts are there, and where nothing streams.
        """
        return min(self._streamer.budget, self.streamable_weights_size)

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget: int) -> None:
        if not self._pages.sizes:
            do = "Load the plan from a file, without copy_weights, on the CPU"
            raise InvalidArgument("the engine's weights cannot be streamed", who=self.name, do=do)
        if budget < self.minimum_weight_streaming_budget:
            why = f"a step needs {self.minimum_weight_streaming_budget} bytes of weights at once"
            raise InvalidArgument(f"a budget of {budget} bytes", who=self.name, why=why)
        self._own = threading.local()
        if len(self._contexts):
            raise InvalidArgument("contexts are there", who=self.name, do="Let go of them before the budget is set")
        self._streamer.budget = budget
        self._pages.drop(self._pages.sizes)


class Pages:
    """Where in the map of a file the weights lie. ``sizes``: bytes in whole pages, by blob; none if there is no map."""

    def __init__(self, plan: Plan, elsewhere: bool) -> None:
        self.ranges: dict[str, Range] = {}
        self._map: mmap.mmap | None = None
        blobs = dict.fromkeys(b.blob for p in _plans(plan) for b in p.buffers if b.blob in plan.blobs)
        for name in () if elsewhere else blobs:
            view = memoryview(plan.blobs[name])
            if not isinstance(view.obj, mmap.mmap) or self._map not in (None, view.obj):
                self.ranges.clear()
                break
            self._map = view.obj
            if view.nbytes:
                self.ranges[name] = self._range(view)
        self.sizes = {name: length for name, (_, length) in self.ranges.items()}

    def _range(self, view: memoryview) -> Range:
        start = address_of(np.frombuffer(view, np.uint8)) - address_of(np.frombuffer(self._map, np.uint8))  # type: ignore[arg-type]
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        return first, -(-(start + view.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE - first

    def fetch(self, blobs: Any) -> None:
        """Have the system read them; returns at once."""
        self._advise(blobs, mmap.MADV_WILLNEED, 0)

    def drop(self, blobs: Any) -> None:
        """Unmap them, and what was mapped beside: who reads it again gets it from the file."""
        self._advise(blobs, mmap.MADV_DONTNEED, AROUND)

    def _advise(self, blobs: Any, advice: int, around: int) -> None:
        assert self._map is not None
        for name in blobs:
            start, length = self.ranges[name]
            first = max(0, start - around)
            self._map.madvise(advice, first, min(start + length + around, len(self._map)) - first)


def _plans(plan: Plan) -> Iterator[Plan]:
    """The plan and those of its bodies."""
    yield plan
    for inner in (p for s in plan.steps for p in s.plans):
        yield from _plans(inner)


class Streamer:
    """A device that links steps in groups, between which weights come and go; all else is the device's own."""

    def __init__(self, device: Any, plan: Plan, pages: Pages) -> None:
        self._device, self._pages = device, pages
        self.budget = sum(pages.sizes.values())
        self._uses: dict[int, frozenset[str]] = {}
        for p in _plans(plan):
            for s in p.steps:
                read = {o.buffer for o in s.inputs if o.buffer >= 0} | {*s.constants.values()}
                self._uses[id(s)] = frozenset(p.buffers[b].blob for b in read) & pages.sizes.keys()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def uses(self, steps: Sequence[Step]) -> list[frozenset[str]]:
        """The streamable weights that each step reads."""
        return [self._uses[id(s)] for s in steps]

    def link(self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError."""
        found = schedule.plan(self.uses(steps), self._pages.sizes, self.budget)
        if found is None:
            return self._device.link(steps, launchers, ctx)  # type: ignore[no-any-return]
        parts = [self._device.link(steps[g.first : g.stop], launchers, ctx) for g in found.groups]
        return StreamedRun(parts, found, self._pages)


class StreamedRun:
    """Groups in order; a group's weights come while the one before it runs, and go when it has run."""

    def __init__(self, parts: Sequence[Runnable], plan: schedule.Schedule, pages: Pages) -> None:
        self._parts, self._plan, self._pages = tuple(parts), plan, pages

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for p in self._parts:
            p.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for p in self._parts:
            p.rebind(buffer, address)

    def __call__(self) -> None:
        groups, pages = self._plan.groups, self._pages
        for i, part in enumerate(self._parts):
            if self._plan.ahead:
                pages.fetch(groups[(i + 1) % len(groups)].blobs)
            part()
            pages.drop(groups[i].blobs)

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()
