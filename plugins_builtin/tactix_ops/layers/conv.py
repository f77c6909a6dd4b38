"""Convolution and transposed convolution over any number of spatial axes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape, assume, mod
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import windows as win
from tactix_ops.layers import work
from tactix_ops.layers.common import (
    Array,
    Specs,
    no_less,
    one_dtype,
    optional,
    pick,
    required,
    same_dim,
    wide,
)


@dataclass(frozen=True)
class ConvolutionAttrs:
    """Empty ``strides`` and ``dilations`` mean 1, empty ``pads`` 0; ``pads`` are all begins, then
    all ends.
    """

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    group: int = 1


class Convolution(Layer):
    """``y[n, m] = b[m] + sum over c, k of w[m, c, k] x[n, c, s i + d k - p]``.

    x: (N, C, spatial...), w: (M, C / group, kernel...), b: (M,) or absent; y: (N, M, out...), in
    x's dtype.
    """

    key = "tactix.Convolution@1"
    takes_epilogue = True
    chains = True
    Attrs = ConvolutionAttrs

    def infer(self, attrs: ConvolutionAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w = required(self, inputs, 2)
        one_dtype(self.key, x, w, optional(inputs, 2))
        return [TensorSpec(x.dtype, self.shape(attrs, inputs))]

    def shape(self, attrs: ConvolutionAttrs, inputs: Specs) -> Shape:
        """Of the output, for operands of any dtypes. Raises ShapeError."""
        x, w = required(self, inputs, 2)
        rank = _spatial_rank(self, x, w)
        _check_weights(self, w, attrs.group)
        same_dim(x.shape[1], w.shape[1] * attrs.group, self.key, "the number of input channels")
        _check_bias(self, optional(inputs, 2), w.shape[0])
        strides = win.filled(attrs.strides, rank, 1, self.key, "strides")
        dilations = win.filled(attrs.dilations, rank, 1, self.key, "dilations")
        pads = win.filled(attrs.pads, 2 * rank, 0, self.key, "pads")
        out = win.window_count(x.shape[2:], w.shape[2:], strides, pads, dilations, False, self.key)
        return (x.shape[0], w.shape[0], *out)

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.convolution(inputs, outputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, w = wide(inputs[0]), wide(inputs[1])
        b = pick(inputs, 2)
        n = x.ndim - 2
        strides, dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
        y = correlate(
            win.padded(x, attrs.pads or (0,) * 2 * n, 0), w, strides, dilations, attrs.group
        )
        if b is not None:
            y = y + wide(b).reshape(-1, *(1,) * n)
        return (y.astype(inputs[0].dtype, copy=False),)


def correlate(
    x: Array, w: Array, strides: tuple[int, ...], dilations: tuple[int, ...], group: int
) -> Array:
    """Convolution of a padded array: windows times weights by one matrix product per sample and
    group.
    """
    m, depth, *kernel = w.shape
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(s - r) // t + 1 for s, r, t in zip(x.shape[2:], reach, strides, strict=True)]
    if all(k == 1 for k in kernel):
        view = x[
            (
                slice(None),
                slice(None),
                *(slice(None, o * s, s) for o, s in zip(out, strides, strict=True)),
            )
        ]
        view = view[(..., *(None,) * len(kernel))]
    else:
        view = win.windows(x, kernel, strides, dilations, out)
    rank, taps = len(kernel), int(np.prod(kernel))
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))  # channels, kernel, out
    weights = w.reshape(group, m // group, depth * taps)
    y = np.empty((x.shape[0], m, *out), np.result_type(x, w))
    for sample, result in zip(view, y, strict=True):
        columns = sample.transpose(order).reshape(group, depth * taps, math.prod(out))
        result[...] = np.matmul(weights, columns).reshape(m, *out)
    return y


@dataclass(frozen=True)
class ConvTransposeAttrs:
    """As ConvolutionAttrs; ``output_padding`` adds elements at the end of each output axis."""

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    output_padding: tuple[int, ...] = ()
    group: int = 1


class ConvTranspose(Layer):
    """The transpose of the linear map that a convolution with these attributes is.

    x: (N, C, spatial...), w: (C, M / group, kernel...), b: (M,) or absent; y: (N, M, out...), with
    ``out = stride (in - 1) + output_padding + dilation (kernel - 1) + 1 - pads``.
    """

    key = "tactix.ConvTranspose@1"
    takes_epilogue = True
    Attrs = ConvTransposeAttrs

    def infer(self, attrs: ConvTransposeAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w = required(self, inputs, 2)
        one_dtype(self.key, x, w, optional(inputs, 2))
        return [TensorSpec(x.dtype, self.shape(attrs, inputs))]

    def shape(self, attrs: ConvTransposeAttrs, inputs: Specs) -> Shape:
        """Of the output, for operands of any dtypes. Raises ShapeError."""
        x, w = required(self, inputs, 2)
        rank = _spatial_rank(self, x, w)
        _check_weights(self, w, attrs.group)
        same_dim(x.shape[1], w.shape[0], self.key, "the number of input channels")
        channels = w.shape[1] * attrs.group
        _check_bias(self, optional(inputs, 2), channels)
        strides = win.filled(attrs.strides, rank, 1, self.key, "strides")
        reach = win.spans(w.shape[2:], win.filled(attrs.dilations, rank, 1, self.key, "dilations"))
        pads = win.filled(attrs.pads, 2 * rank, 0, self.key, "pads")
        extra = win.filled(attrs.output_padding, rank, 0, self.key, "output paddings")
        sizes = zip(x.shape[2:], strides, reach, extra, pads[:rank], pads[rank:], strict=True)
        out: Shape = tuple((d - 1) * s + k + e - a - b for d, s, k, e, a, b in sizes)
        for i, d in enumerate(out):
            around = f"pads of {pads[i]} and {pads[rank + i]}"
            no_less(
                d,
                0,
                f"{self.key}: {around} take more than there is of spatial axis {i}: {d}",
                "Give smaller pads",
            )
        return (x.shape[0], channels, *out)

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.spread(inputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, w = wide(inputs[0]), wide(inputs[1])
        b, n = pick(inputs, 2), x.ndim - 2
        pads, extra = attrs.pads or (0,) * 2 * n, attrs.output_padding or (0,) * n
        full = scatter(
            x, w, attrs.strides or (1,) * n, attrs.dilations or (1,) * n, extra, attrs.group
        )
        y = full[(..., *(slice(pads[i], full.shape[2 + i] - pads[n + i]) for i in range(n)))]
        if b is not None:
            y = y + wide(b).reshape(-1, *(1,) * n)
        return (y.astype(inputs[0].dtype, copy=False),)


def scatter(
    x: Array,
    w: Array,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
    group: int,
) -> Array:
    """Transposed convolution without pads: one matrix product, its taps added where they belong."""
    batch, channels, *size = x.shape
    depth, *kernel = w.shape[1:]
    reach = ((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    full = ((d - 1) * s + r + e for d, s, r, e in zip(size, strides, reach, extra, strict=True))
    y: Array = np.zeros((batch, depth * group, *full), np.result_type(x, w))
    weights = w.reshape(group, channels // group, depth * math.prod(kernel)).swapaxes(1, 2)
    taps = np.matmul(weights, x.reshape(batch, group, channels // group, math.prod(size)))
    taps = taps.reshape(batch, group, depth, *kernel, *size)
    for tap in itertools.product(*map(range, kernel)):
        part = taps[(slice(None),) * 3 + tap].reshape(batch, depth * group, *size)
        starts = [t * d for t, d in zip(tap, dilations, strict=True)]
        where = (
            slice(a, a + (d - 1) * s + 1, s) for a, d, s in zip(starts, size, strides, strict=True)
        )
        y[(..., *where)] += part
    return y


def _spatial_rank(layer: Layer, x: TensorSpec, w: TensorSpec) -> int:
    if x.rank < 3 or w.rank != x.rank:
        raise ShapeError(
            f"{layer.key} takes x (N, C, spatial...) and w of the same rank, not {x} and {w}"
        )
    return x.rank - 2


def _check_weights(layer: Layer, w: TensorSpec, group: int) -> None:
    if group < 1:
        raise ShapeError(f"{layer.key}: {group} groups", do="Give 1 or more")
    same_dim(mod(w.shape[0], group), 0, layer.key, f"what is left of {group} groups of channels")
    for k in w.shape[2:]:
        assume(k, ">=", 1, f"{layer.key}: a kernel has no elements")


def _check_bias(layer: Layer, bias: TensorSpec | None, channels: Dim) -> None:
    if bias is not None:
        if bias.rank != 1:
            raise ShapeError(f"{layer.key}: the bias has rank {bias.rank}, not 1")
        same_dim(bias.shape[0], channels, layer.key, "the number of output channels")


LAYERS: tuple[Layer, ...] = (Convolution(), ConvTranspose())
