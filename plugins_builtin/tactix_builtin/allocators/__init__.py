"""Where device memory comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator


def allocators() -> list[Allocator]:
    """The built-in allocators."""
    from tactix_builtin.allocators.arena import ArenaAllocator

    return [ArenaAllocator()]
