"""Quantisation by scales that a run computes, one a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, exact_div
from tactix.base.dtypes import DType
from tactix_tensorrt.api.enums import DataType, LayerType
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering, scalar
from tactix_tensorrt.api.values import NATIVE, Dims

if TYPE_CHECKING:
    from tactix.contracts.graph import Value

LARGEST = {DataType.FP4: 6.0, DataType.FP8: 448.0}
"""Of the numbers of a type (OCP Microscaling Formats, 1.0, section 5.3)."""


class IDynamicQuantizeLayer(ILayer):
    """Elements of a block over its scale, and the scales.

    A scale is the largest magnitude of the block over the largest number of ``to_type``; as a power
    of two (E8M0) it is rounded up, and as FP8 it is that over the number in input 1, to the
    nearest. ``block_shape``: -1 for a whole axis; without one, ``block_size`` along ``axis``.
    """

    TYPE = LayerType.DYNAMIC_QUANTIZE
    OUTPUTS = 2
    axis = Attribute(-1)
    block_size = Attribute(16)
    block_shape: Attribute[Sequence[int]] = Attribute((), Dims)
    to_type = Attribute(DataType.FP4)
    scale_type = Attribute(DataType.FP8)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        if self.to_type not in LARGEST:
            raise emit.refuse(f"it cannot quantize to {self.to_type}", "Use DataType.FP4 or FP8")
        x = emit.cast(emit.input(0), DType.FP32)
        blocks = self._blocks(emit, x)
        counts = [n for pair in blocks for n in pair]
        inner = tuple(range(1, len(counts), 2))
        split = emit.reshape(x, counts)
        highest = emit.one("ReduceMax", emit.one("Abs", split), axes=inner, keepdims=True)
        stored, scale = self._scales(emit, highest)
        empty = emit.one("Equal", scale, emit.number(0.0, scale))
        safe = emit.one("Where", empty, emit.number(1.0, scale), scale)
        largest = LARGEST[self.to_type]
        y = emit.one("Clip", emit.one("Div", split, safe), min=-largest, max=largest)
        back = emit.cast(emit.reshape(y, x.spec.shape), NATIVE[self.to_type])
        return [back, emit.reshape(stored, [count for count, _ in blocks])]

    def _scales(self, emit: Lowering, highest: Value) -> tuple[Value, Value]:
        """As they are given, and in float32 as they divide."""
        plain = emit.one("Div", highest, emit.number(LARGEST[self.to_type], highest))
        if self.scale_type is DataType.E8M0:
            stored = emit.one("CastToExponent", plain, rounding="up")
            return stored, emit.cast(stored, DType.FP32)
        if self.scale_type is DataType.FLOAT:
            return plain, plain
        if self.scale_type is not DataType.FP8:
            do = "Use DataType.FP8, E8M0 or FLOAT"
            raise emit.refuse(f"scales cannot be {self.scale_type}", do)
        double = self._double(emit)
        limit = LARGEST[DataType.FP8]
        over = emit.one("Clip", emit.one("Div", plain, double), min=0.0, max=limit)
        stored = emit.cast(over, DType.FP8)
        return stored, emit.one("Mul", emit.cast(stored, DType.FP32), double)

    @staticmethod
    def _double(emit: Lowering) -> Value:
        """The scale of the scales, 1 where none is set."""
        found = emit.optional(1)
        if found is None:
            return emit.constant(scalar(1, DType.FP32))
        return emit.reshape(emit.cast(found, DType.FP32), ())

    def _blocks(self, emit: Lowering, x: Value) -> list[tuple[Dim, Dim]]:
        """Of each axis how many blocks there are, and elements in each."""
        rank = x.spec.rank
        shape = list(self.block_shape) or [1] * rank
        if not self.block_shape:
            shape[self.axis % max(rank, 1)] = self.block_size
        if len(shape) != rank:
            raise emit.refuse(f"blocks of shape {shape} of {x.spec}")
        out: list[tuple[Dim, Dim]] = []
        for size, block in zip(x.spec.shape, shape, strict=True):
            each = size if block == -1 else block
            count = exact_div(size, each)
            if count is None:
                raise emit.refuse(f"an axis of {size} has no whole blocks of {each}")
            out.append((count, each))
        return out
