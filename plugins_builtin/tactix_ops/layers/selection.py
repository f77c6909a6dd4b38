"""Layers that select: how many elements they give only running tells. Such dims are symbols named
by an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, axis_of, pick, required, same_dim


@dataclass(frozen=True)
class NonZeroAttrs:
    """``symbol``: what the number of elements found is called."""

    symbol: str = "count"


class NonZero(Layer):
    """Where x is not 0: int64 (rank, count), places in row-major order."""

    key = "tactix.NonZero@1"
    Attrs = NonZeroAttrs

    def infer(self, attrs: NonZeroAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        return [TensorSpec(DType.INT64, (x.rank, sym(attrs.symbol)))]

    def reference(self, attrs: NonZeroAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (np.argwhere(inputs[0]).T.astype(np.int64),)


@dataclass(frozen=True)
class CompressAttrs:
    """``axis``: None takes x as one row. ``symbol``: what the number of slices kept is called."""

    symbol: str = "count"
    axis: int | None = None


class Compress(Layer):
    """The slices of x along ``axis`` where a condition (booleans, it may be shorter than the axis)
    holds.
    """

    key = "tactix.Compress@1"
    Attrs = CompressAttrs

    def infer(self, attrs: CompressAttrs, inputs: Specs) -> list[TensorSpec]:
        x, _ = required(self, inputs, 2)
        count = sym(attrs.symbol)
        if attrs.axis is None:
            return [TensorSpec(x.dtype, (count,))]
        axis = axis_of(attrs.axis, x.rank, self.key)
        return [TensorSpec(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 :]))]

    def reference(self, attrs: CompressAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, condition = inputs[:2]
        size = x.size if attrs.axis is None else x.shape[attrs.axis]
        if condition[size:].any():
            what = f"the condition of {condition.size} asks for slices behind the last of {size}"
            raise ShapeError(what, do="Give one condition a slice, or fewer")
        return (np.compress(condition[:size], x, axis=attrs.axis),)


@dataclass(frozen=True)
class UniqueAttrs:
    """``axis``: whose slices are compared; None compares elements. ``sorted``: else in order of
    first occurrence.
    """

    symbol: str = "count"
    axis: int | None = None
    sorted: bool = True


class Unique(Layer):
    """Distinct elements or slices; where each occurs first; which of them each of x is; how often
    each occurs.
    """

    key = "tactix.Unique@1"
    Attrs = UniqueAttrs

    def infer(self, attrs: UniqueAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        count = sym(attrs.symbol)
        total: Dim = x.numel
        shape: tuple[Dim, ...] = (count,)
        if attrs.axis is not None:
            axis = axis_of(attrs.axis, x.rank, self.key)
            shape, total = (*x.shape[:axis], count, *x.shape[axis + 1 :]), x.shape[axis]
        indices = [TensorSpec(DType.INT64, s) for s in ((count,), (total,), (count,))]
        return [TensorSpec(x.dtype, shape), *indices]

    def reference(self, attrs: UniqueAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, axis = inputs[0], attrs.axis
        _, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not attrs.sorted:
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            first, inverse, counts = first[order], rank[inverse], counts[order]
        y = x.reshape(-1)[first] if axis is None else np.take(x, first, axis=axis)
        return (y, *(a.astype(np.int64) for a in (first, inverse, counts)))


@dataclass(frozen=True)
class NonMaxSuppressionAttrs:
    """``center_point_box``: boxes are (x centre, y centre, width, height), not two corners (y, x,
    y, x).
    """

    symbol: str = "count"
    center_point_box: bool = False


class NonMaxSuppression(Layer):
    """For each batch and class, boxes of falling score that overlap none taken before: int64
    (count, 3).

    Inputs: boxes (batch, n, 4), scores (batch, classes, n), then optional scalars: most boxes of a
    class (0 if absent), the intersection over union above which boxes overlap (0), and the score
    that a box must exceed.
    """

    key = "tactix.NonMaxSuppression@1"
    Attrs = NonMaxSuppressionAttrs

    def infer(self, attrs: NonMaxSuppressionAttrs, inputs: Specs) -> list[TensorSpec]:
        boxes, scores = required(self, inputs, 2)
        if boxes.rank != 3 or scores.rank != 3:
            raise ShapeError(f"{self.key}: boxes {boxes}, scores {scores}")
        same_dim(boxes.shape[1], scores.shape[2], self.key, "the number of boxes")
        same_dim(boxes.shape[0], scores.shape[0], self.key, "the number of samples")
        same_dim(boxes.shape[2], 4, self.key, "numbers of a box")
        return [TensorSpec(DType.INT64, (sym(attrs.symbol), 3))]

    def reference(self, attrs: NonMaxSuppressionAttrs, *inputs: Array) -> tuple[Array, ...]:
        boxes, scores = inputs[:2]
        most, overlap, lowest = (
            None if a is None else a.item() for a in (pick(inputs, i) for i in (2, 3, 4))
        )
        found: list[tuple[int, int, int]] = []
        for b, c in np.ndindex(scores.shape[:2]):
            corners = _corners(boxes[b], attrs.center_point_box)
            order = [
                i
                for i in np.argsort(-scores[b, c], kind="stable")
                if lowest is None or scores[b, c, i] > lowest
            ]
            found += [(b, c, i) for i in _kept(corners, order, int(most or 0), overlap or 0.0)]
        return (np.array(found, np.int64).reshape(-1, 3),)

    def sample(self, attrs: NonMaxSuppressionAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out = super().sample(attrs, inputs, rng)
        fixed = (5, 0.5, 0.1)
        return [
            *out[:2],
            *(x if x is None else np.full_like(x, v) for x, v in zip(out[2:], fixed, strict=False)),
        ]


def _corners(boxes: Array, centred: bool) -> Array:
    """Lowest and highest corner (n, 4) in float64."""
    b = boxes.astype(np.float64)
    if centred:
        half = b[:, 2:] / 2
        return np.concatenate([b[:, :2] - half, b[:, :2] + half], axis=1)
    return np.concatenate([np.minimum(b[:, :2], b[:, 2:]), np.maximum(b[:, :2], b[:, 2:])], axis=1)


def _kept(corners: Array, order: Sequence[int], most: int, overlap: float) -> list[int]:
    area = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    kept: list[int] = []
    for i in order:
        if len(kept) == most:
            break
        low, high = (
            np.maximum(corners[kept, :2], corners[i, :2]),
            np.minimum(corners[kept, 2:], corners[i, 2:]),
        )
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        together = area[kept] + area[i] - shared
        # what shares nothing may have a union below 0: sizes of boxes by centre have any sign
        if not np.any((shared > 0) & (shared > overlap * together)):
            kept.append(int(i))
    return kept


LAYERS: tuple[Layer, ...] = (NonZero(), Compress(), Unique(), NonMaxSuppression())
