"""What may have been meant by a name that nothing has."""

from __future__ import annotations

from collections.abc import Iterable


def near(name: str, known: Iterable[str], most: int = 1, least: float = 0.6) -> list[str]:
    """Known names that are spelled like it, the nearest first. ``least``: share of letters in
    common, 0 to 1.
    """
    from difflib import get_close_matches

    return get_close_matches(name, sorted(set(known)), most, least)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """A question that names at most so many known names; ``otherwise`` where none is near."""
    found = near(name, known, most)
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else otherwise
