"""Helpers beside these tests are importable; HYPOTHESIS_PROFILE=thorough draws many more random networks, new each time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

CALM = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("quick", max_examples=1, derandomize=True, **CALM)
settings.register_profile("thorough", max_examples=10, **CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
