"""Max and average pooling: the geometry of the windows."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.contracts.graph import Node

KINDS = ("tactix.MaxPool@1", "tactix.AveragePool@1")
"""Kinds of nodes whose anchor pools."""


@dataclass(frozen=True)
class PoolWindow:
    """Geometry along the spatial axes; ``before``, ``after``: pads.

    ``average``: of the elements, not the largest; pads count if ``with_pads``.
    """

    size: tuple[Dim, ...]
    out: tuple[Dim, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    average: bool
    with_pads: bool

    @property
    def rank(self) -> int:
        return len(self.kernel)


def window_of(node: Node) -> PoolWindow:
    """The geometry of a node whose anchor pools."""
    assert node.anchor is not None
    a, n = node.anchor.attrs, len(node.anchor.attrs.kernel_shape)
    pads = tuple(a.pads) or (0,) * 2 * n
    shape = node.specs[node.body.arity].shape
    average = node.anchor.layer.name == "AveragePool"
    return PoolWindow(
        node.given[0].spec.shape[2:],
        shape[2:],
        tuple(a.kernel_shape),
        tuple(a.strides) or (1,) * n,
        tuple(a.dilations) or (1,) * n,
        pads[:n],
        pads[n:],
        average,
        average and a.count_include_pad,
    )
