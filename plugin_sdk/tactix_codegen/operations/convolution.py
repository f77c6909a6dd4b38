"""The geometry of a convolution, as kernels for any device see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import anchor_spec


@dataclass(frozen=True)
class ConvolutionGeometry:
    """A convolution over two spatial axes; one axis gets a first one of size 1.

    ``x``, ``w``, ``bias``: given inputs, -1 for no bias. Sizes are (rows, columns); ``pads`` are
    top, left, bottom, right.
    """

    x: int
    w: int
    bias: int
    n: Dim
    c: int
    co: int
    group: int
    size: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether every output pixel is made of the one input pixel at its place."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.pads)


def geometry(node: Node) -> ConvolutionGeometry | Reject:
    """Of a node whose anchor is a convolution with constant weights; or why kernels cannot."""
    anchor = node.anchor
    assert anchor is not None
    inputs = (*anchor.inputs, -1)
    x, w = (node.given[i].spec for i in inputs[:2])
    a, rank, y = anchor.attrs, x.rank - 2, anchor_spec(node)
    if rank not in (1, 2) or not w.is_const:
        return Reject("these kernels take one or two spatial axes and constant weights")
    pads: Any = tuple(a.pads) or (0,) * 2 * rank
    channels = x.shape[1]
    if not all(isinstance(p, int) and p >= 0 for p in pads) or not isinstance(channels, int):
        return Reject("pads are negative, or they or the channels are not known")
    if any(d == 0 for d in (*x.shape, *w.shape, *y.shape)):
        return Reject("a tensor is empty")

    def two(values: Sequence[Any]) -> Any:
        return (*(1,) * (2 - rank), *(values or (1,) * rank))

    return ConvolutionGeometry(
        inputs[0],
        inputs[1],
        inputs[2],
        x.shape[0],
        channels,
        int(w.const.shape[0]),
        a.group,
        two(x.shape[2:]),
        two(y.shape[2:]),
        two(w.const.shape[2:]),
        two(a.strides),
        two(a.dilations),
        pads if rank == 2 else (0, pads[0], 0, pads[1]),
    )
