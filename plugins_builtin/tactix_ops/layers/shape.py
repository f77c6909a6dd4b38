"""Layers that move elements: reshape, transpose, join, cut, repeat. Known content moves along."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import (
    Dim,
    assume,
    broadcast_shapes,
    compare,
    floordiv,
    mod,
    prod,
    show,
    sym,
)
from tactix.base.dims import Shape as DimShape
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import (
    Array,
    Movement,
    Specs,
    axes_of,
    axis_of,
    no_less,
    required,
    same_dim,
)


@dataclass(frozen=True)
class ShapeAttrs:
    """``shape``: of the result."""

    shape: tuple[Dim, ...] = ()


class Reshape(Movement):
    """The same elements in the same row-major order under another shape, which is given in full."""

    key = "tactix.Reshape@1"
    Attrs = ShapeAttrs

    def shapes(self, attrs: ShapeAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        if compare(inputs[0].numel, prod(attrs.shape)) in ("<", ">"):
            raise ShapeError(f"{self.key}: {inputs[0]} has not the elements of {show(attrs.shape)}")
        assume(inputs[0].numel, "==", prod(attrs.shape))
        return [attrs.shape]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0].reshape(attrs.shape),)


@dataclass(frozen=True)
class DynamicReshapeAttrs:
    """``symbol``: the result's dims are called ``symbol_0``...; ``allowzero``: 0 means 0, not the
    input's dim.
    """

    symbol: str = "reshape"
    allowzero: bool = False


class DynamicReshape(Layer):
    """Reshape by a tensor whose content only running gives: -1 stands for the one dim that follows
    from the others.
    """

    key = "tactix.DynamicReshape@1"
    Attrs = DynamicReshapeAttrs

    def infer(self, attrs: DynamicReshapeAttrs, inputs: Specs) -> list[TensorSpec]:
        x, shape = required(self, inputs, 2)
        rank = shape.shape[0] if shape.rank == 1 else None
        if not isinstance(rank, int):
            raise ShapeError(f"{self.key}: the shape must be a vector of fixed length, not {shape}")
        return [TensorSpec(x.dtype, tuple(sym(f"{attrs.symbol}_{i}") for i in range(rank)))]

    def reference(self, attrs: DynamicReshapeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, target = inputs[0], [int(d) for d in inputs[1]]
        if not attrs.allowzero:
            target = [_kept(x, i) if d == 0 else d for i, d in enumerate(target)]
        if not _fits(x.size, target):
            what = f"{x.size} elements do not go into the shape {show(target)}"
            raise ShapeError(what, do="Give dims of as many elements, or one of them as -1")
        return (x.reshape(target),)

    def sample(self, attrs: DynamicReshapeAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, shape = found
        shape[...] = 1
        shape[:1] = x.size
        return [x, shape]


def _kept(x: Array, i: int) -> int:
    """The input's dim that a 0 stands for. Raises ShapeError."""
    if i >= x.ndim:
        what = f"a 0 in the shape stands for axis {i}, which a tensor of rank {x.ndim} has not"
        raise ShapeError(what, do="Give the size")
    return int(x.shape[i])


def _fits(size: int, target: Sequence[int]) -> bool:
    """Whether so many elements have that shape, in which one dim may be -1."""
    known = math.prod(d for d in target if d != -1)
    if min(target, default=0) < -1 or target.count(-1) > 1:
        return False
    return known == size if -1 not in target else known > 0 and size % known == 0


@dataclass(frozen=True)
class TransposeAttrs:
    """``perm``: which input axis each output axis is."""

    perm: tuple[int, ...] = ()


class Transpose(Movement):
    """Axes in another order."""

    key = "tactix.Transpose@1"
    Attrs = TransposeAttrs

    def shapes(self, attrs: TransposeAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        if sorted(attrs.perm) != list(range(x.rank)):
            raise ShapeError(f"{self.key}: {attrs.perm} is no order of the axes of {x}")
        return [tuple(x.shape[p] for p in attrs.perm)]

    def reference(self, attrs: TransposeAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0].transpose(attrs.perm),)


@dataclass(frozen=True)
class AxisAttrs:
    """``axis``: the one along which it works."""

    axis: int = 0


class Concat(Movement):
    """Tensors one after the other along ``axis``."""

    key = "tactix.Concat@1"
    Attrs = AxisAttrs

    def shapes(self, attrs: AxisAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        first = inputs[0]
        axis = axis_of(attrs.axis, first.rank, self.key)
        for s in inputs[1:]:
            if s.rank != first.rank:
                raise ShapeError(f"{self.key}: {first} and {s} differ in rank")
            if s.dtype is not first.dtype:
                raise DTypeError(f"{self.key}: {first} and {s} differ in dtype")
            for i, (a, b) in enumerate(zip(first.shape, s.shape, strict=True)):
                if i != axis:
                    same_dim(a, b, self.key, f"axis {i}")
        total: Dim = sum((s.shape[axis] for s in inputs), 0)
        return [(*first.shape[:axis], total, *first.shape[axis + 1 :])]

    def reference(self, attrs: AxisAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (np.concatenate(inputs, axis=attrs.axis),)


@dataclass(frozen=True)
class SplitAttrs:
    """``sizes``: of the parts along ``axis``."""

    axis: int = 0
    sizes: tuple[Dim, ...] = ()


class Split(Movement):
    """Consecutive parts along ``axis``, one output each."""

    key = "tactix.Split@1"
    Attrs = SplitAttrs

    def shapes(self, attrs: SplitAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        axis = axis_of(attrs.axis, x.rank, self.key)
        total: Dim = sum(attrs.sizes, 0)
        same_dim(x.shape[axis], total, self.key, f"axis {axis}, and the sum of the parts,")
        return [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in attrs.sizes]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return tuple(np.split(inputs[0], np.cumsum(attrs.sizes)[:-1], axis=attrs.axis))


@dataclass(frozen=True)
class SliceAttrs:
    """Along ``axes[i]``: ``sizes[i]`` elements, the first at ``begins[i]`` >= 0, each ``steps[i]``
    after the last.
    """

    begins: tuple[Dim, ...] = ()
    sizes: tuple[Dim, ...] = ()
    axes: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


class Slice(Movement):
    """A regular part of a tensor; steps may be negative."""

    key = "tactix.Slice@1"
    Attrs = SliceAttrs

    def shapes(self, attrs: SliceAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        if not len(attrs.begins) == len(attrs.sizes) == len(attrs.axes) == len(attrs.steps):
            raise InvalidArgument(f"{self.key}: begins, sizes, axes and steps differ in length")
        out, axes = list(x.shape), axes_of(attrs.axes, x.rank, self.key)
        for begin, size, axis, step in zip(
            attrs.begins, attrs.sizes, axes, attrs.steps, strict=True
        ):
            last = begin + (size - 1) * step
            ends = (begin, last) if step > 0 else (last, begin)
            empty = compare(size, 1) in ("<", "<=")
            if not empty and (
                compare(ends[0], 0) == "<" or compare(ends[1], x.shape[axis]) in (">", ">=", "==")
            ):
                raise ShapeError(
                    f"{self.key}: elements {ends[0]} to {ends[1]} of axis {axis} of {x}"
                )
            if isinstance(size, int) and size:
                assume(x.shape[axis], ">=", ends[1] + 1)
                assume(ends[0], ">=", 0)
            out[axis] = size
        return [tuple(out)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        where: list[slice] = [slice(None)] * inputs[0].ndim
        for begin, size, axis, step in zip(
            attrs.begins, attrs.sizes, attrs.axes, attrs.steps, strict=True
        ):
            stop = begin + (size - 1) * step + (1 if step > 0 else -1)
            where[axis] = slice(begin, stop if stop >= 0 else None, step) if size else slice(0, 0)
        return (inputs[0][tuple(where)],)


@dataclass(frozen=True)
class RollAttrs:
    """Along ``axes[i]``, none twice: the first element is the one at ``begins[i]``."""

    axes: tuple[int, ...] = ()
    begins: tuple[Dim, ...] = ()


class Roll(Movement):
    """Along some axes the elements from a place on, then those before it."""

    key = "tactix.Roll@1"
    Attrs = RollAttrs

    def shapes(self, attrs: RollAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        axes = axes_of(attrs.axes, x.rank, self.key)
        if len(axes) != len(attrs.begins) or len(set(axes)) < len(axes):
            raise InvalidArgument(f"{self.key}: axes {attrs.axes} and begins {attrs.begins}")
        for begin, axis in zip(attrs.begins, axes, strict=True):
            if compare(begin, 0) == "<" or compare(begin, x.shape[axis]) == ">":
                raise ShapeError(f"{self.key}: element {begin} of axis {axis} of {x}")
            assume(begin, ">=", 0)
            assume(x.shape[axis], ">=", begin)
        return [x.shape]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.roll(inputs[0], [-begin for begin in attrs.begins], attrs.axes),)


@dataclass(frozen=True)
class DepthToSpaceAttrs:
    """``blocks``: of every spatial axis, how many pixels become of one."""

    blocks: tuple[int, ...] = ()


class DepthToSpace(Movement):
    """Channels (N, B1 ... Bk C, S1 ... Sk) become pixels (N, C, S1 B1 ... Sk Bk): the first C
    channels are the first pixels of all blocks. ONNX's DepthToSpace of mode DCR, for any axes.
    """

    key = "tactix.DepthToSpace@1"
    Attrs = DepthToSpaceAttrs

    def shapes(self, attrs: DepthToSpaceAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,), blocks = inputs, attrs.blocks
        if not blocks or min(blocks) < 1 or x.rank != len(blocks) + 2:
            raise ShapeError(f"{self.key}: blocks of {show(blocks)} for {x}")
        count, channels = math.prod(blocks), x.shape[1]
        if compare(mod(channels, count), 0) in ("<", ">"):
            raise ShapeError(f"{self.key}: {channels} channels are no multiple of {count}")
        assume(mod(channels, count), "==", 0)
        pixels = (d * b for d, b in zip(x.shape[2:], blocks, strict=True))
        return [(x.shape[0], floordiv(channels, count), *pixels)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        (x,), blocks = inputs, attrs.blocks
        n, c, *sizes = x.shape
        rank = len(blocks)
        depth = c // math.prod(blocks)
        parts = x.reshape(n, *blocks, depth, *sizes)
        inside = [axis for k in range(rank) for axis in (rank + 2 + k, 1 + k)]
        whole = (size * b for size, b in zip(sizes, blocks, strict=True))
        return (parts.transpose(0, rank + 1, *inside).reshape(n, depth, *whole),)


class Expand(Movement):
    """Broadcast to the result of broadcasting x with ``shape``."""

    key = "tactix.Expand@1"
    Attrs = ShapeAttrs

    def shapes(self, attrs: ShapeAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        return [broadcast_shapes(inputs[0].shape, attrs.shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(inputs[0], np.broadcast_shapes(inputs[0].shape, attrs.shape)),)


@dataclass(frozen=True)
class PadAttrs:
    """``pads``: the begin of every axis, then the end of every one; negative ones cut.

    ``mode``: ``constant`` (with ``value``), ``edge``, ``reflect`` or ``wrap``.
    """

    pads: tuple[Dim, ...] = ()
    mode: str = "constant"
    value: float | bool = 0.0


class Pad(Movement):
    """Elements added around a tensor."""

    key = "tactix.Pad@1"
    Attrs = PadAttrs

    def shapes(self, attrs: PadAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        if len(attrs.pads) != 2 * x.rank:
            raise ShapeError(f"{self.key}: {len(attrs.pads)} pads for {x}")
        if attrs.mode not in ("constant", "edge", "reflect", "wrap"):
            raise InvalidArgument(f"{self.key} knows no mode {attrs.mode!r}")
        out = tuple(d + a + b for d, a, b in zip(x.shape, attrs.pads, attrs.pads[x.rank :]))
        for i, d in enumerate(out):
            around = f"pads of {attrs.pads[i]} and {attrs.pads[x.rank + i]}"
            no_less(
                d,
                0,
                f"{self.key}: {around} take more than axis {i} of {x.shape[i]} has",
                "Take less away",
            )
        return [out]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        widths = list(zip(attrs.pads[: x.ndim], attrs.pads[x.ndim :], strict=True))
        grown = [(max(0, a), max(0, b)) for a, b in widths]
        if attrs.mode != "constant":
            return (np.pad(x[_cut(widths, x.shape)], grown, mode=attrs.mode),)
        y = np.pad(x, grown, constant_values=np.asarray(attrs.value).astype(x.dtype))
        return (y[_cut(widths, y.shape)],)  # last, as a cut may reach past the input


def _cut(widths: Sequence[tuple[int, int]], shape: Sequence[int]) -> tuple[slice, ...]:
    """What negative widths leave."""
    return tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, shape, strict=True))


@dataclass(frozen=True)
class TileAttrs:
    """``repeats``: one per axis."""

    repeats: tuple[Dim, ...] = ()


class Tile(Movement):
    """The tensor repeated along its axes."""

    key = "tactix.Tile@1"
    Attrs = TileAttrs

    def shapes(self, attrs: TileAttrs, inputs: list[TensorSpec]) -> list[DimShape]:
        (x,) = inputs
        if len(attrs.repeats) != x.rank:
            raise ShapeError(f"{self.key}: {len(attrs.repeats)} repeats for {x}")
        return [tuple(d * r for d, r in zip(x.shape, attrs.repeats, strict=True))]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.tile(inputs[0], attrs.repeats),)


@dataclass(frozen=True)
class ShapeOfAttrs:
    """The axes from ``start`` up to ``end`` (None: to the last), as a Python slice."""

    start: int = 0
    end: int | None = None


class ShapeOf(Layer):
    """Dims of a tensor as an int64 vector."""

    key = "tactix.Shape@1"
    Attrs = ShapeOfAttrs

    def infer(self, attrs: ShapeOfAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        value = x.shape[attrs.start : attrs.end]
        return [TensorSpec(DType.INT64, (len(value),), value)]

    def reference(self, attrs: ShapeOfAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (np.array(inputs[0].shape[attrs.start : attrs.end], np.int64),)


LAYERS: tuple[Layer, ...] = (
    Reshape(),
    DynamicReshape(),
    Transpose(),
    Concat(),
    Split(),
    Slice(),
    Roll(),
    DepthToSpace(),
    Expand(),
    Pad(),
    Tile(),
    ShapeOf(),
)
