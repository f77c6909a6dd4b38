"""Normalisation layers. 16-bit floats are computed in float32; variances are of the whole
population.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.base.dims import Shape, assume, broadcast_shapes, compare
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import (
    Array,
    Specs,
    axis_of,
    float_only,
    pick,
    required,
    same_dim,
    wide,
)


@dataclass(frozen=True)
class EpsilonAttrs:
    """``epsilon`` is added to the variance."""

    epsilon: float = 1e-5


def _channels(layer: Layer, inputs: Specs, parameters: int) -> TensorSpec:
    """x of (N, C, ...) after a check that each parameter is (C,)."""
    x, *rest = required(layer, inputs, 1 + parameters)
    float_only(x, layer.key)
    if x.rank < 2:
        raise ShapeError(f"{layer.key} takes (N, C, ...), not {x}")
    for s in rest:
        if s.rank != 1:
            raise ShapeError(f"{layer.key}: a parameter has rank {s.rank}, not 1")
        same_dim(x.shape[1], s.shape[0], layer.key, "the number of channels")
    return x


def _column(parameter: Array, rank: int) -> Array:
    """(C,) as (C, 1, ...): to broadcast over (N, C, ...)."""
    return wide(parameter).reshape(-1, *(1,) * (rank - 2))


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(epsilon))


class BatchNormalization(Layer):
    """``scale (x - mean) / sqrt(var + epsilon) + bias`` per channel, with the statistics given."""

    key = "tactix.BatchNormalization@1"
    Attrs = EpsilonAttrs

    def infer(self, attrs: EpsilonAttrs, inputs: Specs) -> list[TensorSpec]:
        x = _channels(self, inputs, 4)
        float_only(x, self.key)
        return [x.plain()]

    def reference(self, attrs: EpsilonAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        scale, bias, mean, var = (_column(p, max(x.ndim, 2)).astype(x.dtype) for p in inputs[1:])
        y = (x - mean) * (scale / np.sqrt(var + x.dtype.type(attrs.epsilon))) + bias
        return (y.astype(inputs[0].dtype, copy=False),)


class InstanceNormalization(Layer):
    """Each sample's channel to mean 0 and variance 1 over its spatial axes, then ``scale`` and
    ``bias`` per channel.
    """

    key = "tactix.InstanceNormalization@1"
    takes_epilogue = True
    Attrs = EpsilonAttrs
    imports = ("onnx:ai.onnx::InstanceNormalization",)

    def infer(self, attrs: EpsilonAttrs, inputs: Specs) -> list[TensorSpec]:
        return [_channels(self, inputs, 2).plain()]

    def reference(self, attrs: EpsilonAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        y = _standardized(x, tuple(range(2, x.ndim)), attrs.epsilon)
        y = y * _column(inputs[1], x.ndim) + _column(inputs[2], x.ndim)
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class GroupNormalizationAttrs(EpsilonAttrs):
    """``num_groups`` divides the number of channels."""

    num_groups: int = 1


class GroupNormalization(Layer):
    """Each sample's group of channels to mean 0 and variance 1, then ``scale`` and ``bias`` per
    channel.
    """

    key = "tactix.GroupNormalization@1"
    takes_epilogue = True
    Attrs = GroupNormalizationAttrs

    def infer(self, attrs: GroupNormalizationAttrs, inputs: Specs) -> list[TensorSpec]:
        x = _channels(self, inputs, 2)
        channels = x.shape[1]
        if isinstance(channels, int) and channels % attrs.num_groups:
            raise ShapeError(f"{self.key}: {channels} channels in {attrs.num_groups} groups")
        return [x.plain()]

    def reference(self, attrs: GroupNormalizationAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        groups = x.reshape(
            x.shape[0], attrs.num_groups, x.shape[1] // attrs.num_groups, *x.shape[2:]
        )
        y = _standardized(groups, tuple(range(2, groups.ndim)), attrs.epsilon).reshape(x.shape)
        y = y * _column(inputs[1], x.ndim) + _column(inputs[2], x.ndim)
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class LayerNormalizationAttrs(EpsilonAttrs):
    """``axis``: the first of the normalised axes, which go to the last."""

    axis: int = -1


def _tail(layer: Layer, axis: int, inputs: Specs) -> TensorSpec:
    """x after a check that the parameters broadcast to its axes from ``axis`` on."""
    (x,) = required(layer, inputs, 1)
    float_only(x, layer.key)
    tail: Shape = x.shape[axis_of(axis, x.rank, layer.key) :]
    for s in inputs[1:]:
        if s is None:
            continue
        broken = f"{layer.key}: a parameter {s} does not broadcast to {x} with axes {len(tail)}"
        together = broadcast_shapes(x.shape, s.shape)
        if len(together) != x.rank:
            raise ShapeError(broken)
        for size, own in zip(together, x.shape, strict=True):
            if compare(size, own) in ("<", ">"):
                raise ShapeError(broken)
            assume(size, "==", own, broken)
    return x


class LayerNormalization(Layer):
    """The axes from ``axis`` on to mean 0 and variance 1, then ``scale`` and (optional) ``bias``,
    broadcast to x.
    """

    key = "tactix.LayerNormalization@1"
    takes_epilogue = True
    Attrs = LayerNormalizationAttrs

    def infer(self, attrs: LayerNormalizationAttrs, inputs: Specs) -> list[TensorSpec]:
        required(self, inputs, 2)
        return [_tail(self, attrs.axis, inputs).plain()]

    def reference(self, attrs: LayerNormalizationAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, bias = wide(inputs[0]), pick(inputs, 2)
        y = _standardized(x, tuple(range(attrs.axis % x.ndim, x.ndim)), attrs.epsilon) * wide(
            inputs[1]
        )
        if bias is not None:
            y = y + wide(bias)
        return (y.astype(inputs[0].dtype, copy=False),)


class RMSNormalization(Layer):
    """``x / sqrt(mean(x^2) + epsilon)`` over the axes from ``axis`` on, times ``scale``, broadcast
    to x.
    """

    key = "tactix.RMSNormalization@1"
    takes_epilogue = True
    Attrs = LayerNormalizationAttrs

    def infer(self, attrs: LayerNormalizationAttrs, inputs: Specs) -> list[TensorSpec]:
        required(self, inputs, 2)
        return [_tail(self, attrs.axis, inputs).plain()]

    def reference(self, attrs: LayerNormalizationAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        axes = tuple(range(attrs.axis % x.ndim, x.ndim))
        mean = np.square(x).mean(axis=axes, keepdims=True)
        y = x / np.sqrt(mean + x.dtype.type(attrs.epsilon)) * wide(inputs[1])
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class LpNormalizationAttrs:
    """``p`` is 1 or 2."""

    axis: int = -1
    p: int = 2


class LpNormalization(Layer):
    """``x`` divided by its p-norm along ``axis``; 0 where the norm is 0."""

    key = "tactix.LpNormalization@1"
    Attrs = LpNormalizationAttrs
    imports = ("onnx:ai.onnx::LpNormalization",)

    def infer(self, attrs: LpNormalizationAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        float_only(x, self.key)
        axis_of(attrs.axis, x.rank, self.key)
        return [x.plain()]

    def reference(self, attrs: LpNormalizationAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        norm = np.linalg.norm(x, ord=attrs.p, axis=attrs.axis, keepdims=True)
        y = np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class LRNAttrs:
    """``size``: the number of channels that are summed."""

    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    size: int = 1


class LRN(Layer):
    """``x / (bias + alpha / size * s)^beta``, ``s`` the sum of squares over ``size`` channels
    around each.
    """

    key = "tactix.LRN@1"
    Attrs = LRNAttrs
    imports = ("onnx:ai.onnx::LRN",)

    def infer(self, attrs: LRNAttrs, inputs: Specs) -> list[TensorSpec]:
        return [_channels(self, inputs, 0).plain()]

    def reference(self, attrs: LRNAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        before = (attrs.size - 1) // 2
        widths = [(0, 0), (before, attrs.size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
        squares = np.pad(np.square(x), widths)
        total = sum(squares[:, i : i + x.shape[1]] for i in range(attrs.size))
        y = x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta
        return (y.astype(inputs[0].dtype, copy=False),)


LAYERS: tuple[Layer, ...] = (
    BatchNormalization(),
    InstanceNormalization(),
    GroupNormalization(),
    LayerNormalization(),
    RMSNormalization(),
    LpNormalization(),
    LRN(),
)
