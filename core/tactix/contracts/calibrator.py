"""Calibrator: gives quantisation ranges from sample data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Calibrator(Protocol):
    """``key``: name in config."""

    key: str

    def batches(self) -> Any:
        """An iterator over input arrays by name."""

    def observe(self, tensor: str, values: Any) -> None:
        """Called with every activation of every batch."""

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest value to represent, by tensor name."""
