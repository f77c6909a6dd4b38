"""What lies beside these tests is importable; objects are cached in pytest's own cache, not in the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TACTIX_CACHE_DIR", str(config.cache.mkdir("tactix-objects")))  # type: ignore[union-attr]
