"""Products of 8-bit floats, summed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import Array, Specs, required
from tactix_ops.layers.matmul import MatMul

FLOATS = (DType.FP8, DType.FP8E5M2)


class Float8MatMul(Layer):
    """``a @ b``: a (..., m, k) and b (k, n): f8e4m3 or f8e5m2; y (..., m, n) f32, not scaled."""

    key = "tactix.Float8MatMul@1"
    takes_epilogue = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = required(self, inputs, 2)
        if a.dtype not in FLOATS or b.dtype not in FLOATS:
            raise DTypeError(f"{self.key} takes two tensors of 8-bit floats, not {a} and {b}")
        return [TensorSpec(DType.FP32, MatMul().shape(a, b))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.matmul(inputs[0].astype(np.float32), inputs[1].astype(np.float32)),)


LAYERS: tuple[Layer, ...] = (Float8MatMul(),)
