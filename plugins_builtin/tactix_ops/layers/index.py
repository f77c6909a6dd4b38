"""Layers that read or write elements by index. Negative indices count from the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape, assume, compare
from tactix.base.errors import DTypeError, ShapeError, out_of_range
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer, random_array
from tactix_codegen.numerics import array
from tactix_ops.layers.common import (
    Array,
    Movement,
    Specs,
    axis_of,
    optional,
    pick,
    required,
    same_dim,
    wide,
)
from tactix_ops.layers.shape import AxisAttrs


def _indices(spec: TensorSpec, who: str) -> TensorSpec:
    if not spec.dtype.is_int:
        raise DTypeError(f"{who}: indices are integers, not {spec.dtype.value}")
    return spec


def random_indices(rng: Any, spec: TensorSpec, bound: Any) -> Array:
    """Indices from -bound to bound - 1, or the constant."""
    if spec.const is not None:
        return spec.const
    return rng.integers(-np.asarray(bound), bound, spec.at({})).astype(spec.dtype.numpy)


def in_range(indices: Array, size: int) -> Array:
    """Indices into an axis of ``size`` elements, from -size to size - 1. Raises DataError for the
    first other.
    """
    indices = np.asarray(indices)
    # compared by their ends first: that takes no memory, and these are all that is looked at as a
    # rule
    if indices.size and (int(indices.max()) >= size or int(indices.min()) < -size):
        wrong = indices[(indices >= size) | (indices < -size)]
        raise out_of_range(int(wrong[0]), size)
    return indices


def constant_in_range(indices: TensorSpec, data: TensorSpec, axis: int, who: str) -> None:
    """Constant indices need an axis that has them. Raises ShapeError where it never does."""
    if indices.const is not None and indices.const.size:
        low, high = int(indices.const.min()), int(indices.const.max())
        size, needed = data.shape[axis], max(high + 1, -low)
        if compare(size, needed) == "<":
            index = high if needed == high + 1 else low
            raise ShapeError(
                f"{who}: index {index} is out of range: axis {axis} of {data} has {size} elements",
                do="Indices go from -size to size - 1",
            )
        assume(size, ">=", needed)


class Gather(Movement):
    """Slices of data along ``axis``: its dims are replaced by those of the indices."""

    key = "tactix.Gather@1"
    tables = (0,)
    Attrs = AxisAttrs
    positions = (1,)

    def shapes(self, attrs: AxisAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        data, indices = inputs[0], _indices(inputs[1], self.key)
        axis = axis_of(attrs.axis, data.rank, self.key)
        constant_in_range(indices, data, axis, self.key)
        return [(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])]

    def reference(self, attrs: AxisAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (
            array(
                np.take(
                    inputs[0], in_range(inputs[1], inputs[0].shape[attrs.axis]), axis=attrs.axis
                )
            ),
        )

    def sample(self, attrs: AxisAttrs, inputs: Specs, rng: Any) -> list[Any]:
        data, indices = required(self, inputs, 2)
        return [random_array(data, rng), random_indices(rng, indices, data.at({})[attrs.axis])]


class GatherElements(Movement):
    """``y[i, j, ...] = data[i, indices[i, j, ...], ...]`` with the index at ``axis``."""

    key = "tactix.GatherElements@1"
    tables = (0,)
    Attrs = AxisAttrs
    imports = ("onnx:ai.onnx::GatherElements",)
    positions = (1,)

    def shapes(self, attrs: AxisAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        data, indices = inputs[0], _indices(inputs[1], self.key)
        _check_inside(data, indices, axis_of(attrs.axis, data.rank, self.key), self.key)
        return [indices.shape]

    def reference(self, attrs: AxisAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0][_along(inputs[1], inputs[0].shape, attrs.axis)],)

    def sample(self, attrs: AxisAttrs, inputs: Specs, rng: Any) -> list[Any]:
        data, indices = required(self, inputs, 2)
        return [random_array(data, rng), random_indices(rng, indices, data.at({})[attrs.axis])]


def _check_inside(data: TensorSpec, indices: TensorSpec, axis: int, who: str) -> None:
    if indices.rank != data.rank:
        raise ShapeError(f"{who}: {data} and indices {indices} differ in rank")
    constant_in_range(indices, data, axis, who)
    for i, (d, n) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if i != axis and compare(n, d) == ">":
            raise ShapeError(f"{who}: indices {indices} reach beyond axis {i} of {data}")


def _along(indices: Array, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """An index for every axis: the given one at ``axis``, the position elsewhere."""
    where = list(np.ogrid[tuple(slice(0, n) for n in indices.shape)])
    where[axis] = in_range(indices, shape[axis])
    return tuple(where)


def _places(indices: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """The last axis of the indices as one array for each axis of ``shape`` that they name."""
    return tuple(in_range(i, n) for i, n in zip(np.moveaxis(indices, -1, 0), shape, strict=False))


@dataclass(frozen=True)
class GatherNDAttrs:
    """``batch_dims``: leading axes that data and indices share."""

    batch_dims: int = 0


class GatherND(Movement):
    """Slices of data at the places that the last axis of the indices lists."""

    key = "tactix.GatherND@1"
    tables = (0,)
    Attrs = GatherNDAttrs
    positions = (1,)

    def shapes(self, attrs: GatherNDAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        data, indices = inputs[0], _indices(inputs[1], self.key)
        depth = _depth(data, indices, attrs.batch_dims, self.key)
        for a, b in zip(data.shape[: attrs.batch_dims], indices.shape, strict=False):
            same_dim(a, b, self.key, "a batch axis")
        return [(*indices.shape[:-1], *data.shape[attrs.batch_dims + depth :])]

    def reference(self, attrs: GatherNDAttrs, *inputs: Array) -> tuple[Array, ...]:
        data, indices = inputs
        batch = indices.shape[: attrs.batch_dims]
        own = [
            g.reshape(g.shape + (1,) * (indices.ndim - 1 - len(batch)))
            for g in np.ogrid[_ranges(batch)]
        ]
        return (np.asarray(data[(*own, *_places(indices, data.shape[len(batch) :]))]),)

    def sample(self, attrs: GatherNDAttrs, inputs: Specs, rng: Any) -> list[Any]:
        data, indices = required(self, inputs, 2)
        bound = data.at({})[attrs.batch_dims :][: indices.at({})[-1]]
        return [random_array(data, rng), random_indices(rng, indices, bound)]


def _ranges(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)


def _depth(data: TensorSpec, indices: TensorSpec, batch: int, who: str) -> int:
    """How many axes one index names. Raises ShapeError."""
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 1 <= depth <= data.rank - batch or indices.rank <= batch:
        raise ShapeError(f"{who}: indices {indices} do not fit {data} with {batch} batch axes")
    if indices.const is not None and indices.const.size:
        for axis in range(depth):
            one = replace(indices, const=indices.const[..., axis])
            constant_in_range(one, data, batch + axis, who)
    return depth


@dataclass(frozen=True)
class ScatterNDAttrs:
    """``reduction``: ``none`` (the update replaces), ``add``, ``mul``, ``min`` or ``max``."""

    reduction: str = "none"


@dataclass(frozen=True)
class ScatterElementsAttrs(ScatterNDAttrs):
    """``axis``: where the index goes."""

    axis: int = 0


_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _write(data: Array, where: Any, updates: Array, reduction: str) -> Array:
    if reduction == "none":
        y = np.array(data)
        y[where] = updates
        return y
    y = np.array(wide(data))
    _UFUNCS[reduction].at(y, where, wide(updates))
    return y.astype(data.dtype, copy=False)


class Scatter(Movement):
    """A copy of data with updates written at indices, in order where they collide."""

    positions = (1,)

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        if attrs.reduction == "none":
            return super().infer(attrs, inputs)
        return [s.plain() for s in super().infer(attrs, [s and s.plain() for s in inputs])]


class ScatterND(Scatter):
    """Slices written at the places that the last axis of the indices lists."""

    key = "tactix.ScatterND@1"
    Attrs = ScatterNDAttrs

    def shapes(self, attrs: ScatterNDAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        data, indices, updates = inputs[0], _indices(inputs[1], self.key), inputs[2]
        want = (*indices.shape[:-1], *data.shape[_depth(data, indices, 0, self.key) :])
        if len(want) != updates.rank:
            raise ShapeError(f"{self.key}: updates {updates} do not fit {data} at {indices}")
        for a, b in zip(want, updates.shape, strict=True):
            same_dim(a, b, self.key, "an axis of the updates")
        return [data.shape]

    def reference(self, attrs: ScatterNDAttrs, *inputs: Array) -> tuple[Array, ...]:
        data, indices, updates = inputs
        return (_write(data, _places(indices, data.shape), updates, attrs.reduction),)

    def sample(self, attrs: ScatterNDAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        data, indices, updates = found
        if inputs[1] is None or inputs[1].const is not None:
            return [data, indices, updates]
        bound = data.shape[: indices.shape[-1]]
        flat = np.resize(rng.permutation(math.prod(bound)), math.prod(indices.shape[:-1]))
        chosen = np.stack(np.unravel_index(flat, bound), axis=-1).reshape(indices.shape)
        return [data, chosen.astype(indices.dtype), updates]


class ScatterElements(Scatter):
    """``y[i, indices[i, j, ...], ...] = updates[i, j, ...]`` with the index at ``axis``."""

    key = "tactix.ScatterElements@1"
    Attrs = ScatterElementsAttrs
    imports = ("onnx:ai.onnx::ScatterElements",)

    def shapes(self, attrs: ScatterElementsAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        data, indices, updates = inputs[0], _indices(inputs[1], self.key), inputs[2]
        _check_inside(data, indices, axis_of(attrs.axis, data.rank, self.key), self.key)
        if updates.rank != indices.rank:
            raise ShapeError(f"{self.key}: updates {updates} and indices {indices} differ in rank")
        for a, b in zip(indices.shape, updates.shape, strict=True):
            same_dim(a, b, self.key, "an axis of the updates")
        return [data.shape]

    def reference(self, attrs: ScatterElementsAttrs, *inputs: Array) -> tuple[Array, ...]:
        data, indices, updates = inputs
        return (_write(data, _along(indices, data.shape, attrs.axis), updates, attrs.reduction),)

    def sample(self, attrs: ScatterElementsAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        data, indices, updates = found
        if inputs[1] is None or inputs[1].const is not None:
            return [data, indices, updates]
        places = np.resize(rng.permutation(data.shape[attrs.axis]), indices.shape[attrs.axis])
        shape = [1] * indices.ndim
        shape[attrs.axis] = -1
        return [
            data,
            np.broadcast_to(places.reshape(shape), indices.shape).astype(indices.dtype),
            updates,
        ]


@dataclass(frozen=True)
class TensorScatterAttrs:
    """``axis``: the sequence. ``mode``: ``linear``, or ``circular``, where the end is followed by
    the begin. ``begin``: the place of all updates that have none of their own.
    """

    axis: int = -2
    mode: str = "linear"
    begin: Dim = 0


class TensorScatter(Layer):
    """A copy of a cache (batch, ...) with an update written along ``axis`` from a place of its own
    for each sample.

    Inputs: cache, update, places (batch,) or absent: ``begin``.
    """

    key = "tactix.TensorScatter@1"
    Attrs = TensorScatterAttrs
    imports = ("onnx:ai.onnx::TensorScatter",)

    def infer(self, attrs: TensorScatterAttrs, inputs: Specs) -> list[TensorSpec]:
        cache, update = required(self, inputs, 2)
        axis = axis_of(attrs.axis, cache.rank, self.key)
        for i, (a, b) in enumerate(zip(cache.shape, update.shape, strict=True)):
            if i != axis:
                same_dim(a, b, self.key, f"axis {i}")
        if optional(inputs, 2) is None and attrs.mode == "linear":
            end = attrs.begin + update.shape[axis]
            assume(cache.shape[axis], ">=", end, f"the cache has no room for {end} rows")
        return [cache.plain()]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        y, update, places = np.array(inputs[0]), inputs[1], pick(inputs, 2)
        size, count = y.shape[attrs.axis], update.shape[attrs.axis]
        for i in range(len(y)):
            steps = np.arange(count) + (attrs.begin if places is None else int(places[i]))
            steps = steps % size if attrs.mode == "circular" else steps
            np.moveaxis(y, attrs.axis, 1)[i, steps] = np.moveaxis(update, attrs.axis, 1)[i]
        return (y,)

    def sample(self, attrs: TensorScatterAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out: list[Array] = super().sample(attrs, inputs, rng)
        if len(out) > 2 and out[2] is not None:
            most = out[0].shape[attrs.axis] - out[1].shape[attrs.axis]
            out[2] = rng.integers(0, most + 1, out[2].shape).astype(out[2].dtype)
        return out


@dataclass(frozen=True)
class ReverseSequenceAttrs:
    """``time_axis`` is reversed; ``batch_axis`` counts the lengths."""

    batch_axis: int = 1
    time_axis: int = 0


class ReverseSequence(Movement):
    """The first ``lengths[b]`` elements along the time axis in reverse order, for each b; the
    others stay.
    """

    key = "tactix.ReverseSequence@1"
    Attrs = ReverseSequenceAttrs
    imports = ("onnx:ai.onnx::ReverseSequence",)
    positions = (1,)

    def shapes(self, attrs: ReverseSequenceAttrs, inputs: list[TensorSpec]) -> list[Shape]:
        x, lengths = inputs[0], _indices(inputs[1], self.key)
        same_dim(x.shape[attrs.batch_axis], lengths.shape[0], self.key, "the batch axis")
        return [x.shape]

    def reference(self, attrs: ReverseSequenceAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, lengths = inputs
        size = x.shape[attrs.time_axis]
        shape = [1] * x.ndim
        shape[attrs.time_axis] = size
        time = np.arange(size).reshape(shape)
        shape[attrs.time_axis], shape[attrs.batch_axis] = 1, -1
        if wrong := [n for n in lengths.tolist() if not 0 <= n <= size]:
            what = f"a length of {wrong[0]} along axis {attrs.time_axis}, which has {size} elements"
            raise ShapeError(what, do="Give lengths from 0 to the size of the axis")
        last = lengths.reshape(shape) - 1
        where = np.where(time <= last, last - time, time)
        return (np.take_along_axis(x, where, axis=attrs.time_axis),)

    def sample(self, attrs: ReverseSequenceAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, lengths = found
        return [
            x,
            rng.integers(1, x.shape[attrs.time_axis] + 1, lengths.shape).astype(lengths.dtype),
        ]


LAYERS: tuple[Layer, ...] = (
    Gather(),
    GatherElements(),
    GatherND(),
    ScatterND(),
    ScatterElements(),
    TensorScatter(),
    ReverseSequence(),
)
