"""Device memory: from the driver's own pool, in the order of a stream; or from a cache of plain
pieces.

Both give memory at a multiple of 256 bytes or more. Stream 0 stands for no stream in particular:
what is allocated there can be used in any stream at once, and what is given back there is no longer
used by any stream.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tactix.base.errors import AllocationError, InvalidArgument

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix_cuda.device import CudaDevice

GRANULE = 512
"""Bytes that sizes in the cache are multiples of; large ones are multiples of LARGE. So sizes that
differ little, as shapes do, share pieces.
"""
LARGE = 2 << 20
"""Bytes: what the driver maps at a time (CUDA driver API, cuMemGetAllocationGranularity)."""
ALIGNMENT = 256
"""What the driver promises for every piece."""


class PoolAllocator:
    """The driver's stream-ordered pool (``cuMemAllocAsync``), which keeps what is given back for
    the next one.
    """

    key = "tactix.cuda.pool@1"
    device = "cuda"

    def __init__(self, cuda: CudaDevice) -> None:
        self._cuda = cuda
        self._lock = threading.RLock()
        self._ready = False

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError; InvalidArgument for a bad alignment."""
        check(size, alignment, self.key)
        cuda = self._cuda
        cuda.activate()
        self._keep_freed()
        queue = cuda.driver.api.CUstream(stream)
        try:
            address = int(cuda.driver.call("cuMemAllocAsync", max(1, size), queue))
        except AllocationError as e:
            raise AllocationError(
                f"cannot have {size} bytes of device memory", who=self.key, why=e.why
            ) from None
        if not stream:
            cuda.driver.call("cuStreamSynchronize", queue)
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        """After all work in the stream; with 0 it waits for the whole device."""
        cuda = self._cuda
        with cuda.visited():
            if not stream:
                cuda.synchronize()
            piece, queue = cuda.driver.api.CUdeviceptr(address), cuda.driver.api.CUstream(stream)
            cuda.driver.call("cuMemFreeAsync", piece, queue)

    def on(self, ordinal: int) -> Allocator:
        if ordinal == self._cuda.ordinal:
            return self
        return self._cuda.siblings()[ordinal].allocator(PoolAllocator)

    def trim(self) -> None:
        """Return what is not in use to the driver."""
        call = self._cuda.driver.call
        self._cuda.synchronize()  # what was given back in the order of a stream is back
        call("cuMemPoolTrimTo", call("cuDeviceGetDefaultMemPool", self._cuda.native), 0)

    def _keep_freed(self) -> None:
        """Once: let the pool hold on to memory when a stream is waited for, as it does not by
        default.
        """
        with self._lock:
            if self._ready:
                return
            call, api = self._cuda.driver.call, self._cuda.driver.api
            if not self._cuda.attribute("MEMORY_POOLS_SUPPORTED"):
                do = f"Use the allocator {RecyclingAllocator.key}"
                raise AllocationError("the device has no stream-ordered pool", who=self.key, do=do)
            pool = call("cuDeviceGetDefaultMemPool", self._cuda.native)
            threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            call("cuMemPoolSetAttribute", pool, threshold, api.cuuint64_t((1 << 64) - 1))
            self._ready = True


class RecyclingAllocator:
    """Pieces of ``cuMemAlloc``, kept by size when they are given back, and returned to the driver
    when it has no more.

    A piece that comes back with a stream is handed out again for that stream only, until the device
    is waited for.
    """

    key = "tactix.cuda.recycling@1"
    device = "cuda"

    def __init__(self, cuda: CudaDevice) -> None:
        self._cuda = cuda
        self._lock = (
            threading.RLock()
        )  # the garbage collector may give pieces back while one is allocated
        self._sizes: dict[int, int] = {}
        self._free: dict[tuple[int, int], list[int]] = {}

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError; InvalidArgument for a bad alignment."""
        check(size, alignment, self.key)
        step = LARGE if size > LARGE else GRANULE
        rounded = max(1, -(-size // step)) * step
        with self._lock:
            for owner in dict.fromkeys((stream, 0)):
                if pieces := self._free.get((rounded, owner)):
                    address = pieces.pop()
                    break
            else:
                address = self._more(rounded)
            self._sizes[address] = rounded
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Raises InvalidArgument for an address that was not allocated, or is given back twice."""
        if not stream:
            with self._cuda.visited():
                self._cuda.synchronize()
        with self._lock:
            size = self._sizes.pop(address, None)
            if size is None:
                raise InvalidArgument(f"address {address:#x} is not allocated", who=self.key)
            self._free.setdefault((size, stream), []).append(address)

    def on(self, ordinal: int) -> Allocator:
        if ordinal == self._cuda.ordinal:
            return self
        return self._cuda.siblings()[ordinal].allocator(RecyclingAllocator)

    def trim(self) -> int:
        """Return what is not in use to the driver; the bytes."""
        with self._lock:
            return self._trim()

    def _more(self, size: int) -> int:
        self._cuda.activate()
        try:
            return int(self._cuda.driver.call("cuMemAlloc", size))
        except AllocationError as e:
            why: Any = e.why
        if self._trim():
            return self._more(size)
        raise AllocationError(f"cannot have {size} bytes of device memory", who=self.key, why=why)

    def _trim(self) -> int:
        driver, freed = self._cuda.driver, 0
        self._cuda.activate()
        for size, owner in list(self._free):
            for address in self._free.pop((size, owner)):
                driver.call("cuMemFree", driver.api.CUdeviceptr(address))
                freed += size
        return freed


def check(size: int, alignment: int, who: str) -> None:
    """Raises InvalidArgument for what the driver cannot promise."""
    if size < 0 or not 1 <= alignment <= ALIGNMENT or alignment & (alignment - 1):
        do = f"Alignment is a power of two up to {ALIGNMENT}"
        raise InvalidArgument(f"{size} bytes at a multiple of {alignment}", who=who, do=do)
