"""AffineGrid of a known size on a processor: sums of rows and columns, which pointwise kernels
compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate_shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, literal, var
from tactix_ops.layers.sampling import coordinates

T = P.tactix


def _when(root: Node) -> bool:
    known = root.outputs[0].spec.shape[1:]
    sizes = all(isinstance(d, int) and d > 0 for d in known)
    return sizes and root.given[0].spec.dtype in (DType.FP32, DType.FP16, DType.BF16)


def _sizes(root: Node) -> tuple[int, ...]:
    return evaluate_shape(root.outputs[0].spec.shape[1:-1], {})


def _sums(root: Node, theta: Value, size: Value) -> Op:
    """Each coordinate is an image, plane by plane; coordinates are put last at the end."""
    (batch, *_), sizes = theta.spec.shape, _sizes(root)
    n, dtype = len(sizes), theta.spec.dtype
    wide = theta if dtype is DType.FP32 else T.Cast(theta, to=DType.FP32)

    def factor(i: int) -> Op:
        column = T.Slice(wide, begins=(i,), sizes=(1,), axes=(2,), steps=(1,))
        return T.Reshape(column, shape=(batch, n, *(1,) * n))

    total = factor(n)
    for i in range(n):  # theta's first factor is that of the last axis
        axis = n - 1 - i
        shape = tuple(sizes[axis] if k == axis else 1 for k in range(n))
        places = coordinates(sizes[axis], root.attrs.align_corners).astype(np.float32)
        total = T.Add(T.Mul(factor(i), literal(places.reshape(shape))), total)
    y = T.Transpose(total, perm=(0, *range(2, n + 2), 1))
    return y if dtype is DType.FP32 else T.Cast(y, to=dtype)


def _example(net: Any) -> None:
    size = net.add_constant(np.array([2, 1, 5, 4], np.int64))
    theta = net.add_input("theta", "f32", [2, 2, 3])
    net.mark_output(net.add_layer("tactix.AffineGrid", [theta, size])[0], "y")


RULES = (
    Rule(
        "tactix.affine_grid_as_sums",
        T.AffineGrid(var("theta"), var("size")),
        _sums,
        _when,
        benefit=30,
        numerics="reassociates",
        device="cpu",
        example=_example,
    ),
)
