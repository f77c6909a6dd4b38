"""Helpers are importable from these tests, and cubins are cached in pytest's own cache, not in the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tactics")]


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TACTIX_CACHE_DIR", str(config.cache.mkdir("tactix-objects")))  # type: ignore[union-attr]
