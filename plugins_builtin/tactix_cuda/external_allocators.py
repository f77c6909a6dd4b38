"""Device memory of others: pycuda's pool, and a user's own allocator with the methods that TensorRT
asks for.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from tactix.base.errors import AllocationError, InvalidArgument
from tactix_cuda.memory import PoolAllocator, check

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix_cuda.device import CudaDevice


class PycudaAllocator:
    """``pycuda.tools.DeviceMemoryPool`` in the primary context: beside arrays of pycuda, from one
    pool.

    That pool knows no streams: what is given back waits for its stream, or for the device.
    """

    key = "tactix.cuda.pycuda@1"
    device = "cuda"

    def __init__(self, cuda: CudaDevice) -> None:
        self._cuda = cuda
        self._lock = (
            threading.RLock()
        )  # the garbage collector may give pieces back while one is allocated
        self._pieces: dict[int, Any] = {}

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError, also where pycuda is not installed; InvalidArgument for a bad
        alignment.
        """
        check(size, alignment, self.key)
        driver, context, pool = self._pool
        with self._lock:
            context.push()
            try:
                piece = pool.allocate(max(1, size))
            except (driver.Error, MemoryError) as e:
                raise AllocationError(
                    f"cannot have {size} bytes of device memory", who=self.key, why=str(e)
                ) from None
            finally:
                context.pop()
            self._pieces[int(piece)] = piece
        return int(piece)

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Raises InvalidArgument for an address that was not allocated, or is given back twice."""
        wait(self._cuda, stream)
        with self._lock:
            piece = self._pieces.pop(address, None)
            if piece is None:
                raise InvalidArgument(f"address {address:#x} is not allocated", who=self.key)
            _, context, _ = self._pool
            context.push()
            try:
                piece.free()
            finally:
                context.pop()

    def on(self, ordinal: int) -> Allocator:
        if ordinal == self._cuda.ordinal:
            return self
        return self._cuda.siblings()[ordinal].allocator(PycudaAllocator)

    @functools.cached_property
    def _pool(self) -> tuple[Any, Any, Any]:
        """pycuda's driver module, the primary context as pycuda has it, and a pool in it."""
        self._cuda.activate()
        try:
            from pycuda import driver, tools
        except ImportError as e:
            do = f"`pip install pycuda`, or use the allocator {PoolAllocator.key}"
            raise AllocationError(
                "pycuda is not installed", who=self.key, why=str(e), do=do
            ) from None
        driver.init()
        context = driver.Device(self._cuda.ordinal).retain_primary_context()
        context.push()
        try:
            return driver, context, tools.DeviceMemoryPool()
        finally:
            context.pop()


class GpuAllocator:
    """A user's object with the methods of TensorRT's IGpuAllocator, IGpuAsyncAllocator, or both.

    ``own.allocate(size, alignment, flags)`` gives an address, or 0 or None if there is no memory;
    ``own.deallocate(memory)`` gives False if it refuses. ``own.allocate_async(size, alignment,
    flags, stream)`` and ``own.deallocate_async(memory, stream)`` do the same in the order of a
    stream. ``flags`` is 0; bytes, handles. What was allocated in one way goes back in the same.
    """

    key = "user"
    device = "cuda"

    def __init__(self, own: Any, cuda: CudaDevice | None = None) -> None:
        from tactix_cuda.device import the_device

        self._own, self._cuda = own, cuda or the_device()
        self._sync, self._async = (
            all(hasattr(own, f"{verb}{end}") for verb in ("allocate", "deallocate"))
            for end in ("", "_async")
        )
        if not (self._sync or self._async):
            do = "Give it allocate and deallocate, or allocate_async and deallocate_async"
            raise InvalidArgument(f"a {type(own).__name__} is no allocator", do=do)
        self._ordered: set[int] = set()

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError for no address, one that is not aligned, and whatever the user's
        method raises.
        """
        ordered = self._async and (bool(stream) or not self._sync)
        self._cuda.activate()
        try:
            if ordered:
                address = int(self._own.allocate_async(max(1, size), alignment, 0, stream) or 0)
            else:
                address = int(self._own.allocate(max(1, size), alignment, 0) or 0)
        except Exception as e:
            raise AllocationError(
                f"cannot have {size} bytes of device memory", who=self._name, why=repr(e)
            ) from e
        if not address or address % alignment:
            why = (
                f"it gave {address:#x}, which is no multiple of {alignment}"
                if address
                else "it gave no address"
            )
            raise AllocationError(
                f"cannot have {size} bytes of device memory", who=self._name, why=why
            )
        if ordered:
            self._ordered.add(address)
            if not stream:
                self._cuda.default_stream.synchronize()
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Raises AllocationError if the user's method refuses."""
        if address in self._ordered:
            if not stream:
                wait(self._cuda, 0)
            self._ordered.discard(address)
            with self._cuda.visited():
                taken = self._own.deallocate_async(address, stream)
        else:
            wait(self._cuda, stream)
            with self._cuda.visited():
                taken = self._own.deallocate(address)
        if taken is False:
            raise AllocationError(f"memory at {address:#x} was not taken back", who=self._name)

    def on(self, ordinal: int) -> Allocator:
        """The user's object, called while that device is the current one."""
        if ordinal == self._cuda.ordinal:
            return self
        return GpuAllocator(self._own, self._cuda.siblings()[ordinal])

    @property
    def _name(self) -> str:
        return type(self._own).__name__


def wait(cuda: CudaDevice, stream: int) -> None:
    """For a stream, or with 0 for the whole device."""
    with cuda.visited():
        if stream:
            cuda.stream_of(stream).synchronize()
        else:
            cuda.synchronize()
