"""Host memory that the device reads and writes by itself."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.errors import AllocationError, TactixError
from tactix.contracts.allocator import Allocator
from tactix.run.memory import Memory

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: pinned for every context."""
GAP = 256
"""Bytes that arrays in a piece of memory start at multiples of, as those of the driver do."""
CHUNK = 8 << 20
"""Bytes of each of two pieces that uploads alternate between: one is filled while the device reads
the other, 0.15 ms at the 55 GB/s that pinned memory gave an H200 (docs/benchmarks.md, "Weight
streaming on a GPU"), so that starting copies is little and two pieces take little memory.
"""


class PinnedAllocator:
    """Of host memory, at multiples of a page."""

    key = "tactix.cuda.pinned@1"
    device = "cpu"

    def __init__(self, cuda: CudaDevice) -> None:
        self._cuda = cuda

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError."""
        self._cuda.activate()
        try:
            return int(self._cuda.driver.call("cuMemHostAlloc", size, PORTABLE))
        except AllocationError as e:
            raise AllocationError(
                f"cannot pin {size} bytes of host memory", who=self._cuda.key, why=e.why
            ) from None

    def deallocate(self, address: int, stream: int = 0) -> None:
        # after a fatal error there is nothing left to free
        with contextlib.suppress(TactixError), self._cuda.visited():
            self._cuda.driver.call("cuMemFreeHost", address)


def _start(array: Any) -> int:
    """Where a numpy array starts."""
    return int(array.__array_interface__["data"][0])


class StagingArea:
    """Places for host arrays, the same in a pinned piece of memory and in one of the device: one
    copy moves them all.

    It grows as it must. Nothing may be under way when ``place`` or ``send`` is called.
    """

    def __init__(self, device: CudaDevice, allocator: Allocator) -> None:
        self._device, self._allocator = device, allocator
        self._pieces: tuple[Memory, Memory] | None = None
        self._offsets = [0]

    def place(self, sizes: Sequence[int]) -> list[int]:
        """Addresses on the device of arrays of so many bytes. Raises AllocationError."""
        self._offsets = [0]
        for nbytes in sizes:
            self._offsets.append(self._offsets[-1] + -(-nbytes // GAP) * GAP)
        size = max(GAP, self._offsets[-1])
        if self._pieces is None or self._pieces[0].size < size:
            self._pieces = None  # first: there may be no room for both
            self._pieces = (
                Memory.allocate(self._device.pinned, size),
                Memory.allocate(self._allocator, size),
            )
        return [self._pieces[1].address + offset for offset in self._offsets[:-1]]

    def send(self, arrays: Sequence[Any]) -> None:
        """The first of the arrays that have places, to the device; in the stream that this thread
        submits to, with the device's context current, as for ``receive``.
        """
        assert self._pieces is not None
        for x, offset in zip(arrays, self._offsets, strict=False):
            ctypes.memmove(self._pieces[0].address + offset, _start(x), x.nbytes)
        self._copy("cuMemcpyHtoDAsync", 0, self._offsets[len(arrays)])

    def receive(self, places: Sequence[int]) -> None:
        """The arrays at these places, which ascend, to the pinned memory; neighbours together."""
        begin = 0
        for at, place in enumerate(places, 1):
            if at == len(places) or places[at] != place + 1:
                self._copy(
                    "cuMemcpyDtoHAsync", self._offsets[places[begin]], self._offsets[place + 1]
                )
                begin = at

    def take(self, arrays: Sequence[Any], places: Sequence[int]) -> None:
        """Fill arrays with what lies at their places, once ``receive`` is over."""
        assert self._pieces is not None
        for y, place in zip(arrays, places, strict=True):
            ctypes.memmove(_start(y), self._pieces[0].address + self._offsets[place], y.nbytes)

    def _copy(self, call: str, begin: int, end: int) -> None:
        assert self._pieces is not None
        if begin == end:
            return
        device, (pinned, memory) = self._device, self._pieces
        pair = device.driver.api.CUdeviceptr(memory.address + begin), pinned.address + begin
        device.driver.call(
            call, *(pair if "HtoD" in call else pair[::-1]), end - begin, device.current().native
        )


class Upload:
    """Bytes on their way to ascending addresses, in two pieces of pinned memory by turns."""

    def __init__(self, device: CudaDevice, size: int) -> None:
        self._device, self._size = device, size
        self._stream = device.create_stream()
        self._halves = [
            (Memory.allocate(device.pinned, size), device.create_event()) for _ in range(2)
        ]
        self._start = self._used = 0

    def put(self, address: int, source: int, nbytes: int) -> None:
        """Send so many bytes of the host, with those before them if they are near."""
        while nbytes:
            offset = address - self._start
            if self._used and offset >= self._size:
                self.flush()
            if not self._used:
                self._start, offset = address, 0
            part = min(nbytes, self._size - offset)
            ctypes.memmove(self._halves[0][0].address + offset, source, part)
            self._used = offset + part
            address, source, nbytes = address + part, source + part, nbytes - part

    def flush(self) -> None:
        """Send what was put, and go on in the other piece once it is free."""
        # the other half may be filled once its own copy is over: an event marks that, and this
        # thread waits for it after the next copy has been started
        (pinned, event), device = self._halves[0], self._device
        place = device.driver.api.CUdeviceptr(self._start)
        device.driver.call(
            "cuMemcpyHtoDAsync", place, pinned.address, self._used, self._stream.native
        )
        event.record(self._stream)
        self._halves.reverse()
        self._halves[0][1].synchronize()
        self._used = 0

    def finish(self) -> None:
        if self._used:
            self.flush()
        self._stream.synchronize()


def upload(device: CudaDevice, pairs: Sequence[tuple[int, Any]]) -> None:
    """Contiguous arrays to their addresses, which ascend; all is there at return. Raises
    AllocationError.
    """
    if pairs:
        last, array = pairs[-1]
        way = Upload(device, min(CHUNK, max(1, last + array.nbytes - pairs[0][0])))
        for address, x in pairs:
            way.put(address, _start(x), x.nbytes)
        way.finish()
