"""Scalar expressions as CUDA C: single elements in float32 for floats of up to 32 bits, else in the
dtype's own type.

As ``c_scalar.emit_scalar``; the statements need the preludes of ``text.preludes()``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix_codegen.c.scalar import WIDE, CannotEmit, Code, emitted
from tactix_codegen.c.scalar_ops import ScalarEmitter
from tactix_codegen.cuda.text import FP8, computed

_BYTES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255)}


def _is_whole(value: float | None) -> bool:
    return value is not None and float(value).is_integer()


class CudaEmitter(ScalarEmitter):
    """The C table, with what differs on the device."""

    def variable_type(self, dtype: DType) -> DType:
        return computed(dtype) if dtype in FP8 else super().variable_type(dtype)

    def result(self, node: Scalar, dtype: DType) -> str:
        # what is cast to 8 bits is rounded where it is stored
        if node.op == "cast" and dtype in FP8 and node.dtype is dtype:
            return self.arg(self._within(node), DType.FP32)
        return self.arg(node, computed(dtype))

    def _within(self, node: Scalar) -> Scalar:
        """What a cast to 8 bits reads, but for what keeps it within their range, as every store
        does. Raises CannotEmit for a cast that does not saturate.
        """
        inner = node.args[0]
        if inner.op == "select" and inner.args[0].op == "isnan":
            return inner.args[1]
        raise CannotEmit(f"a cast to {node.dtype.value} that does not saturate")

    def literal(self, value: float, dtype: DType) -> str:
        if not dtype.is_float or math.isfinite(value):
            return super().literal(value, dtype)
        special = "TX_NAN" if math.isnan(value) else "TX_INF" if value > 0 else "-TX_INF"
        return f"((double)({special}))" if dtype is DType.FP64 else f"({special})"

    def operation(self, node: Scalar, dtype: DType) -> str:
        if node.op == "primitive":
            return _primitive(node, [self.arg(a, dtype) for a in node.args])
        if node.op == "cast" and (of := self._quantized(node)) is not None:
            return f"tx_round_{node.dtype.value}({self.arg(of, DType.FP32)})"
        if node.op == "cast" and node.dtype in FP8:
            name = node.dtype.value
            return f"tx_from_{name}(tx_to_{name}({self.arg(self._within(node), DType.FP32)}))"
        return super().operation(node, dtype)

    def _quantized(self, node: Scalar) -> Scalar | None:
        """What a cast to bytes rounds and keeps within their range: one instruction does both."""
        if node.dtype not in _BYTES or node.args[0].op != "max":
            return None
        low, high = _BYTES[node.dtype]
        inner = node.args[0].args[0]
        if inner.op != "min" or self.value(node.args[0].args[1]) != low:
            return None
        whole = inner.args[0]
        if self.value(inner.args[1]) != high or self.types[id(whole)] is not DType.FP32:
            return None
        if whole.op == "add" and whole.args[0].op == "round":
            zero = self.value(whole.args[1])
            # a sum of whole numbers is whole, and rounding it again does nothing
            return whole.args[0].args[0] if zero == 0 else whole if _is_whole(zero) else None
        return whole.args[0] if whole.op == "round" else None

    def _special(self, node: Scalar) -> str:
        t = self.common_type(node.args)
        if node.op == "isnan" or not t.is_float:
            return super()._special(node)
        return f"fabs{'' if t is DType.FP64 else 'f'}({self.arg(node.args[0], t)}) == TX_INF"

    def _float(self, node: Scalar, dtype: DType) -> str:
        if dtype is not DType.FP64 and (of := _of_gelu(node)) is not None:
            width = "_16" if self._has_16_bits(of) else ""
            return f"tx_gelu{width}({self.arg(of, dtype)})"
        if node.op in ("exp", "tanh", "div") and self._has_16_bits(node):
            return self._exponential_16(node, dtype)
        if node.op == "pow" and (power := self.value(node.args[1])) in (2, 3):
            x = self.arg(node.args[0], dtype)
            return " * ".join([x] * int(power))
        if node.op == "erf" and dtype is not DType.FP64:
            return f"tx_erf({self.arg(node.args[0], dtype)})"
        if node.op in ("min", "max") and dtype is not DType.FP64:
            return (
                f"tx_f{node.op}({self.arg(node.args[0], dtype)}, {self.arg(node.args[1], dtype)})"
            )
        return super()._float(node, dtype)

    def _has_16_bits(self, node: Scalar) -> bool:
        """Whether it is computed in float32 for a result of 16 bits."""
        return expr.result_dtype(node, self.dtypes) in WIDE

    def _exponential_16(self, node: Scalar, dtype: DType) -> str:
        """An exponential, a hyperbolic tangent, or a quotient: one by an exponential and 1, as in
        Sigmoid and Swish, need not be exact. Others are: what follows may be a Floor.
        """
        if node.op != "div":
            return f"tx_{node.op}_16({self.arg(node.args[0], dtype)})"
        if (power := self._of_logistic(node.args[1])) is None:
            return super()._float(node, dtype)
        text = f"tx_logistic_16({self.arg(power, dtype)})"
        above = node.args[0]
        return text if self.value(above) == 1 else f"{self.arg(above, dtype)} * {text}"

    def _of_logistic(self, below: Scalar) -> Scalar | None:
        """``x`` of ``1 + exp(x)``."""
        if below.op != "add" or self.value(below.args[0]) != 1 or below.args[1].op != "exp":
            return None
        return below.args[1].args[0]


def _of_gelu(node: Scalar) -> Scalar | None:
    """``x`` where a node is the exact Gelu of it, as the layer writes it: equal expressions are one
    object.
    """
    if node.op != "mul" or node.args[0].op != "mul" or node.args[1].op != "add":
        return None
    x = node.args[0].args[1]
    return x if node is 0.5 * x * (1.0 + expr.erf(x * 0.5**0.5)) else None


def _primitive(node: Scalar, names: Sequence[str]) -> str:
    text = dict(node.primitive.texts).get("cuda")
    if text is None:
        raise CannotEmit(f"primitive {node.primitive.name} has no CUDA text")
    return str(text.format(*names))


def emit(
    results: Sequence[Scalar], leaves: Mapping[int, str], dtypes: Sequence[DType], tag: str = "t"
) -> Code:
    """Statements for one element; ``leaves`` name the variables that the results have. Raises
    CannotEmit.
    """
    named = [leaves.get(i, "") for i in range(len(dtypes))]
    return emitted(CudaEmitter(named, dtypes, tag), results, dtypes)


def why_not(results: Sequence[Scalar], dtypes: Sequence[DType]) -> str:
    """Empty if ``emit`` can do it, else the reason."""
    try:
        emit(results, {i: f"x{i}" for i in range(len(dtypes))}, dtypes)
    except CannotEmit as e:
        return e.what
    return ""
