"""How many rows batches have: the sizes that they are padded to, and how long each takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

RETRY = 1.0
"""Seconds after which a batch may be larger again than what earlier ones took allows: a size that
was slow once, as while its shapes were bound or the machine was busy, is not slow for ever.
"""
FORGETTING, OUTLIER = 0.2, 2.0
"""Weight of the newest run in the estimate of how long one takes, and how many times the estimate
it counts at most.
"""


def ladder(lowest: int, highest: int) -> tuple[int, ...]:
    """Sizes of which each is at most half as large again as the one before: 1, 2, 3, 4, 6, 8, 12,
    16, 24, ..., from ``lowest`` to ``highest`` rows.

    So less than a third of the rows of a batch of 4 or more are nobody's, and 64 rows have 12
    sizes.
    """
    steps, power = {1}, 2
    while power <= highest:
        steps |= {power, power * 3 // 2}
        power *= 2
    return tuple(sorted({lowest, highest, *(n for n in steps if lowest <= n <= highest)}))


def padded_to(sizes: Sequence[int], rows: int) -> int:
    """The least of ascending ``sizes`` that has room for so many rows; these as they are where none
    has, and without any.
    """
    place = bisect_left(sizes, rows)
    return sizes[place] if rows and place < len(sizes) else rows


class BatchTimes:
    """How long batches took, by rows. More rows never count as faster than fewer, and between two
    sizes that ran the time goes in a straight line. ``sizes``: what batches are padded to.
    """

    def __init__(self, sizes: Sequence[int] = ()) -> None:
        self._sizes = sizes
        self._took: dict[int, float] = {}
        self._rows, self._seconds = list[int](), list[float]()
        self._retry = 0.0

    def note(self, rows: int, seconds: float) -> None:
        """One ran, padding among its rows. What holds up a single run counts little."""
        before = self._took.get(rows, seconds)
        self._took[rows] = before + FORGETTING * (min(seconds, OUTLIER * before) - before)
        self._settle()

    def _settle(self) -> None:
        """A larger batch that took less tells that a smaller one can, too."""
        self._rows = sorted(self._took)
        self._seconds, least = [], float("inf")
        for rows in reversed(self._rows):
            least = min(least, self._took[rows])
            self._seconds.append(least)
        self._seconds.reverse()

    def estimate(self, rows: int) -> float:
        """Seconds of a batch of so many rows, with its padding; of more rows than any that ran,
        what the most took, and 0 while none ran.
        """
        rows = padded_to(self._sizes, rows)
        known, seconds = self._rows, self._seconds
        place = bisect_left(known, rows)
        if place == len(known):
            return seconds[-1] if known else 0.0
        if known[place] == rows or not place:
            return seconds[place]
        below, above = known[place - 1], known[place]
        share = (rows - below) / (above - below)
        return seconds[place - 1] + share * (seconds[place] - seconds[place - 1])

    def in_time(self, rows: int, target: float, now: float) -> int:
        """The most rows up to these that take no longer than ``target`` seconds; all of them where
        even one row takes longer, so that fewer are no cure, and once every RETRY seconds, when
        what is known of larger batches is forgotten.

        ``now``: by ``time.perf_counter``.
        """
        if self.estimate(rows) <= target:
            return rows
        if now >= self._retry:
            self._retry = now + RETRY
            self._took = {n: t for n, t in self._took.items() if self.estimate(n) <= target}
            self._settle()
            return rows
        return next((n for n in range(rows - 1, 0, -1) if self.estimate(n) <= target), rows)
