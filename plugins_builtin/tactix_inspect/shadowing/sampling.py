"""Which requests are looked at."""

from __future__ import annotations

import random

JITTER = 0.5
"""By how much of its mean a gap may be longer or shorter, so that no period of the requests hides
some of them.
"""


class Gaps:
    """How many requests go by until the next one that is looked at; the same for the same seed.

    ``rate``: the share of requests, above 0 and at most 1.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._mean, self._random = 1 / rate, random.Random(seed)

    def next(self) -> int:
        """1 stands for the very next request."""
        gap = self._mean * self._random.uniform(1 - JITTER, 1 + JITTER)
        return max(1, round(gap)) if self._mean > 1 else 1
