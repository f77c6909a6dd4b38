"""Pieces of memory that an allocator gave: what was written into them must still be there when they
are given back.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Device
from tactix_sdk.testing.report import Broken


@dataclass
class Pieces:
    """Those that are held now, by address, with their content. ``seed``: of what is written. May be
    used by threads.
    """

    allocator: Allocator
    device: Device
    seed: int = 0
    allocated: dict[int, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)  # type: ignore[valid-type]

    def take(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """A piece, filled at once. Raises Broken where it is not aligned or lies in another one."""
        address = self.reserve(size, alignment, stream)
        self.write(address, self.allocated[address])
        return address

    def reserve(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        """As ``take``, nothing written."""
        import numpy as np

        address = self.allocator.allocate(size, alignment, stream)
        if not isinstance(address, int):
            raise Broken(f"{size} bytes have the address {address!r}, no integer")
        if address % alignment:
            raise Broken(f"{size} bytes lie at {address:#x}, which is no multiple of {alignment}")
        with self.lock:
            for other, content in self.allocated.items():
                if address == other or max(address, other) < min(
                    address + size, other + content.nbytes
                ):
                    raise Broken(
                        f"{size} bytes at {address:#x} overlap {content.nbytes} "
                        f"bytes at {other:#x}, which are held"
                    )
            self.seed += 1
            self.allocated[address] = np.random.default_rng(self.seed).integers(
                0, 256, size, np.uint8
            )
        return address

    def give(self, address: int, stream: int = 0) -> None:
        """Give a piece back. Raises Broken where its content has changed."""
        self.look(address)
        with self.lock:
            del self.allocated[address]
        self.allocator.deallocate(address, stream)

    def look(self, address: int) -> None:
        """Raises Broken where a piece does not hold what was written."""
        import numpy as np

        content = self.allocated[address]
        if not np.array_equal(self.read(address, content), content):
            raise Broken(f"{content.nbytes} bytes at {address:#x} changed while they were held")

    def clear(self) -> None:
        """Give all back."""
        for address in list(self.allocated):
            self.give(address)

    def write(self, address: int, content: Any) -> None:
        if not content.nbytes:
            return
        if not self.device.host_memory:
            self.device.copy_in(address, content)
        else:
            ctypes.memmove(address, content.ctypes.data, content.nbytes)

    def read(self, address: int, like: Any) -> Any:
        """As many bytes."""
        import numpy as np

        if self.device.host_memory:
            return np.frombuffer(ctypes.string_at(address, like.nbytes), np.uint8)
        out = np.empty_like(like)
        if like.nbytes:
            self.device.copy_out(out, address)
        return out


class Interrupted:
    """An allocator in whose calls something happens between any two lines of its Python."""

    def __init__(self, allocator: Allocator, happens: Callable[[], None]) -> None:
        self.key, self.device = allocator.key, allocator.device
        self._own, self._happens = allocator, happens

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        return int(self._call(self._own.allocate, size, alignment, stream))

    def deallocate(self, address: int, stream: int = 0) -> None:
        self._call(self._own.deallocate, address, stream)

    def _call(self, function: Callable[..., Any], *arguments: int) -> Any:
        def trace(frame: Any, event: str, given: Any) -> Any:
            if event == "line":
                self._happens()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)


class Counted:
    """An allocator, and what of it is held: ``live`` addresses; ``wrong``: what was given back and
    not held.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.key, self.device = allocator.key, allocator.device
        self._own = allocator
        self.live: dict[int, int] = {}
        self.calls, self.wrong = 0, list[int]()

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        address = self._own.allocate(size, alignment, stream)
        self.calls += 1
        self.live[address] = size
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        if self.live.pop(address, None) is None:
            self.wrong.append(address)
            return
        self._own.deallocate(address, stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)
