"""MaxUnpool: where the places of elements count; Col2Im: the geometry of its blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text


@dataclass(frozen=True)
class UnpoolWork:
    """``small``: the shape in which places count."""

    node: Node
    small: Shape


def unpool_of(node: Node) -> UnpoolWork | Reject:
    """What a MaxUnpool does, of elements of a known width."""
    x, places = (v.spec for v in node.given[:2])
    if node.is_fused:
        return Reject("no layers around it are fused by this tactic")
    if not c_copy.movable(x.dtype) or not places.dtype.is_int:
        return Reject(f"no unpooling of {x.dtype.value} to places of {places.dtype.value}")
    return UnpoolWork(node, _smallest(node))


def _smallest(node: Node) -> Shape:
    """The shape of the smallest result that the windows fit."""
    a, shape = node.attrs, node.given[0].spec.shape
    n = len(a.kernel_shape)
    strides, pads = a.strides or (1,) * n, a.pads or (0,) * 2 * n
    sizes = (
        (shape[2 + i] - 1) * strides[i] + a.kernel_shape[i] - pads[i] - pads[n + i]
        for i in range(n)
    )
    return (*shape[:2], *sizes)


@dataclass(frozen=True)
class ColumnAxis:
    """One axis of the image: ``out`` windows, of which ``taps`` elements go back into ``size``."""

    size: Dim
    out: Dim
    taps: int
    stride: int
    dilation: int
    before: int


@dataclass(frozen=True)
class ColumnsWork:
    """Columns of windows, and the axes of the image that they are put back into."""

    node: Node
    axes: tuple[ColumnAxis, ...]


def columns_of(node: Node) -> ColumnsWork | Reject:
    """What a Col2Im does, of numbers and known blocks."""
    x = node.given[0].spec
    if node.is_fused:
        return Reject("no layers around it are fused by this tactic")
    if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
        return Reject(f"no columns of {x.dtype.value} in C or CUDA")
    axes = _column_axes(node)
    return axes if isinstance(axes, Reject) else ColumnsWork(node, axes)


def _column_axes(node: Node) -> tuple[ColumnAxis, ...] | Reject:
    """The axes of a Col2Im's image, whose windows are as many as there are columns."""
    taps = node.given[2].spec.known()
    if taps is None or not all(isinstance(t, int) for t in taps):
        return Reject("the block is not known")
    a, n, sizes = node.attrs, len(taps), node.outputs[0].spec.shape[2:]
    strides, dilations = a.strides or (1,) * n, a.dilations or (1,) * n
    pads, axes = a.pads or (0,) * 2 * n, []
    for i, size in enumerate(sizes):
        each = int(taps[i])  # type: ignore[arg-type]
        room = size + pads[i] + pads[n + i] - dilations[i] * (each - 1) - 1
        out = dims.floordiv(room, strides[i]) + 1
        axes.append(ColumnAxis(size, out, each, strides[i], dilations[i], pads[i]))
    return tuple(axes)
