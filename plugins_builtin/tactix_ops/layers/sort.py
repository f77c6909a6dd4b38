"""Order and running folds: TopK, ArgMax, ArgMin, CumSum, CumProd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, axis_of, no_less, required, track, wide
from tactix_ops.layers.reduce import reduced


@dataclass(frozen=True)
class TopKAttrs:
    """``k`` elements along ``axis``; ``sorted``: best first (otherwise in any order)."""

    k: Dim = 1
    axis: int = -1
    largest: bool = True
    sorted: bool = True


K = "Give a k from 0 to the size of the axis"


def _no_choice(k: Dim, axis: int, size: Dim) -> str:
    return f"k asks for {k} elements of axis {axis}, which has {size}"


class TopK(Layer):
    """The ``k`` largest (or smallest) elements along an axis and their int64 indices; of equals the
    first first.
    """

    key = "tactix.TopK@1"
    Attrs = TopKAttrs

    def infer(self, attrs: TopKAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        axis = axis_of(attrs.axis, x.rank, self.key)
        what = f"{self.key}: {_no_choice(attrs.k, axis, x.shape[axis])}"
        no_less(x.shape[axis], attrs.k, what, K)
        no_less(attrs.k, 0, what, K)
        shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
        return [TensorSpec(x.dtype, shape), TensorSpec(DType.INT64, shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = np.moveaxis(inputs[0], attrs.axis, -1)
        if not 0 <= attrs.k <= x.shape[-1]:
            raise ShapeError(_no_choice(attrs.k, attrs.axis, x.shape[-1]), do=K)
        values = wide(x)
        if attrs.largest:
            order = (
                x.shape[-1] - 1 - np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
            )
        else:
            order = np.argsort(values, axis=-1, kind="stable")
        best = order[..., : attrs.k]
        found = np.take_along_axis(x, best, axis=-1)
        return np.moveaxis(found, -1, attrs.axis), np.moveaxis(best, -1, attrs.axis).astype(
            np.int64
        )


@dataclass(frozen=True)
class ArgAttrs:
    """``select_last_index``: of equals the last, not the first."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False


class ArgExtreme(Layer):
    """The int64 index of the extreme element along ``axis``. Subclasses say which."""

    Attrs = ArgAttrs

    def infer(self, attrs: ArgAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        return [TensorSpec(DType.INT64, reduced(x.shape, (attrs.axis,), attrs.keepdims, self.key))]

    def reference(self, attrs: ArgAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        kept = reduced(x.shape, (attrs.axis,), attrs.keepdims, self.key)
        if x.size == 0 and 0 not in kept:
            raise ShapeError(
                f"{self.key}: axis {attrs.axis} of a tensor {x.shape} "
                "has no elements to choose from"
            )
        if x.size == 0:
            return (np.zeros(kept, np.int64),)
        if attrs.select_last_index:
            y = x.shape[attrs.axis] - 1 - self.find(np.flip(x, attrs.axis), attrs.axis)
        else:
            y = self.find(x, attrs.axis)
        return (np.asarray(np.expand_dims(y, attrs.axis) if attrs.keepdims else y, np.int64),)

    def find(self, x: Array, axis: int) -> Array:
        """The first index of the extreme."""
        raise NotImplementedError(f"{self.key}: find")


class ArgMax(ArgExtreme):
    """Where the largest element is."""

    key = "tactix.ArgMax@1"
    imports = ("onnx:ai.onnx::ArgMax",)

    def find(self, x: Array, axis: int) -> Array:
        return x.argmax(axis=axis)


class ArgMin(ArgExtreme):
    """Where the smallest element is."""

    key = "tactix.ArgMin@1"
    imports = ("onnx:ai.onnx::ArgMin",)

    def find(self, x: Array, axis: int) -> Array:
        return x.argmin(axis=axis)


@dataclass(frozen=True)
class CumulativeAttrs:
    """``exclusive``: without the element itself. ``reverse``: from the end."""

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False


class Cumulative(Layer):
    """A running fold along ``axis``: ``neutral`` where nothing has come before. Subclasses say
    which.
    """

    Attrs = CumulativeAttrs
    neutral = 0

    def infer(self, attrs: CumulativeAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        axis_of(attrs.axis, x.rank, self.key)
        return track(self, attrs, [x], [x.plain()])

    def reference(self, attrs: CumulativeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = np.moveaxis(wide(inputs[0]), attrs.axis, -1)
        x = x[..., ::-1] if attrs.reverse else x
        if attrs.exclusive:
            x = np.concatenate([np.full_like(x[..., :1], self.neutral), x[..., :-1]], axis=-1)
        y = self.fold(x)
        y = np.moveaxis(y[..., ::-1] if attrs.reverse else y, -1, attrs.axis)
        return (y.astype(inputs[0].dtype, copy=False),)

    def fold(self, x: Array) -> Array:
        """The running results along the last axis."""
        raise NotImplementedError(f"{self.key}: fold")


class CumSum(Cumulative):
    """Running sums."""

    key = "tactix.CumSum@1"

    def fold(self, x: Array) -> Array:
        return np.cumsum(x, axis=-1, dtype=x.dtype)


class CumProd(Cumulative):
    """Running products."""

    key = "tactix.CumProd@1"
    neutral = 1

    def fold(self, x: Array) -> Array:
        return np.cumprod(x, axis=-1, dtype=x.dtype)


LAYERS: tuple[Layer, ...] = (TopK(), ArgMax(), ArgMin(), CumSum(), CumProd())
