"""The table of allocations: "device" memory is pages of this process, and every use is checked."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import enum
import mmap
import os
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tactix.base.host_memory import largest
from tactix_tensorrt.cuda_stand_in.addresses import CopyEnd, is_mapped
from tactix_tensorrt.cuda_stand_in.statuses import INVALID_VALUE, OUT_OF_MEMORY, CudaRefusal

_REMEMBERED = 4096
"""Freed addresses that are remembered, to tell a second free from a wrong address."""
_ASSUMED = 16 << 30
"""Bytes of memory where the system tells nothing."""


class MemoryPlace(enum.Enum):
    """What a program asked for; all of it is host memory here."""

    DEVICE = "device"
    PINNED = "page-locked host"
    MANAGED = "managed"


ON_DEVICE = frozenset({MemoryPlace.DEVICE, MemoryPlace.MANAGED})
"""What may be the device's end of a copy."""


@dataclass(frozen=True)
class StandInAllocation:
    """``pages``: what keeps the memory; it ends with the last reference, so that a copy that is
    under way outlives a free. None for memory that another lends.
    """

    address: int
    size: int
    place: MemoryPlace
    pages: mmap.mmap | None

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True)
class FreeAndTotal:
    """Bytes."""

    free: int
    total: int


class AllocationTable:
    """Allocations by address; any thread may call. ``changes``: how many there were and ended, 0
    where nothing is allocated here.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._found: dict[int, StandInAllocation] = {}
        self._freed: deque[int] = deque(maxlen=_REMEMBERED)
        self._abandoned: deque[StandInAllocation] = deque()
        self._lent: list[StandInAllocation] = []
        self._used = 0

    def allocate(self, size: int, place: MemoryPlace) -> StandInAllocation:
        """Zeroed memory that begins with a page. ``size``: bytes, 1 at least. Raises
        CudaRefusal.
        """
        if size > self.memory().free:
            raise CudaRefusal(OUT_OF_MEMORY, f"{size} bytes are more than this machine has left")
        try:
            pages = _pages(size)
        except (OSError, ValueError, OverflowError) as e:
            raise CudaRefusal(OUT_OF_MEMORY, f"{size} bytes cannot be had: {e}") from None
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        made = StandInAllocation(start, size, place, pages)
        with self._lock:
            bisect.insort(self._starts, start)
            self._found[start] = made
            self._used += size
            self.changes += 1
        return made

    def free(self, address: int, places: Collection[MemoryPlace]) -> None:
        """Nothing for address 0. Raises CudaRefusal for what is no such allocation's begin."""
        if not address:
            return
        with self._lock:
            found = self._found.get(address)
            if found is None or found.place not in places:
                raise CudaRefusal(INVALID_VALUE, self._why_not_freed(address, found))
            self._remove(found)

    def abandon(self, found: StandInAllocation) -> None:
        """Free as soon as the table is asked for more, or how much there is: for finalizers, which
        may run in a thread that has the lock.
        """
        self._abandoned.append(found)

    @contextlib.contextmanager
    def lent(self, sizes: Mapping[int, int]) -> Iterator[None]:
        """Inside, memory of another is the device's, as many bytes from each address on. Several
        may lend the same.
        """
        given = ((address, size) for address, size in sizes.items() if address and size)
        spans = [StandInAllocation(*span, MemoryPlace.DEVICE, None) for span in given]
        with self._lock:
            self._lent += spans
        try:
            yield
        finally:
            with self._lock:
                for span in spans:
                    self._lent.remove(span)

    def holding(self, address: int) -> StandInAllocation | None:
        """The allocation that has this address."""
        with self._lock:
            return self._holding(address)

    def room(self, address: int, count: int) -> int:
        """How many of ``count`` bytes from an address on are the caller's: those that its
        allocation has left, none where no memory is, and else all, as other memory is not known
        here.
        """
        found = self.holding(address)
        if found is not None:
            return min(count, found.end - address)
        return count if is_mapped(address, count) else 0

    def memory(self) -> FreeAndTotal:
        """Of this machine: all of it, less what the program has allocated here."""
        self._free_abandoned()
        total = largest() or _ASSUMED
        return FreeAndTotal(max(total - self._used, 0), total)

    def span(self, place: CopyEnd, count: int, on_device: bool) -> StandInAllocation | None:
        """The allocation that has these bytes; None for host memory of the caller's own.

        Raises CudaRefusal for bytes outside of an allocation, a buffer or the process's memory,
        and for host memory where the device's is expected.
        """
        found = self.holding(place.address)
        if found is not None:
            _check_inside(place.address, count, found)
            if on_device and found.place not in ON_DEVICE:
                raise _not_on_device(place.address, f"it is {found.place.value} memory")
            return found
        if on_device:
            raise _not_on_device(place.address, "no allocation has it")
        _check_host(place, count)
        return None

    def _free_abandoned(self) -> None:
        """But for those that were freed by hand, whose addresses others may have now."""
        with contextlib.suppress(IndexError):  # as soon as there is none
            while True:
                found = self._abandoned.popleft()
                with self._lock:
                    if self._found.get(found.address) is found:
                        self._remove(found)

    def _remove(self, found: StandInAllocation) -> None:
        del self._found[found.address]
        del self._starts[bisect.bisect_left(self._starts, found.address)]
        self._freed.append(found.address)
        self._used -= found.size
        self.changes += 1

    def _holding(self, address: int) -> StandInAllocation | None:
        index = bisect.bisect_right(self._starts, address) - 1
        found = self._found[self._starts[index]] if index >= 0 else None
        if found is not None and address < found.end:
            return found
        lent = [s for s in self._lent if s.address <= address < s.end]
        return max(lent, key=lambda s: s.end, default=None)

    def _why_not_freed(self, address: int, found: StandInAllocation | None) -> str:
        if found is not None:
            return f"{address:#x} is {found.place.value} memory, which another call frees"
        around = self._holding(address)
        if around is not None:
            return f"{address:#x} lies {address - around.address} bytes inside of an allocation"
        return (
            f"{address:#x} was freed before"
            if address in self._freed
            else (f"{address:#x} was not allocated here")
        )


def _not_on_device(address: int, why: str) -> CudaRefusal:
    return CudaRefusal(INVALID_VALUE, f"{address:#x} is no device memory: {why}")


def _check_inside(address: int, count: int, found: StandInAllocation) -> None:
    left = found.end - address
    if count > left:
        raise CudaRefusal(
            INVALID_VALUE,
            f"{count} bytes from {address:#x} on leave an allocation of {found.size} bytes, "
            f"which has {left} there",
        )


def _check_host(place: CopyEnd, count: int) -> None:
    if place.room is not None and count > place.room:
        raise CudaRefusal(INVALID_VALUE, f"{count} bytes leave a buffer of {place.room} bytes")
    if count and not is_mapped(place.address, count):
        raise CudaRefusal(
            INVALID_VALUE, f"{count} bytes from {place.address:#x} on are no memory of this process"
        )


def _pages(size: int) -> mmap.mmap:
    if os.name == "nt":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
