"""Helpers are importable from these tests."""

from __future__ import annotations

import sys
from pathlib import Path

BUILTIN = Path(__file__).parent.parent
sys.path[:0] = [str(BUILTIN / name) for name in ("cuda", "tactics", "refit", "../end_to_end")]
