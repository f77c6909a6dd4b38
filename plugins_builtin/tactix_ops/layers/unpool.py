"""Windows with their places: MaxPool with indices, its inverse, windows put back into an image."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Shape, evaluate_shape, floordiv, mod, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.host_memory import check_array_fits
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import windows as win
from tactix_ops.layers.common import (
    Array,
    Specs,
    optional,
    pick,
    required,
    same_dim,
    spec_of,
    wide,
)
from tactix_ops.layers.dynamic import length, numbers
from tactix_ops.layers.pool import Geometry, Pool, PoolAttrs


@dataclass(frozen=True)
class MaxPoolIndicesAttrs(PoolAttrs):
    """``storage_order``: 1 counts places along the first spatial axis first."""

    storage_order: int = 0


class MaxPoolIndices(Pool):
    """The largest element of each window, and where it lies in the flat input (int64); of equals
    the first.
    """

    key = "tactix.MaxPoolIndices@1"
    Attrs = MaxPoolIndicesAttrs

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        (y,) = super().infer(attrs, inputs)
        return [y, TensorSpec(DType.INT64, y.shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x = wide(inputs[0])
        out = self.infer(attrs, [spec_of(inputs[0])])[0].at({})[2:]
        view = Geometry(x.shape[2:], attrs, out)
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        both = (view.around(x, lowest), view.around(_places(x.shape, attrs.storage_order), -1))
        taps = [win.taps(a, view.kernel, view.strides, view.dilations, out) for a in both]
        best = np.full((*x.shape[:2], *out), lowest, x.dtype)
        where = np.full(best.shape, -1, np.int64)
        for values, places in zip(*taps, strict=True):
            better = (places >= 0) & ((where < 0) | (values > best))
            best, where = np.where(better, values, best), np.where(better, places, where)
        return best.astype(inputs[0].dtype, copy=False), where


def _places(shape: tuple[int, ...], storage_order: int) -> Array:
    spatial = shape[2:]
    inner: Array = np.arange(np.prod(spatial, dtype=np.int64))
    inner = inner.reshape(spatial[::-1]).T if storage_order else inner.reshape(spatial)
    images = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * len(spatial))
    return images * inner.size + inner


@dataclass(frozen=True)
class MaxUnpoolAttrs:
    """Of the MaxPool that is undone. ``symbol``: the dims are called ``symbol_0``... where only
    running tells them.
    """

    symbol: str = "unpool"
    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()


class MaxUnpool(Layer):
    """Zeros, and each element of x at its place in the flat result; inputs x, places, shape?.

    Places count in the smallest result that windows of this kind fit; a larger ``shape`` adds zeros
    at the ends.
    """

    key = "tactix.MaxUnpool@1"
    Attrs = MaxUnpoolAttrs

    def infer(self, attrs: MaxUnpoolAttrs, inputs: Specs) -> list[TensorSpec]:
        x, places = required(self, inputs, 2)
        same_dim(places.numel, x.numel, self.key, "the number of places and elements")
        shape = optional(inputs, 2)
        if shape is None:
            return [TensorSpec(x.dtype, self._smallest(attrs, x.shape))]
        return [
            TensorSpec(
                x.dtype, shape.known() or tuple(sym(f"{attrs.symbol}_{i}") for i in range(x.rank))
            )
        ]

    def _smallest(self, attrs: MaxUnpoolAttrs, shape: Shape) -> Shape:
        n = len(attrs.kernel_shape)
        strides, pads = attrs.strides or (1,) * n, attrs.pads or (0,) * 2 * n
        spatial = shape[2:]
        sizes = (
            (spatial[i] - 1) * strides[i] + attrs.kernel_shape[i] - pads[i] - pads[n + i]
            for i in range(n)
        )
        return (*shape[:2], *sizes)

    def reference(self, attrs: MaxUnpoolAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, places, shape = inputs[0], inputs[1], pick(inputs, 2)
        small = np.zeros(evaluate_shape(self._smallest(attrs, x.shape), {}), x.dtype)
        small.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
        if shape is None:
            return (small,)
        check_array_fits(numbers(shape), x.dtype)
        y = np.zeros(numbers(shape), x.dtype)
        inside = tuple(slice(0, min(a, b)) for a, b in zip(y.shape, small.shape, strict=True))
        y[inside] = small[inside]
        return (y,)

    def sample(self, attrs: MaxUnpoolAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, places, *shape = found
        small = evaluate_shape(self._smallest(attrs, x.shape), {})
        picked = rng.permutation(int(np.prod(small)))[: places.size].reshape(places.shape)
        return [x, picked.astype(places.dtype), *(np.array(small, s.dtype) for s in shape)]


@dataclass(frozen=True)
class Col2ImAttrs:
    """Empty ``strides`` and ``dilations`` mean 1, empty ``pads`` 0."""

    symbol: str = "image"
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()


class Col2Im(Layer):
    """Columns (N, C prod(block), windows) added up where they lie in an image (N, C, size...).

    Inputs: columns, size of the image, size of the block: the last two int64 vectors.
    """

    key = "tactix.Col2Im@1"
    Attrs = Col2ImAttrs

    def infer(self, attrs: Col2ImAttrs, inputs: Specs) -> list[TensorSpec]:
        x, image, block = required(self, inputs, 3)
        n = length(image, self.key, "image axes")
        if x.rank != 3 or length(block, self.key, "block axes") != n:
            raise ShapeError(f"{self.key}: columns {x}, image {image}, block {block}")
        size, taps = image.known(), block.known()
        channels = (
            sym(f"{attrs.symbol}_c") if taps is None else floordiv(x.shape[1], _product(taps))
        )
        spatial = tuple(sym(f"{attrs.symbol}_{i}") for i in range(n)) if size is None else size
        if size is not None and taps is not None:
            self._same_windows(attrs, x.shape, size, taps)
        return [TensorSpec(x.dtype, (x.shape[0], channels, *spatial))]

    def _same_windows(self, attrs: Col2ImAttrs, columns: Shape, image: Shape, block: Shape) -> None:
        """Raises ShapeError if columns are not those of the image, for any value of the symbols."""
        n = len(image)
        strides, dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
        pads = attrs.pads or (0,) * 2 * n
        out = win.window_count(image, block, strides, pads, dilations, False, self.key)
        same_dim(_product(out), columns[2], self.key, "the number of windows")
        rest = mod(columns[1], _product(block))
        same_dim(rest, 0, self.key, "what is left of whole blocks")

    def reference(self, attrs: Col2ImAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, image, block = wide(inputs[0]), numbers(inputs[1]), numbers(inputs[2])
        n = len(image)
        strides, dilations = attrs.strides or (1,) * n, attrs.dilations or (1,) * n
        pads = attrs.pads or (0,) * 2 * n
        out = win.window_count(image, block, strides, pads, dilations, False, self.key)
        channels = x.shape[1] // int(np.prod(block))
        columns = x.reshape(len(x), channels, *block, *out)
        size = (len(x), channels, *(image[i] + pads[i] + pads[n + i] for i in range(n)))
        check_array_fits(size, x.dtype)
        canvas = np.zeros(size, x.dtype)
        places = win.taps(canvas, block, strides, dilations, columns.shape[2 + n :])
        for tap, place in zip(itertools.product(*map(range, block)), places, strict=True):
            place += columns[(slice(None), slice(None), *tap)]
        inside = [slice(pads[i], pads[i] + image[i]) for i in range(n)]
        return (canvas[(slice(None), slice(None), *inside)].astype(inputs[0].dtype, copy=False),)

    def sample(self, attrs: Col2ImAttrs, inputs: Specs, rng: Any) -> list[Any]:
        """The largest blocks alike in each axis that columns are, and an image that the windows of
        a square fit.
        """
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, image, block = found
        n, side = len(image), round(x.shape[2] ** (1 / len(image)))
        taps = next((k for k in range(16, 1, -1) if x.shape[1] % k**n == 0), 2)
        return [x, np.full_like(image, side + taps - 1), np.full_like(block, taps)]


def _product(values: Any) -> Any:
    out: Any = 1
    for v in values:
        out = out * v
    return out


LAYERS: tuple[Layer, ...] = (MaxPoolIndices(), MaxUnpool(), Col2Im())
