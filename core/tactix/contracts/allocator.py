"""Allocator: where device memory comes from. A plugin's, or a user's own in
``Runtime(allocator=...)``.
"""

from __future__ import annotations

from typing import Protocol, SupportsIndex, runtime_checkable

from tactix.base.errors import AllocationError, TactixError

END_OF_ADDRESSES = 1 << 63
"""Of what signed integers of 64 bits hold, as plans and kernels keep addresses."""


@runtime_checkable
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


def allocated(allocator: Allocator, size: int, alignment: int = 64, stream: int = 0) -> int:
    """``allocator.allocate``, whose address is looked at before anything is written there.

    Raises AllocationError with the allocator's key for what is no address or not aligned, and for
    any error of its code that is not typed.
    """
    try:
        given = allocator.allocate(size, alignment, stream)
    except TactixError:
        raise
    except Exception as e:  # a user's code
        raise no_memory(allocator.key, size, f"{type(e).__name__}: {e}") from e
    return checked_address(given, size, alignment, allocator.key)


def checked_address(given: object, size: int, alignment: int, who: str) -> int:
    """What the allocator ``who`` gave for ``size`` bytes, as an address. Raises AllocationError for
    what is none or no multiple of ``alignment``.
    """
    if not isinstance(given, SupportsIndex):
        raise no_memory(who, size, f"it gave {given!r}, which is no address")
    address = given.__index__()
    if not 0 < address < END_OF_ADDRESSES - size:
        why = f"it gave {address:#x}, which is no address" if address else "it gave no address"
        raise no_memory(who, size, why)
    if address % alignment:
        why = f"it gave {address:#x}, which is no multiple of {alignment}"
        raise no_memory(who, size, why)
    return address


def no_memory(who: str, size: int, why: str) -> AllocationError:
    """The error of the allocator ``who``."""
    return AllocationError(f"cannot have {size} bytes of memory", who=f"allocator {who}", why=why)
