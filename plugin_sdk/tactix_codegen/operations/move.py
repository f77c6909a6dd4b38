"""Layers that move elements, as copies: reshape, transpose, concatenate, split, slice, roll,
expand, pad, tile, channels to pixels.

Any dtype of 1, 2, 4 or 8 bytes. Concat, Split, Slice, Roll, Pad and DepthToSpace also work on nhwc
and ``cB`` storage where no block of channels is torn apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, Format, TensorSpec
from tactix.contracts.graph import Node, Value
from tactix.contracts.tactic import Reject, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.copy import Copy, bits, fill, movable

_AXIS_WISE = ("Concat", "Split", "Slice", "Roll", "Pad", "DepthToSpace")
"""Layers that also work on nhwc and blocked storage."""

KINDS = tuple(
    f"tactix.{name}@1" for name in ("Reshape", "Transpose", "Expand", "Tile", *_AXIS_WISE)
)
"""Kinds of nodes that ``copies`` takes."""


def variants(node: Node, beside: Sequence[Format], language: str) -> Sequence[Variant] | Reject:
    """One for each format in which copies make the outputs, which all tensors of the node share; or
    why there is none.

    ``beside``: formats beside the linear one, for layers that keep to an axis; ``language``: of the
    kernels.
    """
    if node.is_fused:
        return Reject("elements are moved, not computed: no epilogue")
    if not movable(node.given[0].spec.dtype):
        return Reject(f"no elements of {node.given[0].spec.dtype.value} in {language}")
    axis_wise = node.layer.name in _AXIS_WISE and node.outputs[0].spec.rank > 2
    found, reason = [], ""
    for f in (LINEAR, *beside) if axis_wise else (LINEAR,):
        try:
            copies(node, f)
        except ShapeError as e:
            reason = reason or e.what
        else:
            found.append(Variant.of([f] * len(node.given), [f] * len(node.outputs)))
    return found or Reject(reason)


def copies(node: Node, fmt: Format) -> list[Copy]:
    """The copies that make the outputs. Raises ShapeError where the format or the symbols do not
    allow it.
    """
    return _MOVES[node.layer.name](node, fmt)


def _reshape(node: Node, fmt: Format) -> list[Copy]:
    n = node.outputs[0].spec.numel
    return [Copy(0, 0, (n,), (1,), (1,))]


def _transpose(node: Node, fmt: Format) -> list[Copy]:
    out = node.outputs[0].spec.shape
    strides = c_text.contiguous_strides(node.given[0].spec.shape)
    order = tuple(strides[axis] for axis in node.attrs.perm)
    return [Copy(0, 0, out, order, c_text.contiguous_strides(out))]


def _expand(node: Node, fmt: Format) -> list[Copy]:
    out = node.outputs[0].spec.shape
    strides = c_text.running_strides(node.given[0].spec.shape, out)
    return [Copy(0, 0, out, strides, c_text.contiguous_strides(out))]


def _tile(node: Node, fmt: Format) -> list[Copy]:
    shape = node.given[0].spec.shape
    sizes: list[Dim] = []
    source: list[Dim] = []
    for repeat, size, stride in zip(
        node.attrs.repeats, shape, c_text.contiguous_strides(shape), strict=True
    ):
        sizes += [repeat, size]
        source += [0, stride]
    return [Copy(0, 0, tuple(sizes), tuple(source), c_text.contiguous_strides(sizes))]


def storage_axis(fmt: Format, axis: int, rank: int) -> int:
    """Where an axis of a tensor stands among those of its storage."""
    if fmt.name != "nhwc":
        return axis
    return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _storage(spec: TensorSpec, fmt: Format) -> Shape:
    return fmt.storage_shape(spec.shape)


def _whole_blocks(fmt: Format, channels: Sequence[Dim], what: str) -> None:
    """Raises ShapeError unless every number of channels fills blocks."""
    if fmt.lanes > 1 and any(dims.mod(c, fmt.lanes) != 0 for c in channels):
        raise ShapeError(f"{what} tears blocks of {fmt.lanes} channels apart")


def _in_blocks(fmt: Format, axis: int, size: Dim) -> Dim:
    """A number of channels as a number of blocks."""
    return dims.floordiv(size, fmt.lanes) if fmt.lanes > 1 and axis == 1 else size


def _concat(node: Node, fmt: Format) -> list[Copy]:
    rank = node.outputs[0].spec.rank
    axis = node.attrs.axis % rank
    if axis == 1:
        _whole_blocks(fmt, [v.spec.shape[1] for v in node.given], "concatenating")
    whole = c_text.contiguous_strides(_storage(node.outputs[0].spec, fmt))
    parts = _parts(node.given, fmt, storage_axis(fmt, axis, rank), whole)
    return [Copy(i, 0, shape, own, whole, 0, begin) for i, (shape, own, begin) in enumerate(parts)]


def _split(node: Node, fmt: Format) -> list[Copy]:
    rank = node.given[0].spec.rank
    axis = node.attrs.axis % rank
    if axis == 1:
        _whole_blocks(fmt, node.attrs.sizes, "splitting")
    whole = c_text.contiguous_strides(_storage(node.given[0].spec, fmt))
    parts = _parts(node.outputs, fmt, storage_axis(fmt, axis, rank), whole)
    return [Copy(0, j, shape, whole, own, begin) for j, (shape, own, begin) in enumerate(parts)]


def _parts(
    values: Sequence[Value], fmt: Format, place: int, whole: Sequence[Dim]
) -> list[tuple[Shape, tuple[Dim, ...], Dim]]:
    """Storage shape and strides of each part along storage axis ``place``, and where it begins in
    the whole.
    """
    out = []
    begin: Dim = 0
    for v in values:
        shape = _storage(v.spec, fmt)
        out.append((shape, c_text.contiguous_strides(shape), begin * whole[place]))
        begin = begin + shape[place]
    return out


def _slice(node: Node, fmt: Format) -> list[Copy]:
    a, rank = node.attrs, node.given[0].spec.rank
    source = list(c_text.contiguous_strides(_storage(node.given[0].spec, fmt)))
    offset: Dim = 0
    for begin, axis, step in zip(a.begins, a.axes, a.steps, strict=True):
        axis = axis % rank
        if axis == 1 and fmt.lanes > 1:
            _whole_blocks(fmt, [begin, node.outputs[0].spec.shape[1]], "slicing")
            if step != 1:
                raise ShapeError("a step over channels tears blocks apart")
        place = storage_axis(fmt, axis, rank)
        offset = offset + _in_blocks(fmt, axis, begin) * source[place]
        source[place] = source[place] * step
    out = _storage(node.outputs[0].spec, fmt)
    return [Copy(0, 0, out, tuple(source), c_text.contiguous_strides(out), offset)]


def _roll(node: Node, fmt: Format) -> list[Copy]:
    """Both parts of every rolled axis, beside both of every other."""
    a, spec = node.attrs, node.given[0].spec
    shape = _storage(spec, fmt)
    strides = c_text.contiguous_strides(shape)
    parts = [Copy(0, 0, shape, strides, strides)]
    for begin, axis in zip(a.begins, a.axes, strict=True):
        axis = axis % spec.rank
        if axis == 1 and fmt.lanes > 1:
            raise ShapeError("rolling channels tears blocks apart")
        place = storage_axis(fmt, axis, spec.rank)
        parts = [half for part in parts for half in _halves(part, place, begin)]
    return [c for c in parts if 0 not in c.sizes]


def _halves(whole: Copy, place: int, begin: Dim) -> tuple[Copy, Copy]:
    """What is read from ``begin`` on along one loop and comes first, and what is before it."""
    size, stride = whole.sizes[place], whole.source_strides[place]
    rest = size - begin

    def part(length: Dim, source: Dim, target: Dim) -> Copy:
        return replace(
            whole,
            sizes=(*whole.sizes[:place], length, *whole.sizes[place + 1 :]),
            source_offset=whole.source_offset + source * stride,
            target_offset=whole.target_offset + target * stride,
        )

    return part(rest, begin, 0), part(begin, 0, rest)


def _depth_to_space(node: Node, fmt: Format) -> list[Copy]:
    """One copy over what is read in the order of what is written."""
    source, target, blocks = node.given[0].spec, node.outputs[0].spec, node.attrs.blocks
    _whole_blocks(fmt, [target.shape[1]], "taking channels as pixels")
    rank, strides = source.rank, c_text.contiguous_strides(_storage(source, fmt))
    depth, at = _in_blocks(fmt, 1, target.shape[1]), storage_axis(fmt, 1, rank)
    apart = [depth * strides[at] * math.prod(blocks[k + 1 :]) for k in range(len(blocks))]
    sizes, order = [*_storage(target, fmt)], [*strides]
    sizes[at] = depth
    for k, block in enumerate(blocks):
        place = storage_axis(fmt, 2 + k, rank) + k
        sizes[place : place + 1] = [source.shape[2 + k], block]
        order[place : place + 1] = [order[place], apart[k]]
    return [Copy(0, 0, tuple(sizes), tuple(order), c_text.contiguous_strides(sizes))]


def _pad(node: Node, fmt: Format) -> list[Copy]:
    """The inside, then for each axis the slabs on both sides: over the inside of earlier axes, all
    of later ones.
    """
    spec, out, pads = node.given[0].spec, node.outputs[0].spec, node.attrs.pads
    if node.attrs.mode != "constant":
        raise ShapeError(f"no padding of mode {node.attrs.mode} in C")
    if fmt.lanes > 1:
        exact = dims.mod(spec.shape[1], fmt.lanes) == 0
        _whole_blocks(fmt, [pads[1], pads[spec.rank + 1]], "padding")
        if not exact and (node.attrs.value != 0 or pads[1] != 0 or pads[spec.rank + 1] != 0):
            raise ShapeError("padding would fill unused lanes")
    before, after, shape, full = _pads_in_storage(node, fmt)
    own, target = c_text.contiguous_strides(_storage(spec, fmt)), c_text.contiguous_strides(full)
    cut = [dims.dmax(-b, 0) for b in before]
    grown, inside, tail = zip(*map(_along, shape, before, after), strict=True)
    start = sum((g * t for g, t in zip(grown, target, strict=True)), 0)
    source = sum((c * s for c, s in zip(cut, own, strict=True)), 0)
    parts = [Copy(0, 0, tuple(inside), own, target, source, start)]
    value = bits(node.attrs.value, out.dtype)
    for k in range(len(full)):
        lead = sum((grown[i] * target[i] for i in range(k)), 0)
        sizes = [*inside[:k], grown[k], *full[k + 1 :]]
        parts.append(fill(0, sizes, target, lead, value))
        sizes = [*inside[:k], tail[k], *full[k + 1 :]]
        parts.append(fill(0, sizes, target, lead + (grown[k] + inside[k]) * target[k], value))
    return [c for c in parts if 0 not in c.sizes]


def _along(size: Dim, before: Dim, after: Dim) -> tuple[Dim, Dim, Dim]:
    """Of an axis of the output: elements before the input's, the input's, and behind. Cuts may
    reach past the input.
    """
    if all(dims.compare(p, 0) in ("==", ">", ">=") for p in (before, after)):
        return before, size, after
    full = size + before + after
    grown = dims.dmin(dims.dmax(before, 0), full)
    inside = dims.dmax(size + dims.dmin(before, 0) + dims.dmin(after, 0), 0)
    return grown, inside, full - grown - inside


def _pads_in_storage(node: Node, fmt: Format) -> tuple[list[Dim], list[Dim], Shape, Shape]:
    """Pads before and after each storage axis, the input's and the output's storage shape."""
    spec, pads, rank = node.given[0].spec, node.attrs.pads, node.given[0].spec.rank
    if any(dims.compare(p, 0) is None for p in pads):
        raise ShapeError("whether a pad is negative is not known before running")
    shape, full = _storage(spec, fmt), _storage(node.outputs[0].spec, fmt)
    before: list[Dim] = [0] * len(full)
    after: list[Dim] = [0] * len(full)
    for axis in range(rank):
        place = storage_axis(fmt, axis, rank)
        before[place] = _in_blocks(fmt, axis, pads[axis])
        after[place] = _in_blocks(fmt, axis, pads[rank + axis])
    return before, after, shape, full


_MOVES: dict[str, Callable[[Any, Format], list[Copy]]] = {
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Roll": _roll,
    "DepthToSpace": _depth_to_space,
    "Pad": _pad,
    "BitCast": _reshape,
}
