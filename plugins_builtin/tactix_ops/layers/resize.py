"""Resize: each output element a weighted sum of input elements, axis by axis.

Coordinates, rounding and weights follow the ONNX operator Resize. Cubic weights: R. Keys, "Cubic
convolution interpolation for digital image processing", IEEE Trans. ASSP 29 (1981).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, assume, dmin
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, required, wide

_SINGLE = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")


class PlaceAttrs:
    """What attributes of Resize and of those like it say together of places between elements."""

    mode: str
    coordinate_transformation_mode: str

    @property
    def is_single(self) -> bool:
        """Whether places are computed in float32, as ONNX Runtime does: of a scale without an exact
        value, as 0.7, some nearest elements are as near as others in float32 alone.
        """
        return self.mode == "nearest" and self.coordinate_transformation_mode in _SINGLE


@dataclass(frozen=True)
class ResizeAttrs(PlaceAttrs):
    """``sizes``: the result's shape. ``scales``: output over input per axis; empty: the quotient of
    the sizes.

    ``roi``: starts, then ends, per axis, for ``tf_crop_and_resize``. ``antialias``: when shrinking,
    weights widen.
    ``exclude_outside``: taps beyond the ends get no weight, instead of repeating the end.
    """

    sizes: tuple[Dim, ...] = ()
    scales: tuple[float, ...] = ()
    roi: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis: input and output size, their ratio as given, and the region of interest."""

    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def _half_pixel(i: Array, a: Axis) -> Array:
    return (i + 0.5) / a.scale - 0.5


def _symmetric(i: Array, a: Axis) -> Array:
    exact = a.scale * a.size
    return a.size / 2 * (1 - a.out / exact) + (i + 0.5) / a.scale - 0.5


def _align_corners(i: Array, a: Axis) -> Array:
    return i * (a.size - 1) / (a.out - 1) if a.out > 1 else i * 0.0


def _crop(i: Array, a: Axis) -> Array:
    if a.out == 1:
        return i * 0 + 0.5 * (a.start + a.end) * (a.size - 1)
    return a.start * (a.size - 1) + i * (a.end - a.start) * (a.size - 1) / (a.out - 1)


COORDINATES: dict[str, Callable[[Array, Axis], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda i, a: _half_pixel(i, a) if a.out > 1 else i * 0.0,
    "align_corners": _align_corners,
    "asymmetric": lambda i, a: i / a.scale,
    "tf_half_pixel_for_nn": lambda i, a: (i + 0.5) / a.scale,
    "tf_crop_and_resize": _crop,
}

MIDDLE = 0.500001
"""Where a place lies between two elements that are as near: within 1e-6 of the middle, as ONNX
Runtime 1.32 has it, by its results at 76 scales.
"""

ROUNDINGS: dict[str, Callable[[Array, Axis], Array]] = {
    "round_prefer_floor": lambda x, a: np.ceil(x - MIDDLE),
    "round_prefer_ceil": lambda x, a: np.floor(x + MIDDLE),
    "floor": lambda x, a: np.floor(x),
    "ceil": lambda x, a: np.ceil(x),
    "simple": lambda x, a: np.ceil(x) if a.scale < 1 else np.floor(x),
}
"""``simple`` is how ONNX Runtime reads operator set 10, which names no rounding: up along axes that
shrink.
"""


def _triangle(t: Array, a: float) -> Array:
    return np.maximum(0, 1 - np.abs(t))


def _keys(t: Array, a: float) -> Array:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = a * (((t - 5) * t + 8) * t - 4)
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


_KERNELS = {"linear": (_triangle, 1.0), "cubic": (_keys, 2.0)}


def axis_weights(attrs: ResizeAttrs, a: Axis) -> tuple[Array, Array]:
    """Weights (out, size) in float64, and which outputs are outside the input (extrapolation)."""
    results = np.arange(a.out, dtype=np.float32 if attrs.is_single else np.float64)
    x = COORDINATES[attrs.coordinate_transformation_mode](results, a).astype(np.float64)
    outside = (x < 0) | (x > a.size - 1)
    weights = np.zeros((a.out, a.size))
    rows = np.arange(a.out)
    if attrs.mode == "nearest":
        nearest = np.clip(ROUNDINGS[attrs.nearest_mode](x, a), 0, a.size - 1).astype(np.int64)
        weights[rows, nearest] = 1
        return weights, outside
    kernel, radius = _KERNELS[attrs.mode]
    shrink = min(1.0, a.scale) if attrs.antialias and a.out else 1.0
    reach = int(np.ceil(radius / shrink))
    first = np.floor(x).astype(np.int64) - reach
    for tap in range(2 * reach + 2):
        place = first + tap
        w = kernel((place - x) * shrink, attrs.cubic_coeff_a)
        if attrs.exclude_outside:
            w = np.where((place >= 0) & (place < a.size), w, 0)
        np.add.at(weights, (rows, np.clip(place, 0, a.size - 1)), w)
    return weights / weights.sum(axis=1, keepdims=True), outside


class Resize(Layer):
    """The tensor at another size along some axes: ``mode`` nearest, linear or cubic."""

    key = "tactix.Resize@1"
    Attrs = ResizeAttrs

    def infer(self, attrs: ResizeAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if len(attrs.sizes) != x.rank or len(attrs.scales) not in (0, x.rank):
            raise ShapeError(
                f"{self.key}: {len(attrs.sizes)} sizes and {len(attrs.scales)} scales for {x}"
            )
        for value, known in (
            (attrs.mode, ("nearest", "linear", "cubic")),
            (attrs.coordinate_transformation_mode, COORDINATES),
            (attrs.nearest_mode, ROUNDINGS),
        ):
            if value not in known:
                raise InvalidArgument(
                    f"{self.key} knows no mode {value!r}", do=f"It has: {', '.join(known)}"
                )
        for size, out in zip(x.shape, attrs.sizes, strict=True):
            if size != out:
                assume(size, ">=", dmin(out, 1))  # elements are made of others
        return [TensorSpec(x.dtype, attrs.sizes)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, rank = wide(inputs[0]), inputs[0].ndim
        outside = np.zeros((1,) * rank, bool)
        y = x if attrs.mode == "nearest" else x.astype(np.float64)
        for i, (size, out) in enumerate(zip(x.shape, attrs.sizes, strict=True)):
            scale = attrs.scales[i] if attrs.scales else out / size if size else 1.0
            roi = (attrs.roi[i], attrs.roi[rank + i]) if attrs.roi else (0.0, 1.0)
            if (size, scale, roi) == (out, 1.0, (0.0, 1.0)):
                continue
            weights, beyond = axis_weights(attrs, Axis(size, out, scale, *roi))
            y = _apply(y, weights, i, attrs.mode)
            outside = outside | beyond.reshape([-1 if j == i else 1 for j in range(rank)])
        if attrs.coordinate_transformation_mode == "tf_crop_and_resize":
            y = np.where(outside, np.asarray(attrs.extrapolation_value, y.dtype), y)
        if inputs[0].dtype.kind in "iu" and attrs.mode != "nearest":
            limits = np.iinfo(inputs[0].dtype)
            y = np.clip(np.rint(_even(y)), limits.min, limits.max)
        # by way of float32, so that what lies half-way does not hang on the order of a sum
        return (y.astype(x.dtype, copy=False).astype(inputs[0].dtype, copy=False),)


def _even(y: Array) -> Array:
    """To multiples of 2^-20: what lies half-way between integers must not hang on the order of a
    sum.
    """
    return np.rint(y * 2.0**20) / 2.0**20


def _apply(x: Array, weights: Array, axis: int, mode: str) -> Array:
    if mode == "nearest":
        return np.take(x, weights.argmax(axis=1), axis=axis)
    used = weights != 0
    count = int(used.sum(axis=1).max(initial=0))
    order = np.argsort(~used, axis=1, kind="stable")[:, :count]
    x = np.moveaxis(x, axis, 0)
    y = np.zeros((len(weights), *x.shape[1:]))
    for places in order.T:
        w = np.take_along_axis(weights, places[:, None], axis=1)
        part = x[places]
        part[w[:, 0] == 0] = 0  # it does not count, and 0 times NaN would be NaN
        y += part * w.reshape(-1, *(1,) * (x.ndim - 1))
    return np.moveaxis(y, 0, axis)


LAYERS: tuple[Layer, ...] = (Resize(),)
