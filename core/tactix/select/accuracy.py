"""The accuracy gate: how far a kernel's outputs may depart from what the network means.

An output is right if it is close to the node's reference, which rounds wherever the network has a
16-bit value: within

    BUDGET[dtype] * max |reference|                                                     (1)

A kernel of several layers need not round there. It computes in float32 and may keep that, or it
rounds; each rounding on the way to an output that is done or left out moves it, more where the
layers behind amplify it. What fails (1) is therefore judged, element by element, against a second
run of the layers, in float64, that rounds only where every kernel must (``region.observed``):

    | got[i] - exact[i] |  <=  BUDGET[dtype] * max |exact| + error[i]                   (2)

where the maximum is that of elements which are certain within their own budget. ``error`` is a
running error bound (Wilkinson; Higham, Accuracy and Stability of Numerical Algorithms, 3.3): each
layer makes one of its own, and hands on those of its inputs. A layer's own is

    0                                   where it only moves, chooses, compares or counts
    ULPS * 2^-24 * |x|, |y|             in each input and in the result, of arithmetic in float32
                                        (2^-53: in float64)
    u |y|                               for each 16-bit result that may be rounded; u: half the gap
                                        above 1
    u |y| + BUDGET[float32] * max |y|   more, for functions in 16 bits, which approximations as
                                        coarse may compute
    (BUDGET[float32] + 2u) * max |y|    of an anchor, whose sums may be taken in any order; u = 0
                                        unless it has 16 bits

Errors are handed on by computing the layer at the corners of what its inputs may be: so
conditioning counts, as in ``Sin(Tan(x))``, and so does a jump: where ``Floor``, a comparison or a
rounding that must be done lies within the error of its argument, either side is right, and nowhere
else. Outputs without a budget (integers, truth values) must be equal but for such errors. A wider
output of a 16-bit value must be a number of that type, bit for bit.

What is no number must be none, and an infinity the same, unless a corner has something else there:
the root of what may be negative, the reciprocal of what may be 0. Inside, a value too large for its
type may overflow or not; an output that is too large for its type must be infinite.

The second run (``error_bounds.py``) is made once for a node, and only if a candidate failed (1).

What layers draw at random in each run (``Layer.draws``) is compared by the distribution of its
elements alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tactix.base.dtypes import DType

GATE = 3
"""Goes up when ``departure`` means something else: what timing caches say of errors is not believed
then.
"""

BUDGET = {
    DType.FP64: 1e-10, DType.FP32: 2e-5, DType.FP16: 4e-3, DType.BF16: 3e-2,
    DType.FP8: 2e-1, DType.FP8FNUZ: 2e-1, DType.FP8E5M2: 4e-1, DType.FP8E5M2FNUZ: 4e-1,
}  # fmt: skip
"""Largest difference relative to the reference's largest magnitude (at least 1e-3). Other dtypes
must be equal.
"""

_HALF = BUDGET[DType.FP16] / BUDGET[DType.FP32]
_BYTES = 2e-2 / BUDGET[DType.FP32]
GRANTED = {"tf32": _HALF, "short_sums": _HALF, "int8_activations": _BYTES}
"""Budgets that a tactic's kind of numerics grants, one if it is not here: tf32 has the mantissa of
float16, and short sums have more.

Activations in int8 are off by up to 1/254 of the largest of their block, evenly, so by 1/440 on
the average (1/254 by sqrt(3)). The largest of 32 to 256 normal numbers is 2.1 to 2.8 times their
deviation. Errors of random signs add up as the products do, so that the error of a sum of however
many is 0.005 to 0.0064 of the sums' deviation. The largest of many errors stands to the largest
of as many sums alike; 0.02 is three to four times that, for few sums of which all may be small.
"""

LEAST = 1e-3
"""Magnitude that the reference is taken to have at least."""

PART = 1 << 16
"""Elements that are compared at a time: what is computed of them stays in a core's cache."""

DISTANCE = 3.0
"""Of the distributions of two samples of n and m elements, in units of sqrt(1/n + 1/m). Samples of
one distribution are farther apart with a probability of 2 exp(-2 DISTANCE^2), one in 33 million
(Smirnov, 1939).
"""


def departure(got: Any, want: Any, dtype: DType) -> float:
    """The largest difference in units of the budget: at most 1 passes. Not finite where the
    reference is: infinite.
    """
    import numpy as np

    if got.shape != want.shape:
        return float("inf")
    if dtype not in BUDGET:
        return 0.0 if np.array_equal(got, want) else float("inf")
    wide: Any = np.float32 if dtype.bits <= 16 else np.float64
    worst, largest = _extremes(got, want, wide)
    if not math.isfinite(worst):
        a, b = np.asarray(got, wide), np.asarray(want, wide)
        finite = np.isfinite(b)
        if any(not np.array_equal(f(a), f(b)) for f in (np.isnan, np.isposinf, np.isfinite)):
            return float("inf")
        worst, largest = _extremes(a[finite], b[finite], wide)
    return worst / (BUDGET[dtype] * max(largest, LEAST))


def _extremes(got: Any, want: Any, wide: Any) -> tuple[float, float]:
    """The largest difference and the largest magnitude of ``want``, computed in a dtype; NaN where
    any is.
    """
    import numpy as np

    found = [(0.0, 0.0)]
    with np.errstate(all="ignore"):
        for part in _parts(got.shape):
            a, b = np.asarray(got[part], wide), np.asarray(want[part], wide)
            found.append((np.abs(a - b).max(initial=0), np.abs(b).max(initial=0)))
        worst, largest = np.max(found, axis=0)
    return float(worst), float(largest)


def _parts(shape: Sequence[int]) -> Iterator[tuple[int | slice, ...]]:
    """Indices of an array that take it apart into runs along one axis, of PART elements where that
    axis allows.
    """
    if not shape:
        yield ()
        return
    axis = next(i for i in range(len(shape)) if math.prod(shape[i + 1 :]) <= PART)
    step = max(1, PART // max(1, math.prod(shape[axis + 1 :])))
    for lead in product(*(range(size) for size in shape[:axis])):
        for i in range(0, shape[axis], step):
            yield (*lead, slice(i, i + step))


def drawn_departure(got: Any, want: Any) -> float:
    """As ``departure``, of two draws: the largest distance between the distributions of their
    elements (Kolmogorov, Smirnov), in units of DISTANCE.
    """
    import numpy as np

    if got.shape[1:] != want.shape[1:]:
        return float("inf")
    a, b = (np.sort(np.asarray(x, np.float64), axis=None) for x in (got, want))
    if not a.size or not b.size:
        return 0.0 if a.size == b.size else float("inf")
    found = np.concatenate([a, b])
    below = [np.searchsorted(x, found, side="right") / x.size for x in (a, b)]
    distance = float(np.abs(below[0] - below[1]).max())
    return distance / (DISTANCE * math.sqrt(1 / a.size + 1 / b.size))
