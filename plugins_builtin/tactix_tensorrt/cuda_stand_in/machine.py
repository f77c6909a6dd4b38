"""The machine that the stand-in's faces share: one table of memory, streams and events in a
process, whatever names a program calls.

Nothing is put off: a copy is done when its call returns, so that streams are in order by
themselves and synchronizing finds nothing to wait for.
"""

from __future__ import annotations

import ctypes
import enum
import threading
import time
from dataclasses import dataclass

from tactix.base.logger import Logger
from tactix_tensorrt.cuda_stand_in import addresses
from tactix_tensorrt.cuda_stand_in.contexts import ContextTable
from tactix_tensorrt.cuda_stand_in.device_facts import FACTS
from tactix_tensorrt.cuda_stand_in.handles import HandleTable
from tactix_tensorrt.cuda_stand_in.memory import (
    ON_DEVICE,
    AllocationTable,
    FreeAndTotal,
    MemoryPlace,
    StandInAllocation,
)
from tactix_tensorrt.cuda_stand_in.statuses import (
    INVALID_DEVICE,
    INVALID_DIRECTION,
    INVALID_HANDLE,
    INVALID_PITCH,
    INVALID_VALUE,
    SUCCESS,
    CudaRefusal,
)

_NANOSECONDS_PER_MILLISECOND = 1e6
_ALWAYS = (0, 1, 2)
"""The default stream, and cudaStreamLegacy and cudaStreamPerThread."""
_UNREGISTERED = 0
_KINDS = {MemoryPlace.PINNED: 1, MemoryPlace.DEVICE: 2, MemoryPlace.MANAGED: 3}
"""Numbers of cudaMemoryType."""
_NO_DEVICE = -2
"""cudaInvalidDeviceId."""
DEFAULT_POOL = 1
"""Handle of the pool that a device has from the start."""


class CopyDirection(enum.IntEnum):
    """CUDA's cudaMemcpyKind."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4

    @property
    def from_device(self) -> bool:
        return self in (CopyDirection.DEVICE_TO_HOST, CopyDirection.DEVICE_TO_DEVICE)

    @property
    def to_device(self) -> bool:
        return self in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_DEVICE)


@dataclass(frozen=True)
class Rows:
    """One end of a copy by rows, which begin ``pitch`` bytes apart."""

    start: object
    pitch: int


@dataclass(frozen=True)
class PointerFacts:
    """Of an address: a number of cudaMemoryType, the device (-2 for none), and the address for the
    device and for the host, 0 where it is none.
    """

    kind: int
    device: int
    device_pointer: int
    host_pointer: int


class _LastStatus(threading.local):
    value = SUCCESS


class StandInMachine:
    """Every method raises CudaRefusal for what CUDA would not do either, TypeError for arguments of
    a wrong type. Handles and pointers: integers, or what ``addresses`` takes.
    """

    def __init__(self, logger: Logger | None = None) -> None:
        self.logger = logger or Logger()
        self.memory = AllocationTable()
        self.streams = HandleTable[None]("stream", dict.fromkeys(_ALWAYS))
        self.events = HandleTable[int]("event")
        self.contexts = ContextTable()
        self.pools = HandleTable[dict[int, int]]("memory pool", {DEFAULT_POOL: {}})
        self._last = _LastStatus()

    def refused(self, name: str, refusal: CudaRefusal) -> None:
        """Log that a call failed, and keep its status for cudaGetLastError."""
        self._last.value = refusal.status
        self.logger.error(f"CUDA stand-in: {name}: {refusal.why}")

    def last_status(self, forget: bool) -> int:
        """Of this thread's calls that failed, the latest one's."""
        found = self._last.value
        if forget:
            self._last.value = SUCCESS
        return found

    def allocate(self, size: object, place: MemoryPlace) -> int:
        """Address of ``size`` zero bytes; 0 for none."""
        count = addresses.size(size)
        return self.memory.allocate(count, place).address if count else 0

    def allocate_some(self, size: object, place: MemoryPlace) -> StandInAllocation:
        """As the driver's calls, which refuse a size of 0."""
        if not (count := addresses.size(size)):
            raise CudaRefusal(INVALID_VALUE, "a size of 0 bytes")
        return self.memory.allocate(count, place)

    def free(self, pointer: object, *places: MemoryPlace) -> None:
        self.memory.free(addresses.address(pointer), places)

    def free_on_device(self, pointer: object) -> None:
        self.free(pointer, *ON_DEVICE)

    def pointer_facts(self, pointer: object) -> PointerFacts:
        """What memory an address is; memory of the caller's own is not registered."""
        address = addresses.address(pointer)
        found = self.memory.holding(address)
        if found is None:
            return PointerFacts(_UNREGISTERED, _NO_DEVICE, 0, address)
        on_host = 0 if found.place is MemoryPlace.DEVICE else address
        return PointerFacts(_KINDS[found.place], 0, address, on_host)

    def holding(self, pointer: object) -> StandInAllocation:
        """The allocation that has an address."""
        found = self.memory.holding(address := addresses.address(pointer))
        if found is None:
            raise CudaRefusal(INVALID_VALUE, f"{address:#x} was not allocated here")
        return found

    def free_and_total(self) -> FreeAndTotal:
        return self.memory.memory()

    def copy(self, to: object, source: object, size: object, direction: object) -> None:
        """``direction``: a number of ``CopyDirection``."""
        count = addresses.size(size)
        way = _direction(direction)
        target, origin = addresses.copy_end(to), addresses.copy_end(source)
        if not target.writable:
            raise CudaRefusal(INVALID_VALUE, "the target of a copy may not be written")
        if not count:
            return
        kept = (
            self.memory.span(target, count, way.to_device),
            self.memory.span(origin, count, way.from_device),
        )
        ctypes.memmove(target.address, origin.address, count)
        del kept  # a free in another thread ends no memory that is being copied

    def copy_rows(self, to: Rows, source: Rows, size: tuple[object, object], way: object) -> None:
        """``size``: bytes of a row, and how many rows; ``way``: as ``direction`` of ``copy``."""
        width, height = (addresses.size(n) for n in size)
        if width > min(to.pitch, source.pitch):
            what = f"rows of {width} bytes, which are {to.pitch} and {source.pitch} bytes apart"
            raise CudaRefusal(INVALID_PITCH, what)
        if not width or not height:
            return
        known = _direction(way)
        ends = addresses.copy_end(to.start), addresses.copy_end(source.start)
        on_device = known.to_device, known.from_device
        kept = [
            self.memory.span(end, (height - 1) * rows.pitch + width, there)
            for end, rows, there in zip(ends, (to, source), on_device, strict=True)
        ]
        if not ends[0].writable:
            raise CudaRefusal(INVALID_VALUE, "the target of a copy may not be written")
        for i in range(height):
            first, second = ends[0].address + i * to.pitch, ends[1].address + i * source.pitch
            ctypes.memmove(first, second, width)
        del kept  # as in ``copy``

    def fill(self, pointer: object, value: object, size: object, width: int = 1) -> None:
        """``size``: how many pieces of ``width`` bytes get the value."""
        pieces = addresses.size(size)
        if not pieces:
            return
        place = addresses.copy_end(pointer)
        kept = self.memory.span(place, pieces * width, on_device=True)
        pattern = (addresses.address(value) % (1 << 8 * width)).to_bytes(width, "little")
        if width == 1:
            ctypes.memset(place.address, pattern[0], pieces)
        else:
            ctypes.memmove(place.address, pattern * pieces, pieces * width)
        del kept

    def register_host(self, pointer: object, size: object) -> None:
        """Page-lock the caller's own memory: here only checked."""
        self.memory.span(addresses.copy_end(pointer), addresses.size(size), on_device=False)

    def make_stream(self) -> int:
        return self.streams.new(None)

    def stream(self, handle: object) -> None:
        """Check that the stream is in use; all that was put into it is done."""
        self.streams.state(addresses.address(handle))

    def destroy_stream(self, handle: object) -> None:
        self.streams.destroy(addresses.address(handle))

    def make_event(self) -> int:
        return self.events.new(0)

    def record(self, event: object, stream: object) -> None:
        self.stream(stream)
        self.events.set(addresses.address(event), time.perf_counter_ns())

    def event(self, handle: object) -> None:
        """Check that the event is in use; it is behind nothing that is not done."""
        self.events.state(addresses.address(handle))

    def destroy_event(self, handle: object) -> None:
        self.events.destroy(addresses.address(handle))

    def milliseconds(self, start: object, end: object) -> float:
        """From one record to the other."""
        first, last = (self.events.state(addresses.address(e)) for e in (start, end))
        if not first or not last:
            raise CudaRefusal(INVALID_HANDLE, "an event was not recorded")
        return (last - first) / _NANOSECONDS_PER_MILLISECOND

    def device(self, ordinal: object) -> int:
        """The number of the one device."""
        number = addresses.address(ordinal)
        if number:
            raise CudaRefusal(INVALID_DEVICE, f"there is no device {number}: the stand-in has one")
        return number

    def attribute(self, number: object, ordinal: object) -> int:
        self.device(ordinal)
        return FACTS.get(addresses.address(number), 0)


def _direction(given: object) -> CopyDirection:
    number = addresses.address(given)
    try:
        return CopyDirection(number)
    except ValueError:
        raise CudaRefusal(INVALID_DIRECTION, f"{number} is no direction of a copy") from None


MACHINE = StandInMachine()
"""What all faces of this process share."""
