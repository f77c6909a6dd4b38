"""Squeeze and excitation (Hu et al., "Squeeze-and-Excitation Networks", 2018), up to the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, prod
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import activation
from tactix_ops.layers.common import Array, Specs, pick, required, wide
from tactix_sdk.scalar_layer import PointwiseLayer

ACTIVATIONS: dict[str, PointwiseLayer] = {
    layer.name: layer
    for layer in (
        activation.relu,
        activation.swish,
        activation.hard_swish,
        activation.sigmoid,
        activation.hyperbolic_tangent,
        activation.mish,
    )
}
"""What may stand between both products, with its default attributes."""


@dataclass(frozen=True)
class SqueezeExcitationAttrs:
    """``activation``: the name of a layer in ACTIVATIONS."""

    activation: str = "Relu"


class SqueezeExcitation(Layer):
    """``act(mean(x) w + b) v + c``, the mean over the pixels of each channel, nothing rounded but
    the result.

    x (N, C, spatial...), w (R, C, 1...), b (R,) or absent, v (M, R, 1...), c (M,) or absent: one
    float dtype; y (N, M, 1...).
    """

    key = "tactix.SqueezeExcitation@1"
    takes_epilogue = True
    Attrs = SqueezeExcitationAttrs

    def infer(self, attrs: SqueezeExcitationAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w, v = required(self, [inputs[0], inputs[1], inputs[3] if len(inputs) > 3 else None], 3)
        if attrs.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise InvalidArgument(f"{self.key} has no {attrs.activation}", do=f"It has: {known}")
        if {s.dtype for s in inputs if s is not None} != {x.dtype} or not x.dtype.is_float:
            raise DTypeError(f"{self.key} takes one float dtype, not {inputs}")
        ones = (1,) * (x.rank - 2)
        if x.rank < 3 or w.shape[1:] != (x.shape[1], *ones) or v.shape[1:] != (w.shape[0], *ones):
            raise ShapeError(f"{self.key}: {w} and {v} are no products of the channels of {x}")
        return [TensorSpec(x.dtype, (x.shape[0], v.shape[0], *ones))]

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        x, w, v = required(self, [inputs[0], inputs[1], inputs[3]], 3)
        return prod(x.shape) + 2 * x.shape[0] * (prod(w.shape) + prod(v.shape))

    def reference(self, attrs: SqueezeExcitationAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, w, v = (wide(inputs[i]) for i in (0, 1, 3))
        b, c = pick(inputs, 2), pick(inputs, 4)
        means = x.mean(axis=tuple(range(2, x.ndim)))
        hidden = means @ w.reshape(w.shape[:2]).T + (0 if b is None else wide(b))
        act = ACTIVATIONS[attrs.activation]
        (made,) = act.reference(act.Attrs(), hidden.astype(x.dtype))
        y = made @ v.reshape(v.shape[:2]).T + (0 if c is None else wide(c))
        return (np.asarray(y).astype(inputs[0].dtype).reshape(*y.shape, *(1,) * (x.ndim - 2)),)


LAYERS: tuple[Layer, ...] = (SqueezeExcitation(),)
FLOATS = (DType.FP32, DType.FP16, DType.BF16)
