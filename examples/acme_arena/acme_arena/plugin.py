"""The hook. ``ACME_ARENA_LIMIT`` is the limit in bytes of the pool that is named by its key."""

import os
from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_allocators() -> list[Any]:
    from acme_arena.pool import Pool

    return [Pool(limit=int(os.environ.get("ACME_ARENA_LIMIT", "0")))]
