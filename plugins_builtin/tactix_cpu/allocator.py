"""Host memory by anonymous mapping: zeros at first, huge pages for large pieces, given back to the
system at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from typing import Any

from tactix.base.errors import AllocationError, InvalidArgument
from tactix.base.host_memory import check_fits

HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on ARM with pages of 4 KiB: one entry of the table of recent
translations then covers 512 small pages. Weights in huge pages took BERT-base from 96.4 to 92.8 ms
on a Zen 5, ResNet-50 from 27.5 to 27.2, which is within noise (README, the prototype). Pieces that
are smaller would mostly be waste: they stay in small pages.
"""
_PRIVATE: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
"""A mapping that is shared, as is the default, gets no huge pages."""


class ArenaAllocator:
    """One mapping per piece: for few and large ones, as an arena or all weights of a plan are."""

    key = "tactix.arena"
    device = "cpu"

    def __init__(self) -> None:
        self._pieces: dict[int, mmap.mmap] = {}
        self._lock = (
            threading.RLock()
        )  # the garbage collector may give pieces back while one is allocated

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Address of ``size`` zero bytes. Raises AllocationError; InvalidArgument for a bad
        alignment.
        """
        if alignment < 1 or alignment & (alignment - 1) or size < 0:
            raise InvalidArgument(
                f"{size} bytes at a multiple of {alignment}", do="Alignment is a power of two"
            )
        if size >= HUGE_PAGE:
            alignment = max(alignment, HUGE_PAGE)
        slack = alignment if alignment > mmap.PAGESIZE else 0
        try:
            check_fits(size)
            piece = mmap.mmap(-1, max(1, size) + slack, **_PRIVATE)
        except (OSError, ValueError, OverflowError, MemoryError) as e:
            raise AllocationError(f"cannot have {size} bytes of host memory", why=str(e)) from None
        if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # only advice: a kernel may be built without it
                piece.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(piece))
        address = -(-start // alignment) * alignment
        with self._lock:
            self._pieces[address] = piece
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Unmap a piece. Raises InvalidArgument for an address that was not allocated, or is given
        back twice.
        """
        with self._lock:
            piece = self._pieces.pop(address, None)
        if piece is None:
            raise InvalidArgument(f"address {address:#x} is not allocated", who=self.key)
        piece.close()
