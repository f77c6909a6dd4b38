"""Which requests are looked at."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

JITTER = 0.5
"""By how much of its mean a gap may be longer or shorter, so that no period of the requests hides
some of them.
"""


MADE = 4096
"""Gaps that are made at once, and come again and again: the next is then got by one call."""


def sample_ends(rate: float, seed: int) -> Iterator[int]:
    """How many requests there were at each one that is looked at; the same for the same seed.

    ``rate``: the share of requests, above 0 and at most 1.
    """
    made = random.Random(seed)
    spread = (made.uniform(1 - JITTER, 1 + JITTER) for _ in range(MADE if rate < 1 else 0))
    gaps = [max(1, round(u / rate)) for u in spread] or [1]
    return itertools.accumulate(itertools.cycle(gaps))
