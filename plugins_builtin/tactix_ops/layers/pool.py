"""Pooling over sliding windows and over all spatial axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import windows as win
from tactix_ops.layers.common import Array, Specs, required, spec_of, wide
from tactix_ops.layers.reduce import extreme, mean


@dataclass(frozen=True)
class PoolAttrs:
    """Empty ``strides`` and ``dilations`` mean 1, empty ``pads`` 0; ``pads`` are all begins, then
    all ends.

    ``ceil_mode``: the last window may hang over the end.
    """

    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False


@dataclass(frozen=True)
class AveragePoolAttrs(PoolAttrs):
    """``count_include_pad``: padding counts as elements of value 0 (beyond it nothing counts)."""

    count_include_pad: bool = False


@dataclass(frozen=True)
class LpPoolAttrs(PoolAttrs):
    """``p``: the order of the norm."""

    p: int = 2


class Pool(Layer):
    """One number per window of x (N, C, spatial...): y (N, C, out...). Subclasses say which."""

    Attrs = PoolAttrs

    def infer(self, attrs: PoolAttrs, inputs: Specs) -> list[TensorSpec]:
        return [self._made(attrs, inputs, partial(win.window_count, who=self.key))]

    def _made(self, attrs: PoolAttrs, inputs: Specs, count: Callable[..., Shape]) -> TensorSpec:
        (x,) = required(self, inputs, 1)
        rank = len(attrs.kernel_shape)
        if x.rank != rank + 2:
            raise ShapeError(f"{self.key} with {rank} kernel axes takes rank {rank + 2}, not {x}")
        strides = win.filled(attrs.strides, rank, 1, self.key, "strides")
        dilations = win.filled(attrs.dilations, rank, 1, self.key, "dilations")
        pads = win.filled(attrs.pads, 2 * rank, 0, self.key, "pads")
        out = count(x.shape[2:], attrs.kernel_shape, strides, pads, dilations, attrs.ceil_mode)
        return TensorSpec(x.dtype, (*x.shape[:2], *out))

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        shape = self._made(attrs, [spec_of(inputs[0])], win.fitting).at({})
        if 0 in shape[2:]:  # an open axis is smaller than the window
            return (np.empty(shape, inputs[0].dtype),)
        view = Geometry(x.shape[2:], attrs, shape[2:])
        return (self.reduce(attrs, x, view).astype(inputs[0].dtype, copy=False),)

    def reduce(self, attrs: Any, x: Array, view: Geometry) -> Array:
        """The numbers."""
        raise NotImplementedError(f"{self.key}: reduce")


class Geometry:
    """Attributes filled in for one input size."""

    def __init__(self, size: tuple[int, ...], attrs: Any, out: tuple[int, ...]) -> None:
        n = len(size)
        self.kernel, self.out = attrs.kernel_shape, out
        self.strides, self.dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
        self.pads = attrs.pads or (0,) * 2 * n
        self.extra = win.overhang(size, self.kernel, self.strides, self.pads, self.dilations, out)

    def around(self, x: Array, value: float) -> Array:
        """``x`` with ``value`` in its pads and in the overhang."""
        return win.padded(x, self.pads, value, self.extra)

    def sum(self, x: Array) -> Array:
        total = np.zeros((*x.shape[:2], *self.out), x.dtype)
        for tap in win.taps(x, self.kernel, self.strides, self.dilations, self.out):
            total += tap
        return total


class MaxPool(Pool):
    """The largest element of each window; pads never win."""

    key = "tactix.MaxPool@1"
    takes_epilogue = True
    chains = True

    def reduce(self, attrs: PoolAttrs, x: Array, view: Geometry) -> Array:
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        around = view.around(x, lowest)
        best = np.full((*x.shape[:2], *view.out), lowest, x.dtype)
        for tap in win.taps(around, view.kernel, view.strides, view.dilations, view.out):
            np.maximum(best, tap, out=best)
        return best


class AveragePool(Pool):
    """The mean of each window over the elements that count."""

    key = "tactix.AveragePool@1"
    takes_epilogue = True
    Attrs = AveragePoolAttrs

    def reduce(self, attrs: AveragePoolAttrs, x: Array, view: Geometry) -> Array:
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        if attrs.count_include_pad:
            ones = win.padded(win.padded(ones, view.pads, 1), (0,) * len(view.pads), 0, view.extra)
        else:
            ones = view.around(ones, 0)
        return view.sum(view.around(x, 0)) / view.sum(ones)


class LpPool(Pool):
    """The p-norm of each window."""

    key = "tactix.LpPool@1"
    Attrs = LpPoolAttrs

    def reduce(self, attrs: LpPoolAttrs, x: Array, view: Geometry) -> Array:
        return view.sum(view.around(np.abs(x) ** attrs.p, 0)) ** (1 / attrs.p)


class GlobalPool(Layer):
    """One number per channel of x (N, C, spatial...): y (N, C, 1...). Subclasses say which."""

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.rank < 3:
            raise ShapeError(f"{self.key} takes (N, C, spatial...), not {x}")
        return [TensorSpec(x.dtype, (*x.shape[:2], *(1,) * (x.rank - 2)))]


class GlobalAveragePool(GlobalPool):
    """The mean over the spatial axes."""

    key = "tactix.GlobalAveragePool@1"
    takes_epilogue = True
    summarizes = True
    imports: tuple[str, ...] = ("onnx:ai.onnx::GlobalAveragePool",)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        y = mean(wide(x), tuple(range(2, x.ndim)), keepdims=True)
        return (y.astype(x.dtype, copy=False),)


class GlobalMaxPool(GlobalPool):
    """The largest element over the spatial axes; of none, the lowest number of the dtype."""

    key = "tactix.GlobalMaxPool@1"
    takes_epilogue = True
    imports = ("onnx:ai.onnx::GlobalMaxPool",)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        y = extreme(x, tuple(range(2, x.ndim)), keepdims=True, highest=True)
        return (y.astype(inputs[0].dtype, copy=False),)


@dataclass(frozen=True)
class GlobalLpPoolAttrs:
    """``p``: the order of the norm."""

    p: int = 2


class GlobalLpPool(GlobalPool):
    """The p-norm over the spatial axes."""

    key = "tactix.GlobalLpPool@1"
    Attrs = GlobalLpPoolAttrs
    imports = ("onnx:ai.onnx::GlobalLpPool",)

    def reference(self, attrs: GlobalLpPoolAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        total = (np.abs(wide(x)) ** attrs.p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((total ** (1 / attrs.p)).astype(x.dtype, copy=False),)


LAYERS: tuple[Layer, ...] = (
    MaxPool(),
    AveragePool(),
    LpPool(),
    GlobalAveragePool(),
    GlobalMaxPool(),
    GlobalLpPool(),
)
