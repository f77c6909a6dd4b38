"""Products of 16-bit floats whose sums stay float32: what hardware for bfloat16 computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import Array, Specs, optional, pick, required
from tactix_ops.layers.conv import Convolution, ConvolutionAttrs, ConvTranspose, ConvTransposeAttrs
from tactix_ops.layers.matmul import MatMul
from tactix_ops.layers.pool import GlobalAveragePool

HALVES = (DType.BF16, DType.FP16)


def _check(layer: Layer, x: TensorSpec, w: TensorSpec, b: TensorSpec | None) -> None:
    """Raises DTypeError."""
    if (
        x.dtype not in HALVES
        or w.dtype is not x.dtype
        or (b is not None and b.dtype is not DType.FP32)
    ):
        raise DTypeError(
            f"{layer.key} takes two tensors of one 16-bit float and "
            f"a float32 bias, not {x}, {w}, {b}"
        )


class WideConvolution(Layer):
    """As Convolution, summed in float32 and not rounded. x, w: 16-bit floats; b: f32 or absent; y:
    f32.
    """

    key = "tactix.WideConvolution@1"
    takes_epilogue = True
    Attrs = ConvolutionAttrs

    def infer(self, attrs: ConvolutionAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w = required(self, inputs, 2)
        _check(self, x, w, optional(inputs, 2))
        return [TensorSpec(DType.FP32, Convolution().shape(attrs, inputs))]

    def operations(self, attrs: ConvolutionAttrs, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.convolution(inputs, outputs)

    def reference(self, attrs: ConvolutionAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, w = (v.astype(np.float32) for v in inputs[:2])
        return Convolution().reference(attrs, x, w, *inputs[2:])


class WideConvTranspose(Layer):
    """As ConvTranspose, summed in float32 and not rounded. x, w: 16-bit floats; b: f32 or absent;
    y: f32.
    """

    key = "tactix.WideConvTranspose@1"
    takes_epilogue = True
    Attrs = ConvTransposeAttrs

    def infer(self, attrs: ConvTransposeAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w = required(self, inputs, 2)
        _check(self, x, w, optional(inputs, 2))
        return [TensorSpec(DType.FP32, ConvTranspose().shape(attrs, inputs))]

    def operations(
        self, attrs: ConvTransposeAttrs, inputs: Specs, outputs: list[TensorSpec]
    ) -> Dim:
        return work.spread(inputs)

    def reference(self, attrs: ConvTransposeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, w = (v.astype(np.float32) for v in inputs[:2])
        return ConvTranspose().reference(attrs, x, w, *inputs[2:])


class WideMatMul(Layer):
    """``a @ b + c`` summed in float32, not rounded. a (..., m, k), b (k, n): 16-bit floats; c: (n,)
    f32 or absent.
    """

    key = "tactix.WideMatMul@1"
    takes_epilogue = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        _check(self, a, b, optional(inputs, 2))
        return [TensorSpec(DType.FP32, MatMul().shape(a, b))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        y = np.matmul(inputs[0].astype(np.float32), inputs[1].astype(np.float32))
        c = pick(inputs, 2)
        return (y if c is None else y + c,)


class WideGlobalAveragePool(GlobalAveragePool):
    """The mean over the spatial axes, not rounded. x (N, C, spatial...): 16-bit floats; y (N, C,
    1...): f32.
    """

    key = "tactix.WideGlobalAveragePool@1"
    takes_epilogue = True
    imports: tuple[str, ...] = ()

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        (y,) = super().infer(attrs, inputs)
        if y.dtype not in HALVES:
            raise DTypeError(f"{self.key} takes 16-bit floats, not {y}")
        return [TensorSpec(DType.FP32, y.shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return super().reference(attrs, inputs[0].astype(np.float32))


LAYERS: tuple[Layer, ...] = (
    WideConvolution(),
    WideConvTranspose(),
    WideMatMul(),
    WideGlobalAveragePool(),
)
