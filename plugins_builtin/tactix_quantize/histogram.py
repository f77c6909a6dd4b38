"""Histograms of magnitudes that grow with what they see, and do not hang on the order of batches.

The upper end is a power of two. When a value lies beyond, it is doubled and neighbouring bins are
joined: the counts are those that one pass with the final end would have given.
"""

from __future__ import annotations

import math

import numpy as np

from tactix.base.arrays import Array

BINS = 4096
"""More than half of them lie below the largest magnitude, so that the algorithms, which were
published with 2,048 bins up to it, have at least as many."""


class Histogram:
    """Counts of magnitudes from 0 to ``limit`` in BINS bins, and the lowest and highest value."""

    def __init__(self) -> None:
        self.counts: Array = np.zeros(BINS, np.int64)
        self.limit = 0.0
        self.low, self.high = math.inf, -math.inf

    @property
    def peak(self) -> float:
        """The largest magnitude; 0 before anything was seen."""
        return max(-self.low, self.high, 0.0)

    @property
    def width(self) -> float:
        """Of one bin."""
        return self.limit / BINS

    def add(self, values: Array) -> None:
        """Count all finite values; floats of any dtype and shape."""
        x = np.asarray(values)
        x = x.astype(np.float64 if x.dtype == np.float64 else np.float32, copy=False).ravel()
        finite = np.isfinite(x)
        if not finite.all():
            x = x[finite]
        if not x.size:
            return
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self._grow()
        scale = BINS / self.limit if self.limit else 0.0
        places = (np.abs(x).astype(np.float64) * scale).astype(np.int64)
        self.counts += np.bincount(places, minlength=BINS)

    def _grow(self) -> None:
        peak = self.peak
        if not peak:
            return
        end = 2.0 ** (math.floor(math.log2(peak)) + 1)
        end *= 1 if end > peak else 2  # log2 rounds
        if not self.limit:
            self.limit = end
            return
        while self.limit < end:
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(1), (0, BINS // 2))
            self.limit *= 2
