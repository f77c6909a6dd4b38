"""Reductions over axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Shape, dmax, dmin
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, axes_of, float_only, required, track, wide


@dataclass(frozen=True)
class ReduceAttrs:
    """``axes``: those that are reduced (none: nothing is). ``keepdims``: they stay, with size 1."""

    axes: tuple[int, ...] = ()
    keepdims: bool = True


def reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool, who: str) -> Shape:
    """The shape without the axes, or with 1 in their place. Raises ShapeError."""
    gone = set(axes_of(axes, len(shape), who))
    return tuple(1 if i in gone else d for i, d in enumerate(shape) if keepdims or i not in gone)


class Reduce(Layer):
    """One number per place outside ``axes``. Subclasses say which; ``tracks``: also on known
    content.
    """

    Attrs = ReduceAttrs
    tracks = False

    def infer(self, attrs: ReduceAttrs, inputs: Specs) -> list[TensorSpec]:
        given = required(self, inputs, 1)
        self.check(given[0])
        out = [
            TensorSpec(
                given[0].dtype, reduced(given[0].shape, attrs.axes, attrs.keepdims, self.key)
            )
        ]
        return track(self, attrs, given, out) if self.tracks else out

    def check(self, x: TensorSpec) -> None:
        """Raises DTypeError."""

    def reference(self, attrs: ReduceAttrs, *inputs: Array) -> tuple[Array, ...]:
        with np.errstate(invalid="ignore"):
            y = np.asarray(self.reduce(wide(inputs[0]), attrs.axes, attrs.keepdims))
            return (y.astype(inputs[0].dtype, copy=False),)

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """The numbers; 16-bit floats come as float32."""
        raise NotImplementedError(f"{self.key}: reduce")


class ReduceSum(Reduce):
    """The sum."""

    key = "tactix.ReduceSum@1"
    takes_epilogue = True
    tracks = True

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return x.sum(axis=axes, keepdims=keepdims)


def mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The mean along axes; NaN of nothing."""
    if math.prod(x.shape[a] for a in axes):
        return x.mean(axis=axes, keepdims=keepdims)
    with np.errstate(invalid="ignore"):  # numpy's own would warn
        return np.true_divide(x.sum(axis=axes, keepdims=keepdims), 0)


class ReduceMean(Reduce):
    """The mean; of integers, truncated. Of no floats it is NaN."""

    key = "tactix.ReduceMean@1"
    takes_epilogue = True

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        y = mean(x, axes, keepdims)
        return np.trunc(y) if x.dtype.kind in "iu" else y


class ReduceProd(Reduce):
    """The product."""

    key = "tactix.ReduceProd@1"
    takes_epilogue = True
    tracks = True

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return x.prod(axis=axes, keepdims=keepdims)


def extreme(x: Array, axes: tuple[int, ...], keepdims: bool, highest: bool) -> Array:
    """The largest or smallest elements; of none, what every number of the dtype replaces."""
    if x.dtype == object:
        fold = np.frompyfunc(dmax if highest else dmin, 2, 1)
        for axis in axes:
            x = fold.reduce(x, axis=axis, keepdims=True)
        return x if keepdims else x.squeeze(axes)
    if x.dtype.kind == "f":
        limit: Any = -np.inf if highest else np.inf
    elif x.dtype.kind == "b":
        limit = not highest
    else:
        limit = np.iinfo(x.dtype).min if highest else np.iinfo(x.dtype).max
    return (np.max if highest else np.min)(x, axis=axes, keepdims=keepdims, initial=limit)


class ReduceMax(Reduce):
    """The largest element; of none, the lowest number of the dtype."""

    key = "tactix.ReduceMax@1"
    takes_epilogue = True
    tracks = True

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return extreme(x, axes, keepdims, highest=True)


class ReduceMin(Reduce):
    """The smallest element; of none, the highest number of the dtype."""

    key = "tactix.ReduceMin@1"
    takes_epilogue = True
    tracks = True

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return extreme(x, axes, keepdims, highest=False)


class ReduceLogSumExp(Reduce):
    """``log(sum(exp(x)))``, with the largest element taken out first so that nothing overflows."""

    key = "tactix.ReduceLogSumExp@1"

    def check(self, x: TensorSpec) -> None:
        float_only(x, self.key)

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        top = x.max(axis=axes, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
        with np.errstate(divide="ignore"):
            y = np.log(np.exp(x - top).sum(axis=axes, keepdims=True)) + top
        return y if keepdims else y.squeeze(axes)


LAYERS: tuple[Layer, ...] = (
    ReduceSum(),
    ReduceMean(),
    ReduceProd(),
    ReduceMax(),
    ReduceMin(),
    ReduceLogSumExp(),
)
