"""What benchmarks share that measure engines in turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def words(text: str) -> list[str]:
    """The parts of an option that are separated by commas."""
    return [w for w in text.split(",") if w]


def in_turn(items: Sequence[T], turn: int) -> list[T]:
    """All of them, beginning with another one in each turn."""
    begin = turn % max(1, len(items))
    return [*items[begin:], *items[:begin]]
