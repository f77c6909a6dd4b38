"""Products of 8-bit integers summed in int32, and the scalar steps between integers and numbers.

A quantised tensor q stands for ``(q - zero) scale``. Rules turn what a model writes as dequantise,
compute, quantise into these layers: the zero points of activations become a term of the bias, the
scales a factor after the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.expr import Scalar, cast, maximum, minimum, round_
from tactix.contracts.layer import Layer
from tactix_ops.layers import windows as win
from tactix_ops.layers import work
from tactix_ops.layers.common import Array, Specs, optional, pick, required
from tactix_ops.layers.conv import Convolution, ConvolutionAttrs, correlate
from tactix_ops.layers.matmul import MatMul
from tactix_ops.layers.quantize import limits
from tactix_sdk.scalar_layer import PointwiseLayer

BYTES = (DType.UINT8, DType.INT8)


@dataclass(frozen=True)
class IntegerConvolutionAttrs(ConvolutionAttrs):
    """``pad_value``: what pads hold, the zero point of x."""

    pad_value: int = 0


def _check(layer: Layer, x: TensorSpec, w: TensorSpec, b: TensorSpec | None) -> None:
    """Raises DTypeError."""
    if (
        x.dtype not in BYTES
        or w.dtype is not DType.INT8
        or (b is not None and b.dtype is not DType.INT32)
    ):
        raise DTypeError(
            f"{layer.key} takes 8-bit integers, signed ones and int32, not {x}, {w}, {b}"
        )


def _samples(inputs: Specs, rng: Any) -> list[Any]:
    """Numbers over the whole range of 8-bit dtypes, and int32 as biases are."""
    out: list[Any] = []
    for s in inputs:
        if s is None or s.const is not None:
            out.append(None if s is None else s.const)
            continue
        low, high = limits(s.dtype) if s.dtype in BYTES else (-1000, 1000)
        out.append(rng.integers(low, high, s.at({}), endpoint=True).astype(s.dtype.numpy))
    return out


class IntegerConvolution(Layer):
    """As Convolution over integers; pads hold ``pad_value``.

    x: (N, C, spatial...) u8 or i8, w: (M, C / group, kernel...) i8, b: (M,) i32 or absent; y: (N,
    M, out...) i32.
    """

    key = "tactix.IntegerConvolution@1"
    takes_epilogue = True
    Attrs = IntegerConvolutionAttrs

    def infer(self, attrs: IntegerConvolutionAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w = required(self, inputs, 2)
        _check(self, x, w, optional(inputs, 2))
        return [TensorSpec(DType.INT32, Convolution().shape(attrs, inputs))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.convolution(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, w, b = inputs[0].astype(np.float64), inputs[1].astype(np.float64), pick(inputs, 2)
        n = x.ndim - 2
        around = win.padded(x, attrs.pads or (0,) * 2 * n, attrs.pad_value)
        y = correlate(
            around, w, attrs.strides or (1,) * n, attrs.dilations or (1,) * n, attrs.group
        )
        return ((y + (0 if b is None else b.reshape(-1, *(1,) * n))).astype(np.int32),)

    def sample(self, attrs: Any, inputs: Specs, rng: Any) -> list[Any]:
        return _samples(inputs, rng)


class IntegerMatMul(Layer):
    """``a @ b + c``: a (..., m, k) u8 or i8, b (k, n) i8, c (n,) i32 or none; y (..., m, n) i32."""

    key = "tactix.IntegerMatMul@1"
    takes_epilogue = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        _check(self, a, b, optional(inputs, 2))
        return [TensorSpec(DType.INT32, MatMul().shape(a, b))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        y = np.matmul(inputs[0].astype(np.float64), inputs[1].astype(np.float64))
        c = pick(inputs, 2)
        return (np.asarray(y + (0 if c is None else c)).astype(np.int32),)

    def sample(self, attrs: Any, inputs: Specs, rng: Any) -> list[Any]:
        return _samples(inputs, rng)


class ByteMatMul(Layer):
    """``(a - z) @ (b - w)`` in int32, which wraps: a (..., m, k) and b (..., k, n) as MatMul takes
    them, u8 or i8; z and w: one int32 each, or absent for 0.
    """

    key = "tactix.ByteMatMul@1"
    takes_epilogue = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        zeros = [s for s in (optional(inputs, 2), optional(inputs, 3)) if s is not None]
        if any(s.dtype not in BYTES for s in (a, b)) or any(
            z.dtype is not DType.INT32 or z.numel != 1 for z in zeros
        ):
            raise DTypeError(
                f"{self.key} takes 8-bit integers and zero points of one int32: {inputs}"
            )
        return [TensorSpec(DType.INT32, MatMul().shape(a, b))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        a, b = (x.astype(np.float64) for x in inputs[:2])
        z, w = (pick(inputs, i) for i in (2, 3))
        a = a if z is None else a - z.reshape(())
        b = b if w is None else b - w.reshape(())
        return (np.asarray(np.matmul(a, b)).astype(np.int64).astype(np.int32),)

    def sample(self, attrs: Any, inputs: Specs, rng: Any) -> list[Any]:
        return _samples(inputs, rng)


@dataclass(frozen=True)
class ToIntegerAttrs:
    """``zero``: added after rounding; ``dtype``: of the result, whose range it is kept in."""

    zero: int = 0
    dtype: DType = DType.UINT8


def _quantize(x: Scalar, zero: int, dtype: DType) -> Scalar:
    low, high = limits(dtype)
    return cast(maximum(minimum(round_(x) + float(zero), float(high)), float(low)), dtype)


@dataclass(frozen=True)
class FromIntegerAttrs:
    """``(x - zero) scale``."""

    zero: int = 0
    scale: float = 1.0


def _dequantize(x: Scalar, zero: int, scale: float) -> Scalar:
    wide = cast(x, DType.FP32)
    return (wide - float(zero) if zero else wide) * scale


QUANTIZE = PointwiseLayer(
    "tactix.Quantize@1",
    _quantize,
    ToIntegerAttrs,
    doc="``round(x) + zero``, to even, kept within the dtype's range.",
)
DEQUANTIZE = PointwiseLayer(
    "tactix.Dequantize@1", _dequantize, FromIntegerAttrs, doc="``(x - zero) scale``."
)

LAYERS: tuple[Layer, ...] = (
    IntegerConvolution(),
    IntegerMatMul(),
    ByteMatMul(),
    QUANTIZE,
    DEQUANTIZE,
)
