"""The axes of a Resize: which elements each result is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tactix.base import dims
from tactix.base.arrays import Array
from tactix.base.dims import Dim
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.operations.resize import TAPS
from tactix_ops.layers.dynamic_resize import DynamicResizeAttrs
from tactix_ops.layers.resize import Axis, ResizeAttrs, axis_weights

WHOLE = (0.0, 1.0)
"""The region of interest of an axis that is not cropped."""


@dataclass(frozen=True)
class TableTaps:
    """Result ``i`` is the sum of ``weights[k, i]`` times element ``first[i] + k``, over k.

    ``beyond``: which results lie outside the input, where that counts.
    """

    axis: int
    first: Array
    weights: Array
    beyond: Array

    @property
    def count(self) -> int:
        return len(self.weights)


@dataclass(frozen=True)
class ComputedTaps:
    """The same for sizes that only running tells. ``scale`` None: their quotient. ``place``: of the
    axis in tensors that tell more, else -1. ``widens``: with antialias, where ``count`` is the most
    that results may be made of.
    """

    axis: int
    count: Dim
    size: Dim
    out: Dim
    scale: float | None
    region: tuple[float, float]
    place: int = -1
    widens: bool = False


@dataclass(frozen=True)
class AxisGroup:
    """One axis that is resized, or neighbours that are not, as one: ``size`` elements of the input
    become ``out``.
    """

    size: Dim
    out: Dim
    taps: TableTaps | ComputedTaps | None = None


def axes_of(node: Node) -> tuple[AxisGroup, ...] | Reject:
    """The axes of a Resize, outermost first."""
    made = []
    for axis, size in enumerate(node.given[0].spec.shape):
        group = _group(node.attrs, axis, size)
        if isinstance(group, Reject):
            return group
        made.append(group)
    return tuple(made)


def joined(groups: Sequence[AxisGroup]) -> tuple[AxisGroup, ...]:
    """Neighbours that keep their size as one."""
    found: list[AxisGroup] = []
    for made in groups:
        if made.taps is None and found and found[-1].taps is None:
            last = found.pop()
            made = AxisGroup(last.size * made.size, last.out * made.out)
        found.append(made)
    return tuple(found)


def _group(attrs: ResizeAttrs, axis: int, size: Dim) -> AxisGroup | Reject:
    out, rank = attrs.sizes[axis], len(attrs.sizes)
    scale = attrs.scales[axis] if attrs.scales else None
    region = (attrs.roi[axis], attrs.roi[rank + axis]) if attrs.roi else WHOLE
    if size == out and scale in (None, 1.0) and region == WHOLE:
        return AxisGroup(size, out)
    if isinstance(size, int) and isinstance(out, int):
        if not size or not out:
            return Reject(f"axis {axis} is resized, and is empty")
        own = out / size if scale is None else scale
        return AxisGroup(size, out, _known(attrs, axis, Axis(size, out, own, *region)))
    taps = ComputedTaps(axis, TAPS[attrs.mode], size, out, scale, region)
    return AxisGroup(size, out, widened(taps, attrs.mode) if widens(attrs) else taps)


def widens(attrs: ResizeAttrs | DynamicResizeAttrs) -> bool:
    """Whether results are made of more elements where an axis shrinks."""
    return attrs.antialias and attrs.mode != "nearest"


def widened(taps: ComputedTaps, mode: str, most: int = 1) -> ComputedTaps:
    """With antialias, where ``most * size / out`` elements or fewer become a result."""
    count: Dim
    if taps.scale is not None:
        count = 2 * math.ceil(TAPS[mode] / 2 / min(1.0, taps.scale))
    else:
        count = TAPS[mode] * dims.ceildiv(taps.size * most, dims.dmax(taps.out, 1)) + 2
    return replace(taps, count=count, widens=True)


def _known(attrs: ResizeAttrs, axis: int, a: Axis) -> TableTaps:
    """Rows of the weights' matrix cut down to the elements that count, as many for each."""
    full, beyond = axis_weights(attrs, a)
    used = full != 0
    begin = used.argmax(axis=1)
    count = int((a.size - used[:, ::-1].argmax(axis=1) - begin).max())
    first = np.minimum(begin, a.size - count)
    places = first + np.arange(count)[:, None]
    weights = full[np.arange(a.out), places]
    beyond &= attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    return TableTaps(axis, first.astype(np.int32), weights, beyond)


def repeats(group: AxisGroup) -> int:
    """How often each element of the axis comes in a row, if every one comes as often, else 0."""
    taps, size, out = group.taps, group.size, group.out
    if not isinstance(taps, TableTaps) or not isinstance(size, int) or not isinstance(out, int):
        return 0
    if out % size or taps.count != 1 or taps.beyond.any():
        return 0
    times = out // size
    return times if bool((taps.first == np.arange(out) // times).all()) else 0


def symbols_of(groups: tuple[AxisGroup, ...]) -> Iterator[ComputedTaps]:
    """Those whose tables the kernel makes."""
    return (g.taps for g in groups if isinstance(g.taps, ComputedTaps))


def never_short(group: AxisGroup) -> bool:
    """Whether the axis surely has as many elements as each result is made of: with antialias it is
    made of no more than there are.
    """
    taps = group.taps
    if not isinstance(taps, ComputedTaps) or taps.widens:
        return True
    return dims.compare(group.size, taps.count) in (">", ">=", "==")
