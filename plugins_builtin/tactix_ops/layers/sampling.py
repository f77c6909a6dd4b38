"""Sampling an image at places that data gives: GridSample, RoiAlign, DeformableConvolution."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, mod, sym
from tactix.base.errors import InvalidArgument, ShapeError
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
    same_shape,
    wide,
)
from tactix_ops.layers.dynamic import length

Taps = Callable[[Array], Iterator[tuple[Array, Array]]]
"""For a coordinate: places and their weights."""


def _linear(x: Array) -> Iterator[tuple[Array, Array]]:
    low = np.floor(x)
    yield low, 1 - (x - low)
    yield low + 1, x - low


def _nearest(x: Array) -> Iterator[tuple[Array, Array]]:
    yield np.rint(x), np.ones_like(x)


def _cubic(x: Array) -> Iterator[tuple[Array, Array]]:
    """Keys' kernel with a = -0.75."""
    a, low = -0.75, np.floor(x)
    for tap in range(-1, 3):
        t = np.abs(x - low - tap)
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        yield low + tap, np.where(t <= 1, near, a * (((t - 5) * t + 8) * t - 4))


TAPS: dict[str, Taps] = {
    "linear": _linear,
    "bilinear": _linear,
    "nearest": _nearest,
    "cubic": _cubic,
    "bicubic": _cubic,
}


def _reflected(x: Array, low: float, high: float) -> Array:
    """Mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return np.zeros_like(x)
    t = np.mod(x - low, 2 * span)
    return low + np.where(t > span, 2 * span - t, t)


@dataclass(frozen=True)
class GridSampleAttrs:
    """``align_corners``: -1 and 1 are centres of the outermost elements, not their edges."""

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False


class GridSample(Layer):
    """x (N, C, spatial...) at grid (N, out..., rank): coordinates in [-1, 1], the last axis of x
    first.
    """

    key = "tactix.GridSample@1"
    Attrs = GridSampleAttrs
    imports = ("onnx:ai.onnx::GridSample",)

    def infer(self, attrs: GridSampleAttrs, inputs: Specs) -> list[TensorSpec]:
        x, grid = required(self, inputs, 2)
        if x.rank != grid.rank:
            raise ShapeError(f"{self.key}: grid {grid} for {x}")
        same_dim(grid.shape[-1], x.rank - 2, self.key, "the number of coordinates")
        if attrs.mode not in TAPS or attrs.padding_mode not in ("zeros", "border", "reflection"):
            raise InvalidArgument(
                f"{self.key} knows no mode {attrs.mode!r} with {attrs.padding_mode!r}"
            )
        same_dim(x.shape[0], grid.shape[0], self.key, "the batch")
        return [TensorSpec(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]

    def reference(self, attrs: GridSampleAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, grid = wide(inputs[0]), wide(inputs[1])
        axes = []
        for i, size in enumerate(x.shape[2:]):
            u = grid[..., x.ndim - 3 - i].astype(np.float64) + 1
            place = u / 2 * (size - 1) if attrs.align_corners else (u * size - 1) / 2
            axes.append(list(self._taps(attrs, place, size)))
        y = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]))
        batch = np.arange(len(x)).reshape(-1, *(1,) * (grid.ndim - 2))
        for combination in itertools.product(*axes):
            weight = np.prod([w for _, w in combination], axis=0)
            values = np.moveaxis(x, 1, -1)[(batch, *(p for p, _ in combination))]
            y += np.where(weight[..., None] != 0, values * weight[..., None], 0)
        return (np.moveaxis(y, -1, 1).astype(inputs[0].dtype),)

    def _taps(
        self, attrs: GridSampleAttrs, place: Array, size: int
    ) -> Iterator[tuple[Array, Array]]:
        """Integer places inside the axis, and weights: 0 outside with zero padding."""
        ends = (0.0, size - 1.0) if attrs.align_corners else (-0.5, size - 0.5)
        cubic = attrs.mode.endswith("cubic")
        if attrs.padding_mode == "border" and not cubic:
            place = np.clip(place, 0, size - 1)
        elif attrs.padding_mode == "reflection" and not cubic:
            place = np.clip(_reflected(place, *ends), 0, size - 1)
        for p, w in TAPS[attrs.mode](place):
            if attrs.padding_mode == "zeros":
                w = np.where((p >= 0) & (p < size), w, 0)
            elif attrs.padding_mode == "reflection":
                p = _reflected(p, *ends)
            yield np.clip(p, 0, size - 1).astype(np.int64), w

    def sample(self, attrs: GridSampleAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, grid = found
        return [x, rng.uniform(-1.2, 1.2, grid.shape).astype(grid.dtype)]


@dataclass(frozen=True)
class AffineGridAttrs:
    """``align_corners``: as in GridSample. ``symbol``: spatial dims are ``symbol_0``... where
    running tells them.
    """

    symbol: str = "grid"
    align_corners: bool = False


def coordinates(n: int, align_corners: bool) -> Array:
    """Of the ``n`` elements along an axis, in [-1, 1]; float64."""
    if align_corners:
        return np.linspace(-1, 1, n)
    return (2 * np.arange(n) + 1) / n - 1


class AffineGrid(Layer):
    """Places for GridSample: theta (N, r, r + 1) times the coordinates of an image; inputs theta,
    size (N, C, ...).
    """

    key = "tactix.AffineGrid@1"
    Attrs = AffineGridAttrs

    def infer(self, attrs: AffineGridAttrs, inputs: Specs) -> list[TensorSpec]:
        theta, size = required(self, inputs, 2)
        n = length(size, self.key, "axes") - 2
        if theta.rank != 3 or n not in (2, 3):
            raise ShapeError(f"{self.key}: theta {theta}, size {size}")
        for i, wanted in enumerate((n, n + 1)):
            same_dim(theta.shape[1 + i], wanted, self.key, f"axis {1 + i} of theta")
        known = size.known()
        spatial = (
            tuple(sym(f"{attrs.symbol}_{i}") for i in range(n)) if known is None else known[2:]
        )
        return [TensorSpec(theta.dtype, (theta.shape[0], *spatial, n))]

    def reference(self, attrs: AffineGridAttrs, *inputs: Array) -> tuple[Array, ...]:
        theta, size = wide(inputs[0]), [int(n) for n in inputs[1][2:]]
        axes = [coordinates(n, attrs.align_corners) for n in size]
        places = np.meshgrid(*axes, indexing="ij")[::-1]
        points = np.stack([*places, np.ones(size)], axis=-1).astype(theta.dtype)
        return (np.einsum("nij,...j->n...i", theta, points).astype(inputs[0].dtype, copy=False),)

    def sample(self, attrs: AffineGridAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        theta, size = found
        return [theta, np.full_like(size, 4)]


@dataclass(frozen=True)
class RoiAlignAttrs:
    """``sampling_ratio``: samples per bin and axis; 0: as many as the region has elements per bin,
    rounded up: none, and so bins of 0, in one that is empty or turned around.
    """

    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    mode: str = "avg"
    coordinate_transformation_mode: str = "half_pixel"


class RoiAlign(Layer):
    """Regions (R, 4: x1 y1 x2 y2) of x (N, C, H, W) cut into bins, bilinear samples of each
    averaged or the largest.

    K. He et al., "Mask R-CNN", 2017. With ``max`` each sample counts by its largest weighted
    neighbour, as in ONNX. Bins of an image without elements are 0.
    """

    key = "tactix.RoiAlign@1"
    Attrs = RoiAlignAttrs

    def infer(self, attrs: RoiAlignAttrs, inputs: Specs) -> list[TensorSpec]:
        x, rois, owners = required(self, inputs, 3)
        if x.rank != 4 or rois.rank != 2 or owners.rank != 1:
            raise ShapeError(f"{self.key}: {x}, regions {rois}, samples {owners}")
        if isinstance(rois.shape[1], int) and rois.shape[1] != 4:
            raise ShapeError(f"{self.key}: regions {rois}: each has 4 numbers, x1 y1 x2 y2")
        same_dim(rois.shape[1], 4, self.key, "numbers of a region")
        same_dim(rois.shape[0], owners.shape[0], self.key, "the number of regions")
        return [
            TensorSpec(
                x.dtype, (rois.shape[0], x.shape[1], attrs.output_height, attrs.output_width)
            )
        ]

    def reference(self, attrs: RoiAlignAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, rois, owners = wide(inputs[0]), wide(inputs[1]).astype(np.float64), inputs[2]
        out = (attrs.output_height, attrs.output_width)
        y = np.zeros((len(rois), x.shape[1], *out), x.dtype)
        half = attrs.coordinate_transformation_mode == "half_pixel"
        for i, roi in enumerate(rois * attrs.spatial_scale - (0.5 if half else 0)):
            start, size = roi[[1, 0]], roi[[3, 2]] - roi[[1, 0]]
            size = size if half else np.maximum(size, 1)
            places = [self._places(attrs, start[k], size[k], out[k]) for k in (0, 1)]
            if not all(p.size for p in places) or 0 in x.shape[2:]:
                continue
            corners = list(self._corners(x[owners[i]], *(p.reshape(-1) for p in places)))
            shape = (x.shape[1], out[0], places[0].shape[1], out[1], places[1].shape[1])
            if attrs.mode == "max":
                y[i] = np.max(corners, axis=0).reshape(shape).max(axis=(2, 4))
            else:
                y[i] = sum(corners).reshape(shape).mean(axis=(2, 4))
        return (y.astype(inputs[0].dtype, copy=False),)

    def _places(self, attrs: RoiAlignAttrs, start: float, size: float, bins: int) -> Array:
        """Sampling places (bins, samples) along one axis."""
        count = attrs.sampling_ratio or max(0, int(np.ceil(size / bins)))
        inside = (np.arange(count) + 0.5) / count
        return start + (np.arange(bins)[:, None] + inside) * size / bins

    def _corners(self, image: Array, rows: Array, columns: Array) -> Iterator[Array]:
        """Weighted neighbours (C, rows, columns) of every sample; 0 where it lies more than one
        element outside.
        """
        taps = []
        for places, size in ((rows, image.shape[1]), (columns, image.shape[2])):
            valid = (places >= -1) & (places <= size)
            clipped = np.clip(places, 0, size - 1)
            taps.append(
                [
                    (np.minimum(p, size - 1).astype(np.int64), np.where(valid, w, 0))
                    for p, w in _linear(clipped)
                ]
            )
        for (r, wr), (c, wc) in itertools.product(*taps):
            yield image[:, r][:, :, c] * (wr[:, None] * wc).astype(image.dtype)

    def sample(self, attrs: RoiAlignAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, rois, owners = found
        corners = np.sort(rng.uniform(0, min(x.shape[2:]), (len(rois), 2, 2)), axis=1).reshape(
            len(rois), 4
        )
        scaled = (corners / attrs.spatial_scale).astype(rois.dtype)
        return [x, scaled, rng.integers(0, len(x), owners.shape).astype(owners.dtype)]


@dataclass(frozen=True)
class MaxRoiPoolAttrs:
    """As in ONNX: bins of each region, and elements of x for one of the regions' units."""

    pooled_shape: tuple[int, ...] = (1, 1)
    spatial_scale: float = 1.0


class MaxRoiPool(Layer):
    """The largest element in each bin of regions (R, 5: sample x1 y1 x2 y2) of x (N, C, H, W); 0 in
    an empty bin.

    R. Girshick, "Fast R-CNN", 2015: corners are rounded to elements and belong to the region, bins
    overlap.
    """

    key = "tactix.MaxRoiPool@1"
    Attrs = MaxRoiPoolAttrs

    def infer(self, attrs: MaxRoiPoolAttrs, inputs: Specs) -> list[TensorSpec]:
        x, rois = required(self, inputs, 2)
        if x.rank != 4 or rois.rank != 2 or len(attrs.pooled_shape) != 2:
            raise ShapeError(f"{self.key}: {x}, regions {rois}, bins {attrs.pooled_shape}")
        same_dim(rois.shape[1], 5, self.key, "numbers of a region")
        return [TensorSpec(x.dtype, (rois.shape[0], x.shape[1], *attrs.pooled_shape))]

    def reference(self, attrs: MaxRoiPoolAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, rois = inputs
        y = np.zeros((len(rois), x.shape[1], *attrs.pooled_shape), x.dtype)
        corners = np.floor(rois[:, 1:].astype(np.float64) * attrs.spatial_scale + 0.5).astype(
            np.int64
        )
        for i, (x1, y1, x2, y2) in enumerate(corners):
            rows = self._bins(y1, y2, attrs.pooled_shape[0], x.shape[2])
            columns = self._bins(x1, x2, attrs.pooled_shape[1], x.shape[3])
            image = x[int(rois[i, 0])]
            for (r, row), (c, column) in itertools.product(enumerate(rows), enumerate(columns)):
                part = image[:, row, column]
                if part.size:
                    y[i, :, r, c] = part.max(axis=(1, 2))
        return (y,)

    def _bins(self, first: int, last: int, count: int, size: int) -> list[slice]:
        """Slices of an axis of that size."""
        width = max(last - first + 1, 1) / count
        ends = [(np.floor(i * width), np.ceil((i + 1) * width)) for i in range(count)]
        return [slice(*(int(min(max(first + e, 0), size)) for e in pair)) for pair in ends]

    def sample(self, attrs: MaxRoiPoolAttrs, inputs: Specs, rng: Any) -> list[Any]:
        found: list[Array] = super().sample(attrs, inputs, rng)
        x, rois = found
        corners = np.sort(rng.uniform(0, min(x.shape[2:]), (len(rois), 2, 2)), axis=1).reshape(
            len(rois), 4
        )
        owners = rng.integers(0, len(x), (len(rois), 1))
        return [x, np.hstack([owners, corners / attrs.spatial_scale]).astype(rois.dtype)]


@dataclass(frozen=True)
class DeformableConvolutionAttrs:
    """As a convolution's; ``offset_group``: groups of channels with offsets of their own."""

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    group: int = 1
    offset_group: int = 1


class DeformableConvolution(Layer):
    """A 2-D convolution whose taps are moved by offsets and weighted by a mask. X. Zhu et al., 2018
    (version 2).

    Inputs: x (N, C, H, W), w (M, C / group, kh, kw), offset (N, offset_group kh kw 2, oh, ow), bias
    (M,) or absent, mask (N, offset_group kh kw, oh, ow) or absent.
    """

    key = "tactix.DeformableConvolution@1"
    Attrs = DeformableConvolutionAttrs

    def infer(self, attrs: DeformableConvolutionAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w, offset = required(self, inputs, 3)
        if x.rank != 4 or w.rank != 4 or offset.rank != 4:
            raise ShapeError(f"{self.key} takes images, not {x}, {w}, {offset}")
        if min(attrs.group, attrs.offset_group) < 1:
            shown = f"{attrs.group} groups, and {attrs.offset_group} of offsets"
            raise ShapeError(f"{self.key}: {shown}", do="Give 1 or more of each")
        same_dim(x.shape[1], w.shape[1] * attrs.group, self.key, "the number of input channels")
        out = win.window_count(x.shape[2:], w.shape[2:], *self._window(attrs), False, self.key)
        for what, count, groups in (
            ("input channels", w.shape[1] * attrs.group, attrs.offset_group),
            ("output channels", w.shape[0], attrs.group),
        ):
            same_dim(mod(count, groups), 0, self.key, f"what equal groups leave of its {what}")
        taps = attrs.offset_group * w.shape[2] * w.shape[3]
        for what, found, wanted in (
            ("offsets", offset, (x.shape[0], taps * 2, *out)),
            ("bias", optional(inputs, 3), (w.shape[0],)),
            ("mask", optional(inputs, 4), (x.shape[0], taps, *out)),
        ):
            if found is not None:
                same_shape(found, wanted, self.key, what)
        return [TensorSpec(x.dtype, (x.shape[0], w.shape[0], *out))]

    def _window(self, attrs: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """strides, pads, dilations."""
        return attrs.strides or (1, 1), attrs.pads or (0, 0, 0, 0), attrs.dilations or (1, 1)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, w, offset = (wide(a) for a in inputs[:3])
        bias, mask = pick(inputs, 3), pick(inputs, 4)
        m, depth, *kernel = w.shape
        out, taps = offset.shape[2:], kernel[0] * kernel[1]
        groups = attrs.offset_group
        offset = offset.reshape(len(x), groups, taps, 2, *out)
        weight = (
            np.ones(1, x.dtype)
            if mask is None
            else wide(mask).reshape(len(x), groups, 1, taps, *out)
        )
        grouped = x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
        columns = self._columns(attrs, grouped, offset, kernel) * weight
        columns = columns.reshape(len(x), attrs.group, depth * taps, out[0] * out[1])
        y = np.matmul(w.reshape(attrs.group, m // attrs.group, depth * taps), columns).reshape(
            len(x), m, *out
        )
        if bias is not None:
            y = y + wide(bias).reshape(-1, 1, 1)
        return (y.astype(inputs[0].dtype, copy=False),)

    def _columns(self, attrs: Any, x: Array, offset: Array, kernel: list[int]) -> Array:
        """Samples (N, offset groups, channels, taps, oh, ow) of x (N, offset groups, channels, H,
        W).
        """
        strides, pads, dilations = self._window(attrs)
        n, groups, taps, _, *out = offset.shape
        places = []
        for k in (0, 1):
            tap = (
                np.arange(taps) // kernel[1] if k == 0 else np.arange(taps) % kernel[1]
            ) * dilations[k]
            step = np.arange(out[k]) * strides[k] - pads[k]
            places.append(
                tap[:, None, None]
                + step.reshape((-1, 1) if k == 0 else (1, -1))
                + offset[:, :, :, k]
            )
        y = np.zeros((n, groups, x.shape[2], taps, *out), x.dtype)
        own, group = np.ogrid[:n, :groups]
        for (r, wr), (c, wc) in itertools.product(*(list(_linear(p)) for p in places)):
            inside = (r >= 0) & (r < x.shape[3]) & (c >= 0) & (c < x.shape[4])
            where = (
                np.clip(r, 0, x.shape[3] - 1).astype(np.int64),
                np.clip(c, 0, x.shape[4] - 1).astype(np.int64),
            )
            index = (own.reshape(n, 1, 1, 1, 1), group.reshape(1, groups, 1, 1, 1))
            values = np.moveaxis(x, 2, -1)[(*index, *where)]
            y += np.moveaxis(values * np.where(inside, wr * wc, 0)[..., None], -1, 2).astype(
                x.dtype
            )
        return y


LAYERS: tuple[Layer, ...] = (
    GridSample(),
    AffineGrid(),
    RoiAlign(),
    MaxRoiPool(),
    DeformableConvolution(),
)
