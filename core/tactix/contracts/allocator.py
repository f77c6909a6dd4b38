"""Allocator: where device memory comes from. A plugin's, or a user's own in ``Runtime(allocator=...)``."""

from __future__ import annotations

from typing import Protocol


class Allocator(Protocol):
    """Thread-safe. ``key``: name in config; ``device``: the device kind.

    ``stream``: a handle where memory is had, or given back, in the order of that stream, as by TensorRT's
    IGpuAsyncAllocator; 0 for memory that any stream may use at once, or that none uses any longer.
    """

    key: str
    device: str

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Address of ``size`` bytes. Raises AllocationError."""

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Give back what ``allocate`` gave."""
