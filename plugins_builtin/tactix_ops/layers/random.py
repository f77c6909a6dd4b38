"""Random numbers, by numpy's default generator.

Names begin with Random: rules and the importer neither compute such layers while building nor merge
equal ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, float_only, required


def generator(seed: float | None) -> Any:
    """Of a seed always the same; without one, a new one each time."""
    return np.random.default_rng(None if seed is None else int(np.float64(seed).view(np.uint64)))


class Drawn(Layer):
    """Floats of the shape and dtype that the attributes name; no inputs."""

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        out = TensorSpec(attrs.dtype, attrs.shape)
        float_only(out, self.key)
        return [out]


@dataclass(frozen=True)
class RandomNormalAttrs:
    """``seed``: every run gives the same numbers; None: each run gives others."""

    shape: tuple[Dim, ...] = ()
    dtype: DType = DType.FP32
    mean: float = 0.0
    scale: float = 1.0
    seed: float | None = None


class RandomNormal(Drawn):
    """Numbers of the normal distribution with that mean and standard deviation; no inputs."""

    key = "tactix.RandomNormal@1"
    Attrs = RandomNormalAttrs

    def draws(self, attrs: RandomNormalAttrs) -> bool:
        return attrs.seed is None

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        numbers = generator(attrs.seed).normal(attrs.mean, attrs.scale, attrs.shape)
        return (numbers.astype(attrs.dtype.numpy),)


@dataclass(frozen=True)
class RandomUniformAttrs:
    """``low`` to ``high``. ``seed``: as that of RandomNormal."""

    shape: tuple[Dim, ...] = ()
    dtype: DType = DType.FP32
    low: float = 0.0
    high: float = 1.0
    seed: float | None = None


class RandomUniform(Drawn):
    """Numbers anywhere from ``low`` to ``high``, which only rounding reaches; no inputs."""

    key = "tactix.RandomUniform@1"
    Attrs = RandomUniformAttrs

    def draws(self, attrs: RandomUniformAttrs) -> bool:
        return attrs.seed is None

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        numbers = generator(attrs.seed).uniform(attrs.low, attrs.high, attrs.shape)
        return (numbers.astype(attrs.dtype.numpy),)


@dataclass(frozen=True)
class RandomBernoulliAttrs:
    """``dtype``: of the result. ``seed``: as that of RandomNormal."""

    dtype: DType = DType.FP32
    seed: float | None = None


class RandomBernoulli(Layer):
    """1 with the probability that x gives for the element, else 0."""

    key = "tactix.RandomBernoulli@1"
    Attrs = RandomBernoulliAttrs

    def draws(self, attrs: RandomBernoulliAttrs) -> bool:
        return attrs.seed is None

    def infer(self, attrs: RandomBernoulliAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        float_only(x, self.key)
        return [TensorSpec(attrs.dtype, x.shape)]

    def reference(self, attrs: RandomBernoulliAttrs, *inputs: Array) -> tuple[Array, ...]:
        hit = generator(attrs.seed).random(inputs[0].shape) < inputs[0].astype(np.float64)
        return (np.asarray(hit).astype(attrs.dtype.numpy),)

    def sample(self, attrs: RandomBernoulliAttrs, inputs: Specs, rng: Any) -> list[Any]:
        (x,) = required(self, inputs, 1)
        return [x.const if x.is_const else rng.random(x.at({})).astype(x.dtype.numpy)]


@dataclass(frozen=True)
class RandomMultinomialAttrs:
    """``sample_size``: draws per row. ``dtype``: of the result. ``seed``: as RandomNormal's."""

    sample_size: int = 1
    dtype: DType = DType.INT32
    seed: float | None = None


class RandomMultinomial(Layer):
    """Classes drawn, with replacement, from rows (N, classes) of logarithms of weights: (N,
    sample_size).
    """

    key = "tactix.RandomMultinomial@1"
    Attrs = RandomMultinomialAttrs

    def draws(self, attrs: RandomMultinomialAttrs) -> bool:
        return attrs.seed is None

    def infer(self, attrs: RandomMultinomialAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        float_only(x, self.key)
        if x.rank != 2:
            raise ShapeError(f"{self.key} takes (N, classes), not {x}")
        if not attrs.dtype.is_int:
            raise DTypeError(f"{self.key} gives integers, not {attrs.dtype.value}")
        return [TensorSpec(attrs.dtype, (x.shape[0], attrs.sample_size))]

    def reference(self, attrs: RandomMultinomialAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0].astype(np.float64)
        sums = np.cumsum(np.exp(x - x.max(axis=1, keepdims=True)), axis=1)
        draws = generator(attrs.seed).random((len(x), attrs.sample_size)) * sums[:, -1:]
        found = [np.searchsorted(s, d, side="right") for s, d in zip(sums, draws)]
        return (np.array(found).reshape(draws.shape).astype(attrs.dtype.numpy),)


LAYERS: tuple[Layer, ...] = (
    RandomNormal(),
    RandomUniform(),
    RandomBernoulli(),
    RandomMultinomial(),
)
