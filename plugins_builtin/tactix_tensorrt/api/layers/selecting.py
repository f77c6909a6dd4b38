"""Layers that choose: one of many, boxes that overlap little, elements within a length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, compare, dmin
from tactix.base.dtypes import DType
from tactix_tensorrt.api.enums import BoundingBoxFormat, DataType, LayerType
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering, scalar
from tactix_tensorrt.api.values import NATIVE

if TYPE_CHECKING:
    from tactix.contracts.graph import Value


class IOneHotLayer(ILayer):
    """Of indices, values (off, on) and a depth: ``on`` at the index along a new axis.

    Negative indices count from the end; what is outside is nowhere.
    """

    TYPE = LayerType.ONE_HOT
    axis = Attribute(-1)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        indices = emit.cast(emit.input(0), DType.INT64)
        depth = emit.reshape(emit.cast(emit.input(2), DType.INT64), ())
        if depth.spec.known() is None:
            fields = {"axis": self.axis, "symbol": emit.symbol("depth")}
            return [emit.one("DynamicOneHot", indices, depth, emit.input(1), **fields)]
        return [self._among(emit, indices, depth)]

    def _among(self, emit: Lowering, indices: Value, depth: Value) -> Value:
        """With a depth that shapes tell."""
        rank = indices.spec.rank + 1
        if not -rank <= self.axis < rank:
            raise emit.refuse(f"the result has {rank} axes, and none is {self.axis}")
        axis, shape = self.axis % rank, indices.spec.shape
        wide = emit.reshape(indices, (*shape[:axis], 1, *shape[axis:]))
        below = emit.one("Less", wide, emit.number(0, wide))
        wrapped = emit.one("Where", below, emit.one("Add", wide, depth), wide)
        (size,) = emit.content(depth, "the depth")
        hit = emit.one("Equal", wrapped, emit.counter(size, axis, rank))
        off, on = (emit.part(emit.input(1), 0, i, 1) for i in range(2))
        return emit.one("Where", hit, on, off)


class IRaggedSoftMaxLayer(ILayer):
    """A softmax of the first elements of each row, as many as ``bounds`` says; the others are 0.

    Inputs: (..., rows, columns), bounds (..., rows, 1).
    """

    TYPE = LayerType.RAGGED_SOFTMAX

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, bounds = emit.input(0), emit.cast(emit.input(1), DType.INT64)
        last = x.spec.rank - 1
        if last < 1:
            raise emit.refuse(f"its input is {x.spec}", "Give rows of elements")
        bounds = emit.reshape(bounds, (*x.spec.shape[:-1], 1))
        inside = emit.one("Less", emit.counter(x.spec.shape[last], last, last + 1), bounds)
        seen = emit.one("Where", inside, x, emit.number(-math.inf, x))
        return [
            emit.one("Where", inside, emit.one("Softmax", seen, axis=last), emit.number(0.0, x))
        ]


class INMSLayer(ILayer):
    """Of each sample and class the boxes of falling score that overlap none taken before.

    Inputs: boxes (batch, n, 4), or (batch, n, classes, 4) of each class; scores (batch, n,
    classes); the most boxes of a class; then, where they are set, the overlap that is allowed and
    the score that a box must exceed, 0 else. Outputs: (count, 3) of sample, class and box, ordered
    by sample, class and falling score; and the count.
    """

    TYPE = LayerType.NMS
    OUTPUTS = 2
    bounding_box_format = Attribute(BoundingBoxFormat.CORNER_PAIRS)
    topk_box_limit = Attribute(5000)
    indices_type = Attribute(DataType.INT32)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        boxes, scores = emit.input(0), emit.input(1)
        if scores.spec.rank != 3 or boxes.spec.rank not in (3, 4):
            raise emit.refuse(f"boxes are {boxes.spec}, scores {scores.spec}")
        scores = self._best(emit, emit.one("Transpose", scores, perm=(0, 2, 1)))
        limits = [self._limit(emit, 3), self._limit(emit, 4)]
        most = emit.reshape(emit.cast(emit.input(2), DType.INT64), ())
        batch, classes, n = scores.spec.shape
        per_class = boxes.spec.rank == 4
        if per_class:
            turned = emit.one("Transpose", boxes, perm=(0, 2, 1, 3))
            boxes = emit.reshape(turned, (batch * classes, n, 4))
            scores = emit.reshape(scores, (batch * classes, 1, n))
        found = self._found(emit, [boxes, scores, most, *limits])
        if per_class:
            found = self._split(emit, found, classes)
        count = emit.reshape(emit.part(emit.one("Shape", found), 0, 0, 1), ())
        return [emit.cast(found, NATIVE[self.indices_type]), emit.cast(count, DType.INT32)]

    def _found(self, emit: Lowering, inputs: Sequence[Value]) -> Value:
        centred = self.bounding_box_format is BoundingBoxFormat.CENTER_SIZES
        fields = {"center_point_box": centred, "symbol": emit.symbol("boxes")}
        return emit.one("NonMaxSuppression", *inputs, **fields)

    @staticmethod
    def _limit(emit: Lowering, index: int) -> Value:
        """A threshold as a scalar of float32."""
        found = emit.optional(index)
        if found is None:
            return emit.constant(scalar(0, DType.FP32))
        return emit.reshape(emit.cast(found, DType.FP32), ())

    def _best(self, emit: Lowering, scores: Value) -> Value:
        """The scores (batch, classes, n), -inf for all but the highest ``topk_box_limit`` of a
        sample.
        """
        batch, classes, n = scores.spec.shape
        all_of_one: Dim = classes * n
        if compare(all_of_one, self.topk_box_limit) in ("<", "<=", "=="):
            return scores
        flat = emit.reshape(scores, (batch, all_of_one))
        k = dmin(all_of_one, self.topk_box_limit)
        values, where = emit.all("TopK", [flat], k=k, axis=1, largest=True, sorted=True)
        never = emit.one("Expand", emit.number(-math.inf, scores), shape=(batch, all_of_one))
        kept = emit.one("ScatterElements", never, where, values, axis=1)
        return emit.reshape(kept, (batch, classes, n))

    @staticmethod
    def _split(emit: Lowering, found: Value, classes: Dim) -> Value:
        """(sample and class, 0, box) to (sample, class, box)."""
        both, box = emit.part(found, 1, 0, 1), emit.part(found, 1, 2, 1)
        many = emit.one("Dims", values=(classes,), shape=())
        kind = emit.one("Mod", both, many)
        sample = emit.one("Div", emit.one("Sub", both, kind), many)
        return emit.one("Concat", sample, kind, box, axis=1)
