"""A piece of memory with a place for each of some blobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tactix.contracts.allocator import Allocator
from tactix.run.memory import ALIGNMENT, Memory


class BlobMemory:
    """``sizes``: bytes, by blob. Raises AllocationError."""

    def __init__(self, allocator: Allocator, sizes: Mapping[str, int]) -> None:
        self._sizes, self._offsets, end = sizes, dict[str, int](), 0
        for blob, size in sizes.items():
            self._offsets[blob] = end
            end += -(-size // ALIGNMENT) * ALIGNMENT
        self.memory = Memory.allocate(allocator, end)

    def addresses(self) -> dict[str, int]:
        """Of all."""
        return {blob: self.memory.address + offset for blob, offset in self._offsets.items()}

    def array(self, blob: str) -> Any:
        """The bytes of one, in host memory, to be written."""
        out = self.memory.view(self._offsets[blob], self._sizes[blob])
        out.flags.writeable = True
        return out
