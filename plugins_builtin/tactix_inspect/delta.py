"""Delta debugging: the fewest items of a list with which something still fails (A. Zeller and R.
Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28 (2002), ddmin).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Items = tuple[int, ...]


def fewest(count: int, fails: Callable[[Items], bool]) -> Iterator[Items]:
    """Ever fewer of ``range(count)`` with which it fails, all of which are known to; the last ones
    are as few as can be: without any one of them it fails no more.

    Halves first, then ever smaller pieces and what is left without them; no set is tried twice.
    """
    tried = dict[Items, bool]()

    def holds(items: Items) -> bool:
        if items not in tried:
            tried[items] = bool(items) and fails(items)
        return tried[items]

    items, pieces = tuple(range(count)), 2
    while len(items) > 1:
        found = _smaller(items, pieces, holds)
        if found is not None:
            items, was_piece = found
            pieces = 2 if was_piece else max(pieces - 1, 2)
            yield items
        elif pieces >= len(items):
            return
        else:
            pieces = min(2 * pieces, len(items))


def _smaller(
    items: Items, pieces: int, holds: Callable[[Items], bool]
) -> tuple[Items, bool] | None:
    """A piece that fails, or what fails without one; whether it is a piece."""
    parts = _cut(items, min(pieces, len(items)))
    for part in parts:
        if holds(part):
            return part, True
    if len(parts) > 2:
        for part in parts:
            rest = tuple(i for i in items if i not in set(part))
            if holds(rest):
                return rest, False
    return None


def _cut(items: Items, pieces: int) -> Sequence[Items]:
    ends = [len(items) * k // pieces for k in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(ends)]
