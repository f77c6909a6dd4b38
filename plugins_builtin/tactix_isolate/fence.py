"""Memory with nothing around it: a buffer whose end, or whose begin, touches a page that must not
be touched.

Where the system cannot protect pages, and in the few bytes that alignment leaves, a pattern tells
what was written.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

PAGE = mmap.PAGESIZE
MOAT = 256 * PAGE
"""Bytes before and after a buffer's pages that cannot be touched. They are addresses, not memory.
"""
FILL = 0xA5
"""What lies beside a buffer, and in outputs before they are written."""

_NOTHING, _READ = 0, 1


class Fence:
    """One buffer. ``at_end``: it ends at the moat, else it begins there; it is aligned to
    ``alignment`` bytes.
    """

    def __init__(self, nbytes: int, alignment: int, at_end: bool) -> None:
        self.nbytes = nbytes
        body = -(-max(1, nbytes) // PAGE) * PAGE
        flags = (
            {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        )
        self._memory = mmap.mmap(-1, MOAT + body + MOAT, **flags)
        base = _address(self._memory)
        self._pages = base + MOAT, body
        self.offset = (body - nbytes) // alignment * alignment if at_end else 0
        self.address = base + MOAT + self.offset
        _protect(base, MOAT, _NOTHING)
        _protect(base + MOAT + body, MOAT, _NOTHING)
        self._body: Any = _view(*self._pages)
        self._body.fill(FILL)

    @property
    def content(self) -> Any:
        """Its bytes."""
        return self._body[self.offset : self.offset + self.nbytes]

    @property
    def reach(self) -> tuple[int, int]:
        """The addresses from its first moat to its last."""
        start, size = self._pages
        return start - MOAT, start + size + MOAT

    def close_to_writers(self) -> None:
        """From now on it can be read alone."""
        _protect(*self._pages, _READ)

    def damage(self) -> int | None:
        """The offset from its begin of the first byte beside it that was written; None if there is
        none.
        """
        import numpy as np

        beside = self._body != FILL
        beside[self.offset : self.offset + self.nbytes] = False
        found = np.flatnonzero(beside)
        return int(found[0]) - self.offset if len(found) else None


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _view(address: int, size: int) -> Any:
    import numpy as np

    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, np.uint8)


def _protect(address: int, size: int, how: int) -> None:
    """Raises OSError; does nothing where the system has no mprotect."""
    if hasattr(mmap, "PROT_READ"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
            raise OSError(ctypes.get_errno(), "mprotect failed")
