"""Weights in device memory as far as a budget goes: the others wait in pinned memory and pass
through a window.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tactix.base.errors import TactixError
from tactix.base.logger import Logger
from tactix.contracts.allocator import Allocator
from tactix.plan.schema import Plan
from tactix.run.arrays import address_of
from tactix.run.memory import ALIGNMENT, Memory, Weights
from tactix.run.weight_schedule import StreamingWindow
from tactix_cuda.stream import CudaEvent, CudaStream

if TYPE_CHECKING:
    from tactix.run.weight_schedule import Group, WeightSchedule
    from tactix_cuda.device import CudaDevice

SLOTS, MOST = 3, 64 << 20
"""Of a window, and bytes beyond which it grows for larger steps alone. While one slot is read the
next is filled, and a third keeps copies and kernels from waiting for each other at every step: with
two a run took 43.3 ms in place of 35.6 (H200, 4096 rows, a budget of 537 MB; docs/benchmarks.md,
"Weight streaming on a GPU"). A slot comes in 0.4 ms at 55 GB/s, beside which starting copies and
graphs is little.
"""


class Windows:
    """The weights of an engine, some of which stay, while others pass through a window.

    A backing as ``tactix_runtime.streaming.engine.Backing`` has it, and what stands for
    ``tactix.run.memory.Weights``: ``nbytes`` of device memory, ``blobs``, ``addresses``. Contexts
    share the window, so that it counts once: their runs are queued one after the other, each in its
    own stream.
    """

    def __init__(
        self,
        plan: Plan,
        blobs: Sequence[str],
        device: CudaDevice,
        allocator: Allocator,
        logger: Logger,
    ) -> None:
        self.sizes = {
            b: -(-memoryview(plan.blobs[b]).nbytes // ALIGNMENT) * ALIGNMENT for b in blobs
        }
        self.window = StreamingWindow(SLOTS, MOST, ALIGNMENT)
        self.blobs, self.nbytes, self.addresses = dict(plan.blobs), 0, dict[str, int]()
        self._plan, self._device, self._allocator, self._logger = plan, device, allocator, logger
        self._resident: Weights | None = None
        self._passage: Passage | None = None
        self._turn = threading.Lock()

    @property
    def weights(self) -> Windows:
        return self

    def release(self) -> None:
        """Allocators that keep what is given back return it to the driver, if they can."""
        self._passage = self._resident = None
        self.nbytes, self.addresses = 0, {}
        if (trim := getattr(self._allocator, "trim", None)) is not None:
            trim()

    def arrange(self, schedule: WeightSchedule) -> None:
        passing = {b: size for b, size in self.sizes.items() if b not in schedule.kept}
        staying = {b: content for b, content in self._plan.blobs.items() if b not in passing}
        resident = Weights(
            replace(self._plan, blobs=staying), self._device, self._allocator, copy=False
        )
        window = Memory.allocate(self._allocator, schedule.window)
        if passing:
            self._passage = Passage(self._device, self._plan.blobs, passing, window, schedule)
        self._resident, self.nbytes = resident, resident.nbytes + window.size
        # every group has addresses of its own for what passes; this one stands for all
        self.addresses = {**resident.addresses, **dict.fromkeys(passing, window.address)}
        passed, whole = sum(passing.values()), sum(self.sizes.values())
        told = f"{passed} of {whole} bytes of weights pass through {schedule.window}"
        self._logger.info(
            f"{self._plan.name or 'a plan'}: {told} on {self._device.kind}, {self.nbytes} are there"
        )

    def places(self, group: Group) -> Mapping[str, int]:
        return self._there.places(group)

    def run(self, work: Callable[[], None]) -> None:
        """In the stream that the thread submits to; outside of ``submit`` the results are there at
        return.
        """
        device = self._device
        if not device.local.active:
            device.activate()
        with self._turn:
            device.current().submit(work)
        device.settle()

    def fetch(self, group: Group) -> None:
        self._there.fetch(group)

    def take(self, group: Group) -> None:
        self._there.fetch(group)  # unless it is there already, as when it came ahead
        self._there.take(group, self._device.current())

    def leave(self, group: Group) -> None:
        self._there.leave(self._device.current())

    @property
    def _there(self) -> Passage:
        assert self._passage is not None
        return self._passage


class Passage:
    """A window in slots, and a stream that copies weights into it from pinned memory.

    Pinned copies, as the driver does not take the map of every file, and what is mapped may have to
    be read again.
    ``blobs``: content; ``sizes``: of those that pass, in the order in which they are needed. Raises
    AllocationError.
    """

    def __init__(
        self,
        device: CudaDevice,
        blobs: Mapping[str, object],
        sizes: Mapping[str, int],
        window: Memory,
        plan: WeightSchedule,
    ) -> None:
        self._device, self._sizes, self._window, self._limit = device, sizes, window, plan.limit
        self._pinned = Memory.allocate(device.pinned, sum(sizes.values()))
        self._sources: dict[str, int] = {}
        end = self._pinned.address
        for b, size in sizes.items():
            content = np.frombuffer(blobs[b], np.uint8)  # type: ignore[call-overload]
            ctypes.memmove(end, address_of(content), content.nbytes)
            self._sources[b] = end
            end += size
        self._stream = CudaStream.create(device)
        self._ready = [CudaEvent(device) for _ in range(plan.slots)]
        self._read = CudaEvent(device)
        self._loaded: list[tuple[str, ...]] = [()] * plan.slots
        self._known: dict[Group, list[tuple[int, int, int]]] = {}
        weakref.finalize(self, _wait, self._stream).atexit = False  # a copy may be under way

    def places(self, group: Group) -> dict[str, int]:
        """Addresses of a group's blobs in its slot."""
        out, end = {}, self._window.address + group.slot * self._limit
        for b in group.blobs:
            out[b] = end
            end += self._sizes[b]
        return out

    def fetch(self, group: Group) -> None:
        """Copy a group's blobs into its slot behind all who were let read it, unless they are
        there.

        Two streams and two kinds of events order it: a reader waits for ``_ready`` of its slot
        before its kernels (``take``), copies wait for ``_read``, which marks the readers' stream
        behind them (``leave``). The host waits for neither.
        """
        if self._loaded[group.slot] == group.blobs:
            return
        self._loaded[group.slot] = ()
        if (copies := self._known.get(group)) is None:
            copies = self._known[group] = self._copies(group)
        call, place_of = self._device.driver.call, self._device.driver.api.CUdeviceptr
        for place, source, size in copies:
            call("cuMemcpyHtoDAsync", place_of(place), source, size, self._stream.native)
        self._ready[group.slot].record(self._stream)
        self._loaded[group.slot] = group.blobs

    def _copies(self, group: Group) -> list[tuple[int, int, int]]:
        """Place, source and bytes; neighbours in both together."""
        out: list[tuple[int, int, int]] = []
        for b, place in self.places(group).items():
            before, more, size = out[-1] if out else (0, 0, 0)
            if (place, self._sources[b]) == (before + size, more + size):
                out[-1] = before, more, size + self._sizes[b]
            else:
                out.append((place, self._sources[b], self._sizes[b]))
        return out

    def take(self, group: Group, reader: CudaStream) -> None:
        """What comes next in a stream may read the group's slot."""
        reader.wait(self._ready[group.slot])

    def leave(self, reader: CudaStream) -> None:
        """What is copied from now on waits for what the stream has: it may be read there."""
        self._read.record(reader)
        self._stream.wait(self._read)


def _wait(stream: CudaStream) -> None:
    # after a fatal error nothing is under way
    with contextlib.suppress(TactixError), stream.device.visited():
        stream.synchronize()
