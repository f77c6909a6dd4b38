"""Helpers are importable from these tests, and cubins are cached in pytest's own cache, not in the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

BUILTIN = Path(__file__).parent.parent
sys.path[:0] = [str(BUILTIN / name) for name in ("cuda", "tactics", "refit")]


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TACTIX_CACHE_DIR", str(config.cache.mkdir("tactix-objects")))  # type: ignore[union-attr]
