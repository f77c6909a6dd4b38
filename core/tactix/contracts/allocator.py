"""Allocator: where device memory comes from."""

from __future__ import annotations

from typing import Protocol


class Allocator(Protocol):
    """Thread-safe. ``key``: name in config; ``device``: the device kind."""

    key: str
    device: str

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Address of ``size`` bytes. Raises AllocationError."""

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Give back what ``allocate`` gave."""
