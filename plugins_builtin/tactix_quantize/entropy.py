"""The threshold that loses the least information when magnitudes become 128 levels.

S. Migacz, "8-bit Inference with TensorRT", GTC 2017: for every number of bins from 128 on, P is the
histogram up to there with all that lies beyond in its last bin, Q is what 128 levels keep of the
bins without that, spread over those bins of a level that are not empty. The threshold is where the
divergence of Q from P, by Kullback and Leibler, is least. As in NVIDIA's pytorch-quantization the
first bin counts as much as the second: zeros, of which a Relu makes many, are exact in any range.
Here half of the rest must be kept: of one bin with everything in it nothing is lost either.
"""

from __future__ import annotations

import numpy as np

from tactix.base.arrays import Array

LEVELS = 128


def best_end(counts: Array) -> int:
    """How many bins to keep of a histogram of at least LEVELS bins whose last is not empty."""
    bins = counts.astype(np.float64)
    bins[0] = bins[1]
    half = int(np.searchsorted(np.cumsum(bins), bins.sum() / 2)) + 1
    ends = np.arange(max(LEVELS, half), len(counts) + 1)
    return int(ends[np.argmin(_divergences(bins, ends))])


def _divergences(counts: Array, ends: Array) -> Array:
    """Of Q from P for every end; infinite where Q has nothing and P has something.

    Sums over bins are differences of running sums: the sum of ``p log p`` changes in the last bin
    alone, and Q is one number in each level.
    """
    total, filled = counts.sum(), counts > 0
    kept, last = _running(counts)[ends], counts[ends - 1]
    beyond = total - kept
    p_log_p = _running(_x_log_x(counts))[ends] - _x_log_x(last) + _x_log_x(last + beyond)
    edges = -(-np.arange(LEVELS + 1) * ends[:, None] // LEVELS)  # of levels, rounded up
    sums = np.diff(_running(counts)[edges], axis=1)
    bins = np.diff(_running(filled)[edges], axis=1)
    some = sums > 0
    q = np.divide(sums, bins * kept[:, None], out=np.ones_like(sums), where=some)
    weights = sums.copy()
    weights[:, -1] += beyond
    divergence = (p_log_p - (weights * np.log(q)).sum(axis=1)) / total - np.log(total)
    return np.where((last > 0) | (beyond == 0), divergence, np.inf)


def _running(x: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(x, dtype=np.float64)])


def _x_log_x(x: Array) -> Array:
    return x * np.log(np.where(x > 0, x, 1))
