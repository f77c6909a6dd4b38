"""Calibrators against plain numpy over all values at once, and against what the contract asks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tactix.base.arrays import Array
from tactix.base.errors import InvalidArgument
from tactix.contracts.calibrator import Calibrator
from tactix_quantize.calibrators import Entropy, Entropy2, Legacy, MinMax
from tactix_sdk.testing import ranges

N = 30_000
RNG = np.random.default_rng(11)
NORMAL = RNG.standard_normal(N).astype(np.float32)
DISTRIBUTIONS = {
    "normal": NORMAL,
    "shifted": 3 * NORMAL + 7,
    "relu": np.maximum(NORMAL, 0),
    "uniform": RNG.uniform(-2, 5, N).astype(np.float32),
    "laplace": RNG.laplace(size=N).astype(np.float32),
    "exponential": RNG.exponential(size=N).astype(np.float32),
    "lognormal": np.exp(NORMAL),
    "cauchy": np.clip(RNG.standard_cauchy(N), -900, 900).astype(np.float32),
    "two peaks": np.concatenate([NORMAL - 9, NORMAL + 5]),
    "steps": RNG.integers(0, 17, N).astype(np.float32) / 16,
    "sparse": np.where(RNG.random(N) < 0.01, NORMAL * 40, 0).astype(np.float32),
}
KINDS: list[Callable[[], Calibrator]] = [Entropy2, Entropy, MinMax, Legacy]


def histogram(values: Array) -> tuple[Array, float]:
    """Counts of magnitudes up to the largest, and the bins' width: of 4,096 bins up to the next
    power of two.
    """
    magnitudes = np.abs(values.astype(np.float64))
    limit = 2.0
    while limit / 2 > magnitudes.max():
        limit /= 2
    while limit <= magnitudes.max():
        limit *= 2
    counts, edges = np.histogram(magnitudes, bins=4096, range=(0, limit))
    return counts[: np.flatnonzero(counts)[-1] + 1], float(edges[1])


def kl(counts: Array, end: int) -> float:
    """The divergence as the talk has it, bin by bin."""
    p = [float(c) for c in counts[:end]]
    kept = list(p)
    p[-1] += float(counts[end:].sum())
    q = [0.0] * end
    for level in range(128):
        bins = [j for j in range(end) if j * 128 // end == level and kept[j]]
        for j in bins:
            q[j] = sum(kept[k] for k in bins) / len(bins)
    total_p, total_q = sum(p), sum(q)
    out = 0.0
    for a, b in zip(p, q, strict=True):
        if a and not b:
            return np.inf
        out += a / total_p * np.log(a / total_p / (b / total_q)) if a else 0.0
    return out


def quick_kl(counts: Array, end: int) -> float:
    """The same over arrays; a test holds that it is."""
    p = counts[:end].astype(np.float64)
    level = np.arange(end) * 128 // end
    sums, filled = np.bincount(level, p, 128), np.bincount(level, p > 0, 128)
    q = np.where(p > 0, (sums / np.maximum(filled, 1))[level], 0)
    p[-1] += counts[end:].sum()
    there = p > 0
    if (q[there] == 0).any():
        return np.inf
    p, q = p[there] / p.sum(), q[there] / q.sum()
    return float((p * np.log(p / q)).sum())


def entropy_threshold(values: Array) -> float:
    """Where the divergence is least, of the ends that keep half of the values."""
    counts, width = histogram(values)
    counts[0] = counts[1]
    ends = [e for e in range(128, len(counts) + 1) if counts[:e].sum() >= counts.sum() / 2]
    best = min(ends, key=lambda end: quick_kl(counts, end))
    return float(min((best + 0.5) * width, np.abs(values).max()))


def seen(calibrator: Calibrator, values: Array, batches: int = 3) -> tuple[float, float]:
    for part in np.array_split(values, batches):
        calibrator.observe("x", part)
    return calibrator.ranges()["x"]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_min_and_max(name: str) -> None:
    x = DISTRIBUTIONS[name]
    assert seen(MinMax(), x) == (x.min(), x.max())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", [Entropy, Entropy2])
def test_entropy(kind: type[Entropy], name: str) -> None:
    x = DISTRIBUTIONS[name]
    most = entropy_threshold(x)
    wanted = max(float(x.min()), -most), min(float(x.max()), most)
    assert seen(kind(), x) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("end", [128, 129, 200, 255, 256, 300])
def test_the_form_over_arrays_is_the_published_one(end: int) -> None:
    counts = histogram(DISTRIBUTIONS["exponential"])[0][:300]
    assert quick_kl(counts, end) == pytest.approx(kl(counts, end), rel=1e-9)


@pytest.mark.parametrize("quantile", [0.5, 0.99, 0.9999, 1.0])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_legacy(name: str, quantile: float) -> None:
    x = DISTRIBUTIONS[name]
    low, high = seen(Legacy(quantile=quantile), x)
    width = histogram(x)[1]
    wanted = np.quantile(np.abs(x), quantile, method="inverted_cdf")
    wanted = min(wanted, np.abs(x).max())
    assert low == pytest.approx(max(x.min(), -wanted), abs=width)
    assert high == pytest.approx(min(x.max(), wanted), abs=width)


@pytest.mark.parametrize("quantile", [0.0, -1.0, 1.5, float("nan")])
def test_a_quantile_is_a_share(quantile: float) -> None:
    with pytest.raises(InvalidArgument, match="above 0 and up to 1"):
        Legacy(quantile=quantile)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_contract_asks(kind: Callable[[], Calibrator]) -> None:
    one = kind()
    for _ in ranges.observing(one):
        pass
    ranges.judge({name: tuple(map(float, r)) for name, r in one.ranges().items()})


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_batches_change_nothing(kind: Callable[[], Calibrator]) -> None:
    x = np.concatenate([DISTRIBUTIONS["laplace"] * 1e-3, DISTRIBUTIONS["cauchy"]])
    first = seen(kind(), x, 1)
    assert first == seen(kind(), x[::-1], 1) == seen(kind(), RNG.permutation(x), 61)
