"""Allocator: where device memory comes from. A plugin's, or a user's own in
``Runtime(allocator=...)``.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Allocator(Protocol):
    """``key``: name in config; ``device``: the device kind.

    Threads call it at once, and give back what others had. The garbage collector gives memory back,
    too: that may be in the middle of another call of the same thread.

    ``stream``: a handle where memory is had, or given back, in the order of that stream, as by
    TensorRT's IGpuAsyncAllocator; 0 for memory that any stream may use at once, or that none uses
    any longer. With ``Device.host_memory`` it is always 0.
    """

    key: str
    device: str

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Address of ``size`` bytes of any content, a multiple of ``alignment``, which is a power
        of two.

        No other piece that is held has the same address, even if ``size`` is 0. Raises
        AllocationError, after which it can be used on; InvalidArgument for an alignment of more
        than 256 that it cannot give.
        """

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Give back what ``allocate`` gave, once."""


@runtime_checkable
class AllocatorOfMany(Allocator, Protocol):
    """One that can be had for each device of its kind. An allocator without ``on`` serves the first
    device alone.
    """

    def on(self, ordinal: int) -> Allocator:
        """The same for the device of that number; itself for its own."""
