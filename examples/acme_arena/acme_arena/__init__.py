"""The acme-arena pack: host memory for plans, limited, kept and counted."""

import os

from acme_arena.pool import Pool
from tactix_sdk import Pack

__all__ = ["Pool", "pack"]

pack = Pack("acme_arena")


@pack.allocator
def pool() -> Pool:
    """The pool that is named by its key; ``ACME_ARENA_LIMIT`` is its limit in bytes."""
    return Pool(limit=int(os.environ.get("ACME_ARENA_LIMIT", "0")))
