"""Engines that hold their weights in memory only as far as a budget goes: in pages of the plan's
file, or on a GPU.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from tactix.base.dims import Env
from tactix.base.errors import InvalidArgument
from tactix.contracts.device import Device
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.plan.schema import Plan
from tactix.run import weight_schedule as schedule
from tactix.run.closed_part import ClosedPart
from tactix.run.context import ExecutionContext
from tactix.run.inspector import InspectedEngine
from tactix.run.link import allocator_of
from tactix.run.weight_schedule import Group, WeightSchedule
from tactix_runtime.streaming.pages import Pages
from tactix_runtime.streaming.uses import Reads


class Backing(Protocol):
    """Where weights come from and go to, for all contexts of an engine.

    ``sizes``: bytes by blob of those that can; none where nothing streams.
    """

    sizes: dict[str, int]
    window: schedule.StreamingWindow

    @property
    def weights(self) -> Any:
        """In place of the engine's own; None for these."""

    def release(self) -> None:
        """Give all memory back; runs are over, or waited for."""

    def arrange(self, schedule: WeightSchedule) -> None:
        """Bring what stays, and make room for what does not. Raises AllocationError."""

    def places(self, group: Group) -> Mapping[str, int]:
        """Addresses of a group's blobs while it runs, where they change."""

    def run(self, work: Callable[[], None]) -> None:
        """Call it; runs of several contexts take turns where they share a window."""

    def fetch(self, group: Group) -> None:
        """Let a group's blobs come into its slot, once the groups that were there have run."""

    def take(self, group: Group) -> None:
        """What follows reads them."""

    def leave(self, group: Group) -> None:
        """What came before has read them."""


def backing_of(
    plan: Plan, blobs: Sequence[str], session: Any, device: Any, options: Any
) -> Backing:
    """By the device: one with memory of its own has ``streamed``, if it can. Raises PluginError."""
    if hasattr(device, "streamed"):
        allocator = allocator_of(session, device, options.allocator)
        streamed: Backing = device.streamed(plan, blobs, allocator, options.logger)
        return streamed
    return Pages(plan, blobs if device.host_memory and not options.copy_weights else ())


class StreamedEngine(InspectedEngine):
    """An engine of a plan that was built with ``WEIGHT_STREAMING``, with the names that TensorRT
    has for it.

    The budget is on bytes of weights that are mapped into this process, or lie in a GPU's memory;
    results do not depend on it. At first it is ``streamable_weights_size``: everything stays. A GPU
    gets them with the first context.
    """

    def __init__(
        self,
        plan: Plan,
        session: Any,
        device: Any,
        options: Any,
        context: type[ExecutionContext] = ExecutionContext,
    ) -> None:
        reads = Reads(plan)
        self._backing = backing_of(plan, reads.blobs, session, device, options)
        self._streamer = Streamer(device, reads, self._backing)
        super().__init__(
            plan, session, cast("Device", self._streamer), options, context, self._backing.weights
        )
        self._arranged = False

    def create_execution_context(self) -> ExecutionContext:
        """Raises AllocationError for more weights than a GPU has memory for."""
        with self._births:
            if not self._arranged:
                self._backing.arrange(self._streamer.schedule)
                self._program.take_weights()
                self._arranged = True
            return super().create_execution_context()

    @property
    def streamable_weights_size(self) -> int:
        """Bytes of weights that can come and go; 0 on the CPU if the plan was not mapped from a
        file.
        """
        return sum(self._backing.sizes.values())

    @property
    def minimum_weight_streaming_budget(self) -> int:
        """Bytes that the step with the most weights needs."""
        return schedule.least(self._streamer.steps, self._backing.sizes)

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        """Bytes of the budget in place that weights pass through; 0 where all stay."""
        return self._streamer.schedule.window

    @property
    def weight_streaming_budget_v2(self) -> int:
        """Bytes of streamable weights that may be in memory. To set it ends the calling threads'
        own contexts.

        Raises InvalidArgument for less than the minimum, while other contexts are there, and where
        nothing streams.
        """
        return self._streamer.budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget: int) -> None:
        if not self._backing.sizes:
            do = "Load the plan from a file, without copy_weights"
            raise InvalidArgument("the engine's weights cannot be streamed", who=self.name, do=do)
        try:
            budget = operator.index(budget)
        except TypeError:
            raise InvalidArgument(
                f"a budget of {budget!r}", who=self.name, do="Give bytes, an int"
            ) from None
        if budget < self.minimum_weight_streaming_budget:
            why = f"a step needs {self.minimum_weight_streaming_budget} bytes of weights at once"
            raise InvalidArgument(f"a budget of {budget} bytes", who=self.name, why=why)
        self._own = threading.local()
        with self._births:
            if self._open():
                raise InvalidArgument(
                    "contexts are there",
                    who=self.name,
                    do="Let go of them before the budget is set",
                )
            self._streamer.set_budget(min(budget, self.streamable_weights_size))
            self._arranged = False
            self._backing.release()

    def _memory(self) -> dict[str, Any]:
        """And how many bytes of weights come in a run in which every step runs once."""
        windows = self._streamer.schedule
        streamed = sum(
            windows.sizes[b] for g in windows.groups(self._streamer.steps) for b in g.blobs
        )
        return {**super()._memory(), "streamed": streamed}

    def _let_go(self) -> None:
        super()._let_go()
        if self._backing.sizes:
            self._backing.release()
        self._streamer.forget()
        self._backing = cast(Backing, ClosedPart(self._ended))
        self._streamer = cast(Streamer, ClosedPart(self._ended))

    def _open(self) -> bool:
        """Whether contexts can run."""
        return any(not c.closed for c in self._contexts)


class Streamer:
    """A device that links steps in groups, between which weights come and go; all else is the
    device's own.
    """

    def __init__(self, device: Any, reads: Reads, backing: Backing) -> None:
        self._device, self._reads, self._backing = device, reads, backing
        self.steps = reads.all(backing.sizes)
        self._inner: dict[LinkContext, LinkContext] = {}
        self.set_budget(sum(backing.sizes.values()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def forget(self) -> None:
        """What was linked, which refers to this device."""
        self._inner.clear()

    def set_budget(self, budget: int) -> None:
        """For what is linked from now on."""
        self.budget = budget
        self.schedule = schedule.plan(self.steps, self._backing.sizes, budget, self._backing.window)

    def link(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> Runnable:
        """Raises ExecutionError."""
        inner = self._inner.setdefault(
            ctx, replace(ctx, device=self._device)
        )  # launchers know their own device
        groups = self.schedule.groups(self._reads.of(steps, self._backing.sizes))
        parts = [self._device.link(steps[g.first : g.stop], launchers, inner) for g in groups]
        if not any(g.blobs for g in groups):
            return parts[0]  # type: ignore[no-any-return]
        plan = self._reads.plan_of(steps[0])
        homes = {i: b.blob for i, b in enumerate(plan.buffers) if b.blob}
        return StreamedRun(parts, groups, len(steps) == len(plan.steps), self._backing, homes)


class StreamedRun:
    """Groups in order; a group's weights come while those before it run, and go when it has run.

    ``homes``: blobs by buffer. ``again``: whether the first group is likely to follow the last.
    """

    def __init__(
        self,
        parts: Sequence[Runnable],
        groups: Sequence[Group],
        again: bool,
        back: Backing,
        homes: Mapping[int, str],
    ) -> None:
        self._parts, self._groups, self._backing, self._homes = (
            tuple(parts),
            tuple(groups),
            back,
            homes,
        )
        slots = 1 + max(g.slot for g in groups)
        self._first = groups[:slots] if again else ()
        order = (*groups, *self._first)
        self._ahead = [_free(order[i : i + slots]) for i in range(len(groups))]

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for g, part in zip(self._groups, self._parts, strict=True):
            own, places = list(addresses), self._backing.places(g)
            for buffer, blob in self._homes.items():
                own[buffer] = places.get(blob, own[buffer])
            part.bind(env, own)

    def rebind(self, buffer: int, address: int) -> None:
        for p in self._parts:
            p.rebind(buffer, address)

    def __call__(self) -> None:
        self._backing.run(self._once)

    def _once(self) -> None:
        backing = self._backing
        for g, ahead, part in zip(self._groups, self._ahead, self._parts, strict=True):
            backing.take(g)
            for following in ahead:
                backing.fetch(following)
            try:
                part()
            finally:
                backing.leave(g)
        for following in self._first:
            backing.fetch(following)

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()


def _free(groups: Sequence[Group]) -> list[Group]:
    """Of the groups that follow the first, those whose slots nobody before them is to run in."""
    slots = [g.slot for g in groups]
    return [g for i, g in enumerate(groups) if i and len(set(slots[: i + 1])) == i + 1]
