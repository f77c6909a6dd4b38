"""The geometry of a convolution, as kernels for any device see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tactix.base.dims import Dim, Shape, prod
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import anchor_spec


@dataclass(frozen=True)
class DepthAxis:
    """The first of three spatial axes: ``size`` of the input, ``out`` of the output; its taps, and
    pads before and behind.
    """

    size: Dim = 1
    out: Dim = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    pad_behind: int = 0


FLAT = DepthAxis()
"""That of a convolution over fewer axes."""


@dataclass(frozen=True)
class ConvolutionGeometry:
    """A convolution over two spatial axes; one axis gets a first one of size 1, and the first of
    three is ``depth``.

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
    depth: DepthAxis

    @property
    def has_depth(self) -> bool:
        """Whether there are three axes."""
        return self.depth != FLAT

    @property
    def spatial(self) -> Shape:
        """The axes of the output."""
        return (self.depth.out, *self.out) if self.has_depth else self.out

    @property
    def taps(self) -> int:
        """Of rows and columns."""
        return self.kernel[0] * self.kernel[1]

    @property
    def all_taps(self) -> int:
        """Of all axes."""
        return self.depth.kernel * self.taps

    @property
    def has_pointwise_planes(self) -> bool:
        """Whether rows and columns of every output pixel are those of the pixels it is made of."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.pads)

    @property
    def is_pointwise(self) -> bool:
        """Whether every output pixel is made of the one input pixel at its place."""
        d = self.depth
        return self.has_pointwise_planes and d.kernel == d.stride == 1 and d.pad == 0

    def across_slices(self) -> Self:
        """The same over two axes, the depth and the pixels of a slice, where
        ``has_pointwise_planes``.
        """
        d = self.depth
        return replace(
            self,
            size=(d.size, prod(self.size)),
            out=(d.out, prod(self.out)),
            kernel=(d.kernel, 1),
            strides=(d.stride, 1),
            dilations=(d.dilation, 1),
            pads=(d.pad, 0, d.pad_behind, 0),
            depth=FLAT,
        )


def geometry(node: Node, axes: tuple[int, ...] = (1, 2)) -> ConvolutionGeometry | Reject:
    """Of a node whose anchor is a convolution with constant weights; or why kernels cannot.

    ``axes``: numbers of spatial axes that the kernels take. Where layers stand before the anchor,
    ``x`` is the id of what they make, and no given input.
    """
    anchor = node.anchor
    assert anchor is not None
    inputs = (*anchor.inputs, -1)
    x, w = (node.specs[i] for i in inputs[:2])
    a, rank, y = anchor.attrs, x.rank - 2, anchor_spec(node)
    if rank not in axes or not w.is_const:
        most = "one or two" if 3 not in axes else "up to three"
        return Reject(f"these kernels take {most} spatial axes and constant weights")
    pads: Any = tuple(a.pads) or (0,) * 2 * rank
    channels = x.shape[1]
    if not all(isinstance(p, int) and p >= 0 for p in pads) or not isinstance(channels, int):
        return Reject("pads are negative, or they or the channels are not known")
    if any(d == 0 for d in (*x.shape, *w.shape, *y.shape)):
        return Reject("a tensor is empty")

    def two(values: Sequence[Any]) -> Any:
        return (*(1,) * (2 - rank), *(values or (1,) * rank)[-2:])

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
        (0, pads[0], 0, pads[1]) if rank == 1 else (*pads[rank - 2 : rank], *pads[-2:]),
        _depth_axis(node),
    )


def _depth_axis(node: Node) -> DepthAxis:
    """Of a node with constant weights."""
    anchor = node.anchor
    assert anchor is not None
    x, w = (node.specs[i] for i in anchor.inputs[:2])
    a, ones = anchor.attrs, (1,) * 3
    if x.rank != 5:
        return FLAT
    return DepthAxis(
        x.shape[2],
        anchor_spec(node).shape[2],
        int(w.const.shape[2]),
        (a.strides or ones)[0],
        (a.dilations or ones)[0],
        *(tuple(a.pads) or (0,) * 6)[::3],
    )
