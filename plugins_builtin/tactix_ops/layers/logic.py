"""Comparisons, truth values and bits: all pointwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Specs
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise


class Logical(PointwiseLayer):
    """A pointwise layer whose first ``truths`` inputs must be booleans."""

    truths: int = 2

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        for s in inputs[: self.truths]:
            if s is not None and s.dtype is not DType.BOOL:
                raise DTypeError(f"{self.key} takes a boolean, not {s.dtype.value}")
        return super().infer(attrs, inputs)


class Bitwise(PointwiseLayer):
    """A pointwise layer on integers."""

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        for s in inputs:
            if s is not None and not s.dtype.is_int:
                raise DTypeError(f"{self.key} takes integers, not {s.dtype.value}")
        return super().infer(attrs, inputs)


class Selection(Logical):
    """A selection: the condition is a boolean, the alternatives have one dtype."""

    truths = 1

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = inputs[1:]
        if a is not None and b is not None and a.dtype is not b.dtype:
            raise DTypeError(
                f"{self.key} takes alternatives of one dtype, "
                f"not {a.dtype.value} and {b.dtype.value}"
            )
        return super().infer(attrs, inputs)


def _onnx(name: str) -> tuple[str, ...]:
    return (f"onnx:ai.onnx::{name}",)


NOT = Logical("tactix.Not@1", expr.not_, imports=_onnx("Not"), doc="The other truth value.")
AND = Logical(
    "tactix.And@1", expr.and_, commutative=True, imports=_onnx("And"), doc="Whether both hold."
)
OR = Logical(
    "tactix.Or@1", expr.or_, commutative=True, imports=_onnx("Or"), doc="Whether one or both hold."
)
XOR = Logical(
    "tactix.Xor@1",
    expr.xor,
    commutative=True,
    imports=_onnx("Xor"),
    doc="Whether exactly one holds.",
)
WHERE = Selection(
    "tactix.Where@1",
    expr.select,
    imports=_onnx("Where"),
    doc="``a`` where the condition holds, else ``b``.",
)


@pointwise("tactix.Equal@1", onnx="ai.onnx::Equal", commutative=True)
def equal(a: Scalar, b: Scalar) -> Scalar:
    """``a == b``."""
    return expr.eq(a, b)


@pointwise("tactix.Less@1", onnx="ai.onnx::Less")
def less(a: Scalar, b: Scalar) -> Scalar:
    """``a < b``."""
    return a < b


@pointwise("tactix.LessOrEqual@1", onnx="ai.onnx::LessOrEqual")
def less_or_equal(a: Scalar, b: Scalar) -> Scalar:
    """``a <= b``."""
    return a <= b


@pointwise("tactix.Greater@1", onnx="ai.onnx::Greater")
def greater(a: Scalar, b: Scalar) -> Scalar:
    """``a > b``."""
    return a > b


@pointwise("tactix.GreaterOrEqual@1", onnx="ai.onnx::GreaterOrEqual")
def greater_or_equal(a: Scalar, b: Scalar) -> Scalar:
    """``a >= b``."""
    return a >= b


@pointwise("tactix.IsNaN@1", onnx="ai.onnx::IsNaN")
def is_nan(x: Scalar) -> Scalar:
    """Whether it is not a number."""
    return expr.isnan(x)


@pointwise("tactix.IsInf@1", onnx="ai.onnx::IsInf")
def is_inf(x: Scalar, *, detect_negative: bool = True, detect_positive: bool = True) -> Scalar:
    """Whether it is infinite, of a sign that is looked for."""
    if detect_negative and detect_positive:
        return expr.isinf(x)
    if not detect_negative and not detect_positive:
        return expr.and_(expr.isinf(x), False)
    return expr.and_(expr.isinf(x), x > 0 if detect_positive else x < 0)


@dataclass(frozen=True)
class ShiftAttrs:
    """``direction``: ``LEFT`` or ``RIGHT``."""

    direction: str = "LEFT"


def _shift(a: Scalar, b: Scalar, direction: str) -> Scalar:
    return expr.shl(a, b) if direction == "LEFT" else expr.shr(a, b)


SHIFT = Bitwise(
    "tactix.BitShift@1",
    _shift,
    ShiftAttrs,
    imports=_onnx("BitShift"),
    doc="Bits of ``a`` moved by ``b``.",
)
BIT_NOT = Bitwise(
    "tactix.BitwiseNot@1", expr.bitnot, imports=_onnx("BitwiseNot"), doc="Every bit turned."
)
BIT_AND = Bitwise(
    "tactix.BitwiseAnd@1",
    expr.bitand,
    commutative=True,
    imports=_onnx("BitwiseAnd"),
    doc="Bits that both have.",
)
BIT_OR = Bitwise(
    "tactix.BitwiseOr@1",
    expr.bitor,
    commutative=True,
    imports=_onnx("BitwiseOr"),
    doc="Bits that either has.",
)
BIT_XOR = Bitwise(
    "tactix.BitwiseXor@1",
    expr.bitxor,
    commutative=True,
    imports=_onnx("BitwiseXor"),
    doc="Bits that one has.",
)

LAYERS: tuple[Layer, ...] = (
    NOT,
    AND,
    OR,
    XOR,
    WHERE,
    equal,
    less,
    less_or_equal,
    greater,
    greater_or_equal,
    is_nan,
    is_inf,
    BIT_NOT,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    SHIFT,
)
