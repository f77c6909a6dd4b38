"""What lies beside these tests is importable; every test has its own quarantine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tactix_isolate import quarantine

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quarantine's file."""
    path = tmp_path / "cache" / "quarantine.json"
    monkeypatch.setattr(quarantine, "default_path", lambda: path)
    return path
