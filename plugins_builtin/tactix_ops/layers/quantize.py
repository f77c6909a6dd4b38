"""Affine quantisation and back, per tensor, per axis or per block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.base.dims import Shape, compare
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import (
    Array,
    Specs,
    axis_of,
    optional,
    pick,
    required,
    same_dim,
    same_shape,
    wide,
)
from tactix_ops.layers.elementwise import CAST, CastAttrs


@dataclass(frozen=True)
class QuantizeAttrs:
    """``axis``: of per-axis or blocked scales. ``block_size``: elements that share a scale; 0: no
    blocks.
    """

    axis: int = 1
    block_size: int = 0
    dtype: DType = DType.INT8
    saturate: bool = True


@dataclass(frozen=True)
class DequantizeAttrs:
    """``axis``: of per-axis or blocked scales. ``block_size``: elements that share a scale; 0: no
    blocks.
    """

    axis: int = 1
    block_size: int = 0
    dtype: DType = DType.FP32


def _check_scale(layer: Layer, x: TensorSpec, scale: TensorSpec, axis: int, block: int) -> None:
    if scale.rank == 0 or scale.shape == (1,):
        return
    at = axis_of(axis, x.rank, layer.key)
    if block:
        want: Shape = tuple(
            (d + block - 1) // block if i == at else d for i, d in enumerate(x.shape)
        )
    else:
        want = (x.shape[at],)
    if len(want) != scale.rank:
        raise ShapeError(f"{layer.key}: scale {scale} does not fit {x} along axis {at}")
    axes = range(x.rank) if block else [at]
    for i, a, b in zip(axes, want, scale.shape, strict=True):
        if compare(a, b) in ("<", ">"):
            what = f"{layer.key}: {b} scales along axis {i} of {x}, where there must be {a}"
            raise ShapeError(what, do="Say by axis along which axis they lie")
        same_dim(a, b, layer.key, "a dim of the scale")


def _check_zero(layer: Layer, scale: TensorSpec, zero: TensorSpec | None) -> None:
    """One zero point is everybody's; else there is one for each scale. Raises ShapeError."""
    if zero is not None and zero.numel != 1:
        same_shape(zero, scale.shape, layer.key, "the zero point")


def spread(parameter: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """A scale or zero point so that it broadcasts to ``shape``."""
    if parameter.size == 1:
        return parameter.reshape(())
    if block:
        return np.repeat(parameter, block, axis=axis)[tuple(slice(0, n) for n in shape)]
    return parameter.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


_RANGE = {DType.INT4: (-8, 7), DType.UINT4: (0, 15), DType.INT2: (-2, 1), DType.UINT2: (0, 3)}


def limits(dtype: DType) -> tuple[int, int]:
    """Lowest and highest number of an integer dtype."""
    if dtype in _RANGE:
        return _RANGE[dtype]
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


class QuantizeLinear(Layer):
    """``round(x / scale) + zero_point``, to even, kept within the range of ``dtype``. Inputs: x,
    scale, zero_point?.
    """

    key = "tactix.QuantizeLinear@1"
    Attrs = QuantizeAttrs

    def infer(self, attrs: QuantizeAttrs, inputs: Specs) -> list[TensorSpec]:
        x, scale = required(self, inputs, 2)
        _check_scale(self, x, scale, attrs.axis, attrs.block_size)
        zero = optional(inputs, 2)
        if zero is not None and zero.dtype is not attrs.dtype:
            raise DTypeError(f"{self.key}: zero point {zero} for {attrs.dtype.value}")
        _check_zero(self, scale, zero)
        return [TensorSpec(attrs.dtype, x.shape)]

    def reference(self, attrs: QuantizeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, scale, zero = wide(inputs[0]), wide(inputs[1]), pick(inputs, 2)
        y = x / spread(scale, x.shape, attrs.axis, attrs.block_size)
        offset = (
            0
            if zero is None
            else spread(zero, x.shape, attrs.axis, attrs.block_size).astype(np.float32)
        )
        if attrs.dtype.is_float:
            return (
                np.asarray(CAST.reference(CastAttrs(attrs.dtype, attrs.saturate), y + offset)[0]),
            )
        low, high = limits(attrs.dtype)
        return (np.clip(np.rint(y) + offset, low, high).astype(attrs.dtype.numpy),)


class DequantizeLinear(Layer):
    """``(x - zero_point) scale``. Inputs: x, scale, zero_point?."""

    key = "tactix.DequantizeLinear@1"
    Attrs = DequantizeAttrs

    def infer(self, attrs: DequantizeAttrs, inputs: Specs) -> list[TensorSpec]:
        x, scale = required(self, inputs, 2)
        _check_scale(self, x, scale, attrs.axis, attrs.block_size)
        _check_zero(self, scale, optional(inputs, 2))
        return [TensorSpec(attrs.dtype, x.shape)]

    def reference(self, attrs: DequantizeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, scale, zero = inputs[0], wide(inputs[1]), pick(inputs, 2)
        whole = np.float32 if DType.of(x.dtype).is_float else np.int32
        y = x.astype(whole)
        if zero is not None:
            y = y - spread(zero, x.shape, attrs.axis, attrs.block_size).astype(whole)
        y = y.astype(np.float32) * spread(scale, x.shape, attrs.axis, attrs.block_size)
        return (y.astype(attrs.dtype.numpy),)


LAYERS: tuple[Layer, ...] = (QuantizeLinear(), DequantizeLinear())
