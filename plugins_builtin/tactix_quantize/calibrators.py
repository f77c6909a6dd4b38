"""The calibrators that are built in: each a way from histograms to ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import InvalidArgument
from tactix.contracts.calibrator import Calibrator
from tactix_quantize.entropy import best_end
from tactix_quantize.histogram import Histogram

Batch = Mapping[str, Array]
QUANTILE = 0.9999
"""Of the magnitudes, those that the legacy calibrator keeps unless it is told otherwise."""


class Histograms(Calibrator, ABC):
    """Keeps 32 KiB for each tensor. ``data``: batches, input arrays by name."""

    def __init__(self, data: Iterable[Batch] = ()) -> None:
        self._data = data
        self._seen: dict[str, Histogram] = defaultdict(Histogram)

    def batches(self) -> Iterator[Batch]:
        return iter(self._data)

    def observe(self, tensor: str, values: Array) -> None:
        self._seen[tensor].add(values)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {name: self._range(h) for name, h in self._seen.items() if h.counts.any()}

    @abstractmethod
    def _range(self, seen: Histogram) -> tuple[float, float]:
        """Of one tensor that has values."""


class MinMax(Histograms):
    """From the lowest value to the highest."""

    key = "tactix.minmax"

    def _range(self, seen: Histogram) -> tuple[float, float]:
        return seen.low, seen.high


class Thresholds(Histograms):
    """A threshold of magnitudes; the range reaches below zero only if values do, and in no
    direction beyond them.
    """

    def _range(self, seen: Histogram) -> tuple[float, float]:
        if not seen.peak:
            return 0.0, 0.0
        end = int(seen.peak / seen.width) + 1
        most = min(seen.peak, self._threshold(seen, seen.counts[:end]))
        return max(seen.low, -most), min(seen.high, most)

    @abstractmethod
    def _threshold(self, seen: Histogram, counts: Array) -> float:
        """``counts``: of the bins up to the largest magnitude."""


class Entropy(Thresholds):
    """The threshold that loses the least information; see ``entropy``."""

    key = "tactix.entropy"

    def _threshold(self, seen: Histogram, counts: Array) -> float:
        return (best_end(counts) + 0.5) * seen.width


class Entropy2(Entropy):
    """As ``Entropy``: in TensorRT the second one differs in that it is asked before layers are
    fused, as every calibrator is here.
    """

    key = "tactix.entropy2"


class Legacy(Thresholds):
    """The magnitude below which a share of all lie."""

    key = "tactix.legacy"

    def __init__(self, data: Iterable[Batch] = (), quantile: float = QUANTILE) -> None:
        """Raises InvalidArgument for a quantile that is no share."""
        super().__init__(data)
        if not 0 < quantile <= 1:
            what = f"a quantile of {quantile}"
            raise InvalidArgument(what, do="Give a number above 0 and up to 1")
        self.quantile = quantile

    def _threshold(self, seen: Histogram, counts: Array) -> float:
        below = np.cumsum(counts)
        return float(np.searchsorted(below, self.quantile * below[-1]) + 1) * seen.width
