"""Toy layers, a network over them, and a run of some rules over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.layer import Layer
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_sdk.evaluate import evaluate
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise

ADD = PointwiseLayer("toy.Add@1", lambda a, b: a + b, commutative=True)
SUB = PointwiseLayer("toy.Sub@1", lambda a, b: a - b)
NEG = PointwiseLayer("toy.Neg@1", lambda x: -x)
RELU = PointwiseLayer("toy.Relu@1", lambda x: expr.maximum(x, 0.0))


@pointwise("toy.Leaky@1")
def leaky(x: expr.Scalar, *, alpha: float = 0.5) -> expr.Scalar:
    """``alpha x`` below zero."""
    return expr.select(x < 0.0, x * alpha, x)


@dataclass(frozen=True)
class CutAttrs:
    """``at``: where axis 1 is cut."""

    at: int = 1


class Cut(Layer):
    """Two parts of axis 1."""

    key = "toy.Cut@1"
    Attrs = CutAttrs

    def infer(self, attrs, inputs):
        n, c = inputs[0].shape
        return [
            TensorSpec(inputs[0].dtype, (n, attrs.at)),
            TensorSpec(inputs[0].dtype, (n, c - attrs.at)),
        ]

    def reference(self, attrs, *inputs):
        return inputs[0][:, : attrs.at], inputs[0][:, attrs.at :]


class Dense(Layer):
    """``x @ w``, plus ``b`` if it is given: an anchor."""

    key = "toy.Dense@1"

    def infer(self, attrs, inputs):
        return [TensorSpec(inputs[0].dtype, (*inputs[0].shape[:-1], inputs[1].shape[-1]))]

    def reference(self, attrs, *inputs):
        y = inputs[0] @ inputs[1]
        return (y + inputs[2] if len(inputs) > 2 else y,)


class Blank(Layer):
    """Four zeros, of nothing."""

    key = "toy.Blank@1"

    def infer(self, attrs, inputs):
        return [TensorSpec(DType.FP32, (4,))]

    def reference(self, attrs, *inputs):
        return (np.zeros(4, np.float32),)


LAYERS = {layer.key: layer for layer in (ADD, SUB, NEG, RELU, leaky, Cut(), Dense(), Blank())}


@pytest.fixture
def net() -> NetworkDefinition:
    """An empty network over the toy layers."""
    return NetworkDefinition(LAYERS, "toy")


@pytest.fixture
def run() -> Callable[..., tuple[NetworkDefinition, Trace]]:
    """Apply rules; the result is well formed, computes the same, and a second run changes nothing."""

    def apply(net: NetworkDefinition, *rules) -> tuple[NetworkDefinition, Trace]:
        out, trace = fuse(net, rules)
        verify(out, deep=True)
        rng = np.random.default_rng(11)
        inputs = {
            v.name: rng.standard_normal(v.spec.at({"n": 3}), dtype=np.float32) for v in net.inputs
        }
        before, after = evaluate(net, inputs), evaluate(out, inputs)
        assert before.keys() == after.keys()
        for name, expected in before.items():
            np.testing.assert_allclose(after[name], expected, rtol=1e-6, err_msg=name)
        assert not fuse(out, rules)[1].firings
        return out, trace

    return apply
