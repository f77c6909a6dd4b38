"""How many operations products take, a multiply-add being two: what ``Layer.operations`` counts."""

from __future__ import annotations

from tactix.base.dims import Dim, prod
from tactix.base.tensor import TensorSpec
from tactix_ops.layers.common import Specs


def product(inputs: Specs, outputs: list[TensorSpec], axis: int = -1) -> Dim:
    """Of matrices: for each output element and element of the axis of the first that is summed."""
    (a, *_), (y, *_) = inputs, outputs
    return 0 if a is None else 2 * y.numel * a.shape[axis]


def convolution(inputs: Specs, outputs: list[TensorSpec]) -> Dim:
    """Weights are (out, in / group, *kernel); the padding counts, as if it were data."""
    w = inputs[1]
    return 0 if w is None else 2 * outputs[0].numel * prod(w.shape[1:])


def spread(inputs: Specs) -> Dim:
    """Of a transposed convolution: weights are (in, out / group, *kernel)."""
    x, w, *_ = inputs
    return 0 if x is None or w is None else 2 * x.numel * prod(w.shape[1:])


def recurrence(inputs: Specs) -> Dim:
    """Both weights, (directions, gates * hidden, size), for every time step of every sequence."""
    x, w, r, *_ = inputs
    if x is None or w is None or r is None:
        return 0
    return 2 * x.shape[0] * x.shape[1] * (w.numel + r.numel)


def attention(rows: Dim, keys: Dim, dim: Dim, value_dim: Dim) -> Dim:
    """Of rows of all queries with so many keys, then with as many values."""
    return 2 * rows * keys * (dim + value_dim)
