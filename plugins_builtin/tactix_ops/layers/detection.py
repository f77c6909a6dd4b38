"""Layers of detectors: the best boxes of a sample in a fixed number of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, float_only, required, same_dim, wide

NOTHING = -1
"""Box and class of a row that has none."""


@dataclass(frozen=True)
class CombinedSuppressionAttrs:
    """``rows`` of each sample. ``inclusive``: a score that is ``score_threshold`` counts, and an
    overlap that is ``overlap_threshold`` is one. ``class_agnostic``: boxes of different classes
    overlap, too. ``background``: a class that does not count. ``candidates``, ``class_candidates``:
    so many of the best scores of a sample, of a class of it, are looked at; 0 for all.
    ``class_rows``: most rows of a class; 0 for any number. ``unit``: what is added to the
    differences of coordinates, 1 where they count pixels. ``classes_first``: of equal scores the
    lower class comes first, not the lower box.
    """

    rows: int = 1
    score_threshold: float = 0.0
    overlap_threshold: float = 0.5
    inclusive: bool = False
    class_agnostic: bool = False
    background: int = -1
    candidates: int = 0
    class_candidates: int = 0
    class_rows: int = 0
    unit: float = 0.0
    classes_first: bool = False


class CombinedSuppression(Layer):
    """Boxes of falling score of all classes of a sample, without those that overlap one before.

    Inputs: boxes (batch, n, 1 or classes, 4) by two corners, scores (batch, n, classes). Outputs:
    how many rows are filled (batch,) int32; their boxes (batch, rows, 4), scores (batch, rows),
    classes and which box each is (batch, rows) int32. What is not filled is 0, and -1 in the last
    two. Overlap is intersection over union in float32.
    """

    key = "tactix.CombinedSuppression@1"
    Attrs = CombinedSuppressionAttrs

    def infer(self, attrs: CombinedSuppressionAttrs, inputs: Specs) -> list[TensorSpec]:
        boxes, scores = required(self, inputs, 2)
        for spec in (boxes, scores):
            float_only(spec, self.key)
        if boxes.rank != 4 or scores.rank != 3:
            raise ShapeError(f"{self.key}: boxes {boxes}, scores {scores}")
        same_dim(boxes.shape[3], 4, self.key, "numbers of a box")
        same_dim(boxes.shape[1], scores.shape[1], self.key, "the number of boxes")
        if boxes.shape[2] != 1:
            same_dim(boxes.shape[2], scores.shape[2], self.key, "the number of classes")
        if attrs.rows < 0:
            raise InvalidArgument(f"{self.key} gives {attrs.rows} rows", do="Give 0 or more")
        batch, number = boxes.shape[0], (boxes.shape[0], attrs.rows)
        return [
            TensorSpec(DType.INT32, (batch,)),
            TensorSpec(boxes.dtype, (*number, 4)),
            TensorSpec(scores.dtype, number),
            TensorSpec(DType.INT32, number),
            TensorSpec(DType.INT32, number),
        ]

    def reference(self, attrs: CombinedSuppressionAttrs, *inputs: Array) -> tuple[Array, ...]:
        boxes, scores = inputs[:2]
        batch = len(boxes)
        count = np.zeros(batch, np.int32)
        found = np.zeros((batch, attrs.rows, 4), boxes.dtype)
        best = np.zeros((batch, attrs.rows), scores.dtype)
        classes = np.full((batch, attrs.rows), NOTHING, np.int32)
        places = np.full((batch, attrs.rows), NOTHING, np.int32)
        for b in range(batch):
            own = _Sample(attrs, wide(boxes[b]).astype(np.float32), wide(scores[b]))
            for row, (i, c) in enumerate(own.chosen()):
                count[b] = row + 1
                found[b, row] = boxes[b, i, min(c, boxes.shape[2] - 1)]
                best[b, row], classes[b, row], places[b, row] = scores[b, i, c], c, i
        return count, found, best, classes, places


class _Sample:
    """Boxes (n, 1 or classes, 4) and scores (n, classes) of one sample."""

    def __init__(self, attrs: CombinedSuppressionAttrs, boxes: Array, scores: Array) -> None:
        self.attrs, self.scores = attrs, scores
        rising = boxes[..., :2] < boxes[..., 2:]
        self.low = np.where(rising, boxes[..., :2], boxes[..., 2:])
        self.high = np.where(rising, boxes[..., 2:], boxes[..., :2])
        self.area = self._area(self.high - self.low)

    def _area(self, size: Array) -> Array:
        grown = size + np.float32(self.attrs.unit)
        return grown[..., 0] * grown[..., 1]

    def candidates(self) -> list[tuple[int, int]]:
        """Box and class of the scores that count, the best first."""
        a, scores = self.attrs, self.scores
        passing = scores >= a.score_threshold if a.inclusive else scores > a.score_threshold
        if 0 <= a.background < scores.shape[1]:
            passing[:, a.background] = False
        if a.classes_first:
            c, i = np.nonzero(passing.T)
        else:
            i, c = np.nonzero(passing)
        order = np.argsort(-scores[i, c], kind="stable")
        listed = list(zip(i[order].tolist(), c[order].tolist(), strict=True))
        if a.class_candidates:
            listed = _first_of_classes(listed, a.class_candidates)
        return listed[: a.candidates] if a.candidates else listed

    def chosen(self) -> list[tuple[int, int]]:
        """Box and class of each row. What is too much of its class overlaps others all the same."""
        kept: list[tuple[int, int]] = []
        rows: list[tuple[int, int]] = []
        for i, c in self.candidates():
            if len(rows) == self.attrs.rows:
                break
            if not self._overlaps(i, c, kept):
                kept.append((i, c))
                full = self.attrs.class_rows and sum(d == c for _, d in rows)
                if not full or full < self.attrs.class_rows:
                    rows.append((i, c))
        return rows

    def _overlaps(self, i: int, c: int, kept: list[tuple[int, int]]) -> bool:
        """Whether a box overlaps one of those kept that it is compared with."""
        a, last = self.attrs, self.area.shape[1] - 1
        others = [(j, min(d, last)) for j, d in kept if a.class_agnostic or d == c]
        if not others:
            return False
        at, own = tuple(np.array(others).T), (i, min(c, last))
        low, high = self.low[own], self.high[own]
        low = np.where(self.low[at] > low, self.low[at], low)
        high = np.where(self.high[at] < high, self.high[at], high)
        side = high - low + np.float32(a.unit)
        meet = (high >= low).all(axis=1) & (side > 0).all(axis=1)
        shared = np.where(meet, side[:, 0] * side[:, 1], np.float32(0))
        together = self.area[at] + self.area[own] - shared
        overlap = np.divide(shared, together, out=np.zeros_like(shared), where=together > 0)
        limit = np.float32(a.overlap_threshold)
        return bool(np.any(overlap >= limit if a.inclusive else overlap > limit))


def _first_of_classes(listed: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Boxes and classes, at most so many of a class."""
    seen: dict[int, int] = {}
    out: list[tuple[int, int]] = []
    for i, c in listed:
        seen[c] = seen.get(c, 0) + 1
        if seen[c] <= most:
            out.append((i, c))
    return out


LAYERS: tuple[Layer, ...] = (CombinedSuppression(),)
