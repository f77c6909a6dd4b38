"""Layers that a rule of lower precision exchanges: one in float32, one in half precision by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer


class Product(Layer):
    """As large as its input, float32."""

    def __init__(self, key: str) -> None:
        self.key = key

    def infer(self, attrs: Any, inputs: Any) -> list[TensorSpec]:
        return [TensorSpec(DType.FP32, inputs[0].shape)]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0].astype(np.float32),)


WIDE, HALF = Product("t.Wide@1"), Product("t.Half@1")
