"""Softmax and its relatives along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, axis_of, float_only, required, wide


@dataclass(frozen=True)
class SoftmaxAttrs:
    """``axis``: the one whose elements add up to 1."""

    axis: int = -1


class AlongAxis(Layer):
    """A layer on floats that keeps the shape and works along one axis."""

    Attrs = SoftmaxAttrs

    def infer(self, attrs: SoftmaxAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        float_only(x, self.key)
        axis_of(attrs.axis, x.rank, self.key)
        return [x.plain()]


def softmax(x: Array, axis: int) -> Array:
    """``exp(x - max) / sum(exp(x - max))``; not a number where all elements are -inf."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
        return e / e.sum(axis=axis, keepdims=True)


class Softmax(AlongAxis):
    """``exp(x) / sum(exp(x))``."""

    key = "tactix.Softmax@1"
    takes_epilogue = True

    def reference(self, attrs: SoftmaxAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (softmax(wide(inputs[0]), attrs.axis).astype(inputs[0].dtype, copy=False),)


class LogSoftmax(AlongAxis):
    """``x - log(sum(exp(x)))``."""

    key = "tactix.LogSoftmax@1"
    takes_epilogue = True

    def reference(self, attrs: SoftmaxAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        with np.errstate(invalid="ignore"):
            shifted = x - x.max(axis=attrs.axis, keepdims=True, initial=-np.inf)
            y = shifted - np.log(np.exp(shifted).sum(axis=attrs.axis, keepdims=True))
        return (y.astype(inputs[0].dtype, copy=False),)


class Hardmax(AlongAxis):
    """1 at the first largest element, else 0."""

    key = "tactix.Hardmax@1"

    def reference(self, attrs: SoftmaxAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        best = np.expand_dims(wide(x).argmax(axis=attrs.axis), attrs.axis)
        y = np.zeros(x.shape, x.dtype)
        np.put_along_axis(y, best, 1, axis=attrs.axis)
        return (y,)


LAYERS: tuple[Layer, ...] = (Softmax(), LogSoftmax(), Hardmax())
