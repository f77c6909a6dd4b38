"""A program's allocator as tactix's: engines get the memory of weights and contexts from it."""

from __future__ import annotations

from tactix.base.errors import AllocationError
from tactix_tensorrt.api.callbacks import IGpuAllocator, IGpuAsyncAllocator
from tactix_tensorrt.api.enums import Severity
from tactix_tensorrt.api.logger import ILogger

NO_FLAGS = 0


class ProgramAllocator:
    """tactix's view of a program's allocator, for a kind of device."""

    key = "tensorrt.gpu_allocator"

    def __init__(self, inner: IGpuAllocator, device: str, logger: ILogger) -> None:
        self._inner, self.device, self._logger = inner, device, logger

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Raises AllocationError for 0, for an address that is not aligned, and for what the
        program's code fails with.
        """
        who, count = type(self._inner).__name__, max(size, 1)
        try:
            if isinstance(self._inner, IGpuAsyncAllocator):
                found = int(self._inner.allocate_async(count, alignment, NO_FLAGS, stream) or 0)
            else:
                found = int(self._inner.allocate(count, alignment, NO_FLAGS) or 0)
        except Exception as e:  # the program's code
            what = f"the allocator fails with {type(e).__name__}"
            raise AllocationError(what, who=who, why=str(e)) from e
        if not found or found % alignment:
            why = f"it gives {found:#x}, which is no multiple of {alignment}"
            what = f"{count} bytes cannot be had"
            raise AllocationError(what, who=who, why=why if found else "it gives 0")
        return found

    def deallocate(self, address: int, stream: int = 0) -> None:
        if isinstance(self._inner, IGpuAsyncAllocator):
            done = self._inner.deallocate_async(address, stream)
        else:
            done = self._inner.deallocate(address)
        if done is False:
            who = type(self._inner).__name__
            self._logger.log(Severity.ERROR, f"{who}: the memory at {address:#x} is not freed")
