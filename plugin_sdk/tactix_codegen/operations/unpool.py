"""MaxUnpool: where the places of elements count."""

from __future__ import annotations

from tactix.base.dims import Shape
from tactix.contracts.graph import Node


def smallest(node: Node) -> Shape:
    """The shape of the smallest result that the windows fit."""
    a, shape = node.attrs, node.given[0].spec.shape
    n = len(a.kernel_shape)
    strides, pads = a.strides or (1,) * n, a.pads or (0,) * 2 * n
    sizes = (
        (shape[2 + i] - 1) * strides[i] + a.kernel_shape[i] - pads[i] - pads[n + i]
        for i in range(n)
    )
    return (*shape[:2], *sizes)
