"""Quantiles by histograms that grow: in one pass, in little memory, and the same whatever the order
of batches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tactix_sdk import errors

BINS = 4096
Batch = Mapping[str, Any]


class Histogram:
    """Counts of values between ``-limit`` and ``limit``, a power of two that doubles when a value
    lies beyond.
    """

    def __init__(self) -> None:
        self.limit, self.counts = 0.0, np.zeros(BINS, np.int64)
        self.low, self.high = math.inf, -math.inf

    def add(self, values: Any) -> None:
        """Count all finite values."""
        x = np.asarray(values).astype(np.float64).ravel()
        x = x[np.isfinite(x)]
        if not x.size:
            return
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        peak = max(-self.low, self.high)
        if peak and not self.limit:
            self.limit = 2.0 ** (math.floor(math.log2(peak)) + 1)
        while 0 < self.limit <= peak:
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(1), BINS // 4)
            self.limit *= 2
        scale = BINS / 2 / self.limit if self.limit else 0.0
        self.counts += np.bincount(np.floor(x * scale).astype(np.int64) + BINS // 2, minlength=BINS)

    def between(self, share: float) -> tuple[float, float]:
        """The range that leaves out ``(1 - share) / 2`` of the values at each end, to a bin; never
        beyond them all.
        """
        seen, width = np.cumsum(self.counts), 2 * self.limit / BINS
        left_out = (1 - share) / 2 * seen[-1]
        first = int(np.searchsorted(seen, left_out, side="right"))
        last = int(np.searchsorted(seen, seen[-1] - left_out))
        return max(self.low, first * width - self.limit), min(
            self.high, (last + 1) * width - self.limit
        )


class Quantile:
    """A Calibrator. ``data``: batches, each input arrays by name. ``share``: of the values that
    ranges must hold.
    """

    key = "acme_quantile.quantile"

    def __init__(self, data: Iterable[Batch] = (), share: float = 0.9999) -> None:
        if not 0 < share <= 1:
            raise errors.InvalidArgument(
                f"a share of {share}", do="Give a number above 0 and up to 1"
            )
        self.data, self.share = data, share
        self.seen: dict[str, Histogram] = defaultdict(Histogram)

    def batches(self) -> Iterator[Batch]:
        return iter(self.data)

    def observe(self, tensor: str, values: Any) -> None:
        self.seen[tensor].add(values)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Of tensors with finite values, by name."""
        return {
            name: h.between(self.share) for name, h in sorted(self.seen.items()) if h.counts.any()
        }
