"""A pool over another allocator, by default tactix's own, which maps huge pages."""

from __future__ import annotations

import threading
from collections import defaultdict

from tactix_sdk import Allocator, errors

GRAIN = 1 << 16


class Pool:
    """At most ``limit`` bytes at once (0: no limit); freed pieces stay, for the next of the same
    size.

    ``used``, ``kept``: bytes that plans hold, and that lie ready. ``peak``: the most that was used
    at once. ``reused``: how often a piece that lay ready was taken. Sizes are rounded up to
    ``GRAIN``, which is what makes them alike.
    """

    key = "acme_arena.pool"

    def __init__(self, limit: int = 0, source: Allocator | None = None) -> None:
        from tactix_cpu.allocator import ArenaAllocator

        self.limit, self.source = limit, source or ArenaAllocator()
        self.device = self.source.device
        self.used = self.kept = self.peak = self.reused = 0
        self._pieces: dict[int, tuple[int, int]] = {}
        self._ready: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._lock = (
            threading.RLock()
        )  # the garbage collector may give pieces back while one is allocated

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """Address of ``size`` bytes of any content. Raises AllocationError, if the limit stands
        against it.
        """
        size = -(-size // GRAIN) * GRAIN
        with self._lock:
            if self.limit and self.used + size > self.limit:
                raise errors.AllocationError(
                    f"{size} bytes more than the limit allows",
                    who=self.key,
                    why=f"{self.used} of {self.limit} are in use",
                    do="Close contexts or engines, or raise the limit",
                )
            ready = self._ready[size, alignment]
            if ready:
                address = ready.pop()
                self.kept -= size
                self.reused += 1
            else:
                if self.limit and self.used + self.kept + size > self.limit:
                    self._give_back()
                address = self.source.allocate(size, alignment, stream)
            self._pieces[address] = (size, alignment)
            self.used += size
            self.peak = max(self.peak, self.used)
            return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        """Keep a piece for the next. Raises InvalidArgument for an address that is not in use."""
        with self._lock:
            piece = self._pieces.pop(address, None)
            if piece is None:
                raise errors.InvalidArgument(f"address {address:#x} is not in use", who=self.key)
            self._ready[piece].append(address)
            self.used -= piece[0]
            self.kept += piece[0]

    def trim(self) -> None:
        """Give back what lies ready."""
        with self._lock:
            self._give_back()

    def _give_back(self) -> None:
        while self._ready:
            (size, _), addresses = self._ready.popitem()
            for address in addresses:
                self.kept -= size
                self.source.deallocate(address)
