"""Toy layers and an empty network over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix.network.definition import NetworkDefinition
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise

ADD = PointwiseLayer("toy.Add@1", lambda a, b: a + b, commutative=True)
NEG = PointwiseLayer("toy.Neg@1", lambda x: -x)
NEWER = PointwiseLayer("toy.Neg@10", lambda x: 0.0 - x)


@pointwise("toy.Scale@1")
def scale(x, *, factor: float = 1.0):
    """``factor x``."""
    return x * factor


@dataclass(frozen=True)
class FlatAttrs:
    """``shape`` of the result; ``note`` is for show."""

    shape: tuple[Dim, ...] = ()
    note: str = ""


class Flat(Layer):
    """The same elements in another shape."""

    key = "toy.Flat@1"
    Attrs = FlatAttrs

    def infer(self, attrs, inputs):
        return [TensorSpec(inputs[0].dtype, attrs.shape)]

    def reference(self, attrs, *inputs):
        return (inputs[0].reshape(attrs.shape),)


class Halves(Layer):
    """Both halves of the last axis, which must be even."""

    key = "toy.Halves@1"

    def infer(self, attrs, inputs):
        *lead, last = inputs[0].shape
        if isinstance(last, int) and last % 2:
            raise ShapeError(f"{last} is odd")
        return [TensorSpec(inputs[0].dtype, (*lead, last // 2))] * 2

    def reference(self, attrs, *inputs):
        return tuple(np.split(inputs[0], 2, axis=-1))


class Size(Layer):
    """Dims as data."""

    key = "toy.Size@1"

    def infer(self, attrs, inputs):
        return [TensorSpec(DType.INT64, (len(inputs[0].shape),), inputs[0].shape)]

    def reference(self, attrs, *inputs):
        return (np.array(inputs[0].shape, np.int64),)


class Optional(Layer):
    """x, plus b if it is there, times c if that is."""

    key = "toy.Optional@1"

    def infer(self, attrs, inputs):
        return [inputs[0].plain()]

    def reference(self, attrs, *inputs):
        x, b, c = (*inputs, None, None)[:3]
        return ((x if b is None else x + b) * (1 if c is None else c),)


class Broken(Layer):
    """Fails."""

    key = "toy.Broken@1"

    def infer(self, attrs, inputs):
        raise ZeroDivisionError("no wonder")


LAYERS = {
    x.key: x for x in (ADD, NEG, NEWER, scale, Flat(), Halves(), Size(), Optional(), Broken())
}


@pytest.fixture
def net() -> NetworkDefinition:
    """An empty network over the toy layers."""
    return NetworkDefinition(LAYERS, "toy")
