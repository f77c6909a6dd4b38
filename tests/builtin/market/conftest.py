"""What lies beside these tests is importable; every test has its own quarantine, and objects are cached for all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tactix_builtin.market import quarantine

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TACTIX_CACHE_DIR", str(config.cache.mkdir("tactix-objects")))  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quarantine's file."""
    path = tmp_path / "cache" / "quarantine.json"
    monkeypatch.setattr(quarantine, "default_path", lambda: path)
    return path
