"""Where tactix keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``TACTIX_CACHE_DIR``, or the user's own."""
    if named := os.environ.get("TACTIX_CACHE_DIR"):
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tactix"))
