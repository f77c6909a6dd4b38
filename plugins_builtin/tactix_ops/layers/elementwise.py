"""Arithmetic on elements: all pointwise."""

from __future__ import annotations

import dataclasses
from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.expr import Scalar, select
from tactix.contracts.layer import Layer
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise


@pointwise("tactix.Add@1", onnx="ai.onnx::Add", commutative=True)
def add(a: Scalar, b: Scalar) -> Scalar:
    """``a + b``."""
    return a + b


@pointwise("tactix.Sub@1", onnx="ai.onnx::Sub")
def sub(a: Scalar, b: Scalar) -> Scalar:
    """``a - b``."""
    return a - b


@pointwise("tactix.Mul@1", onnx="ai.onnx::Mul", commutative=True)
def mul(a: Scalar, b: Scalar) -> Scalar:
    """``a * b``."""
    return a * b


@pointwise("tactix.Div@1", onnx="ai.onnx::Div")
def div(a: Scalar, b: Scalar) -> Scalar:
    """``a / b``; integers truncate toward zero."""
    return a / b


@pointwise("tactix.Pow@1", onnx="ai.onnx::Pow")
def power(a: Scalar, b: Scalar) -> Scalar:
    """``a`` to the power ``b``, in the dtype of ``a``."""
    return expr.pow_(a, b)


@pointwise("tactix.Mod@1", onnx="ai.onnx::Mod")
def mod(a: Scalar, b: Scalar, *, fmod: bool = False) -> Scalar:
    """The remainder: with the sign of ``b``, or with ``fmod`` that of ``a``."""
    return expr.fmod(a, b) if fmod else expr.mod(a, b)


@pointwise("tactix.Min@1", commutative=True)
def minimum(a: Scalar, b: Scalar) -> Scalar:
    """The smaller; NaN if either is."""
    return expr.minimum(a, b)


@pointwise("tactix.Max@1", commutative=True)
def maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger; NaN if either is."""
    return expr.maximum(a, b)


@pointwise("tactix.Sign@1", onnx="ai.onnx::Sign")
def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1."""
    return select(x > 0, 1.0, select(x < 0, -1.0, x))


@pointwise("tactix.Reciprocal@1", onnx="ai.onnx::Reciprocal")
def reciprocal(x: Scalar) -> Scalar:
    """``1 / x``."""
    return 1.0 / x


@pointwise("tactix.Clip@1")
def clip(x: Scalar, *, min: float = float("-inf"), max: float = float("inf")) -> Scalar:
    """``x`` kept within [min, max]; ``max`` wins where they cross."""
    low = expr.maximum(x, min) if min != float("-inf") else x
    return expr.minimum(low, max) if max != float("inf") else low


@dataclasses.dataclass(frozen=True)
class CastAttrs:
    """``to``: the dtype of the result. ``saturate``: whether floats beyond an 8-bit or 4-bit range
    become its ends.
    """

    to: DType = DType.FP32
    saturate: bool = True


_HIGHEST = {
    DType.FP8: 448.0, DType.FP8E5M2: 57344.0, DType.FP8FNUZ: 240.0, DType.FP8E5M2FNUZ: 57344.0,
    DType.FP4: 6.0,
}  # fmt: skip


def _cast(x: Scalar, to: DType, saturate: bool) -> Scalar:
    high = _HIGHEST.get(to)
    if high is not None and saturate:
        x = select(expr.isnan(x), x, expr.minimum(expr.maximum(x, -high), high))
    return expr.cast(x, to)


CAST = PointwiseLayer(
    "tactix.Cast@1",
    _cast,
    CastAttrs,
    doc="The same numbers in another dtype; floats to integers truncate toward zero.",
)

_UNARY = (
    ("Abs", expr.abs_), ("Exp", expr.exp), ("Log", expr.log), ("Sqrt", expr.sqrt),
    ("Erf", expr.erf), ("Floor", expr.floor), ("Ceil", expr.ceil), ("Round", expr.round_),
    ("Sin", expr.sin), ("Cos", expr.cos), ("Tan", expr.tan), ("Asin", expr.asin),
    ("Acos", expr.acos), ("Atan", expr.atan), ("Sinh", expr.sinh), ("Cosh", expr.cosh),
    ("Asinh", expr.asinh), ("Acosh", expr.acosh), ("Atanh", expr.atanh),
)  # fmt: skip


def _unary(name: str, function: Any) -> PointwiseLayer:
    return PointwiseLayer(
        f"tactix.{name}@1", function, imports=(f"onnx:ai.onnx::{name}",), doc=function.__doc__
    )


@pointwise("tactix.Neg@1", onnx="ai.onnx::Neg")
def neg(x: Scalar) -> Scalar:
    """``-x``."""
    return -x


LAYERS: tuple[Layer, ...] = (
    add,
    sub,
    mul,
    div,
    power,
    mod,
    minimum,
    maximum,
    sign,
    reciprocal,
    clip,
    neg,
    CAST,
    *(_unary(name, function) for name, function in _UNARY),
)
