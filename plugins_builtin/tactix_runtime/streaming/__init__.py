"""Running with fewer bytes of weights in memory than a plan has."""

from __future__ import annotations

META = "weight_streaming"
"""In a plan's ``meta``: its engines stream."""
