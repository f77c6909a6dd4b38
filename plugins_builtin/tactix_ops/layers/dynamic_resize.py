"""Resize with sizes, scales or the region of interest in tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape, floordiv
from tactix.base.errors import ShapeError
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, optional, pick, required, same_dim
from tactix_ops.layers.dynamic import Dynamic, fresh, numbers
from tactix_ops.layers.resize import PlaceAttrs, Resize, ResizeAttrs

LARGEST_DENOMINATOR = 1000
"""Scales are taken as fractions up to this denominator where that is the same float."""


@dataclass(frozen=True)
class DynamicResizeAttrs(PlaceAttrs):
    """As those of Resize. ``axes``: which ones the tensors are about; empty: all.

    ``keep_aspect_ratio_policy``: ``stretch``, or one scale for all axes: ``not_larger`` or
    ``not_smaller``.
    """

    symbol: str = "resize"
    axes: tuple[int, ...] = ()
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False


def scaled_size(size: int, scale: float) -> int:
    """``floor(size * scale)`` in float32."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def scaled(size: Dim, scale: float) -> Dim:
    """``floor(size * scale)``: in float32 for numbers, by the scale's fraction for symbols."""
    if isinstance(size, int):
        return scaled_size(size, scale)
    simple = Fraction(scale).limit_denominator(LARGEST_DENOMINATOR)
    ratio = simple if np.float32(float(simple)) == np.float32(scale) else Fraction(float(scale))
    return floordiv(size * ratio.numerator, ratio.denominator)


def fitted(have: Sequence[int], want: Sequence[int], policy: str) -> tuple[list[int], list[float]]:
    """Sizes with one scale for all axes by ``keep_aspect_ratio_policy``, and that scale each."""
    pick_scale = min if policy == "not_larger" else max
    scale = pick_scale(w / h for h, w in zip(have, want, strict=True))
    return [int(np.floor(scale * h + 0.5)) for h in have], [scale] * len(have)


def crops(attrs: DynamicResizeAttrs) -> bool:
    """Whether there is a region."""
    return attrs.coordinate_transformation_mode == "tf_crop_and_resize"


class DynamicResize(Dynamic):
    """x at another size; inputs x, roi, scales, sizes: scales or sizes must be there, and not
    empty.
    """

    key = "tactix.DynamicResize@1"
    Attrs = DynamicResizeAttrs
    needed = 1

    def shapes(self, attrs: DynamicResizeAttrs, inputs: Specs) -> list[Shape]:
        (x,) = required(self, inputs, 1)
        new = fresh(attrs, x.rank)  # type: ignore[arg-type]
        named = attrs.axes or range(x.rank)
        # an empty tensor is none, as scales of an open number may turn out to be beside sizes
        told = [s for s in inputs[2:] if s is not None and s.numel != 0]
        if len(told) == 1 or (told and isinstance(told[0].numel, int)):
            same_dim(told[0].numel, len(named), self.key, "the number of scales or sizes")
        region = optional(inputs, 1)
        if region is not None and region.numel != 0 and crops(attrs):
            same_dim(region.numel, 2 * len(named), self.key, "the numbers of a region")
        return [tuple(new[i] if i in named else d for i, d in enumerate(x.shape))]

    def reference(self, attrs: DynamicResizeAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, roi, scales, sizes = inputs[0], *(pick(inputs, i) for i in (1, 2, 3))
        axes = attrs.axes or tuple(range(x.ndim))
        have = [x.shape[a] for a in axes]
        if scales is not None and scales.size:
            by = [float(s) for s in scales]
            want = [scaled_size(h, s) for h, s in zip(have, by, strict=True)]
        elif sizes is None:
            raise ShapeError(f"{self.key}: neither scales nor sizes")
        elif attrs.keep_aspect_ratio_policy == "stretch":
            want = numbers(sizes)
            by = [w / h for h, w in zip(have, want, strict=True)]
        else:
            want, by = fitted(have, numbers(sizes), attrs.keep_aspect_ratio_policy)
        return Resize().reference(self._static(attrs, x, axes, want, by, roi), x)

    def _static(
        self,
        attrs: DynamicResizeAttrs,
        x: Array,
        axes: Sequence[int],
        want: Sequence[int],
        by: Sequence[float],
        roi: Array | None,
    ) -> ResizeAttrs:
        sizes, scales, region = list(x.shape), [1.0] * x.ndim, [0.0] * x.ndim + [1.0] * x.ndim
        for i, a in enumerate(axes):
            sizes[a], scales[a] = want[i], by[i]
            if roi is not None and roi.size:
                region[a], region[x.ndim + a] = float(roi[i]), float(roi[len(axes) + i])
        shared = {f.name for f in fields(ResizeAttrs)} & {f.name for f in fields(attrs)}
        return ResizeAttrs(
            tuple(sizes),
            tuple(scales),
            tuple(region) if crops(attrs) else (),
            **{k: getattr(attrs, k) for k in shared},
        )

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [0.0, 1.5, rng.integers(1, 6, x.ndim)][: len(specs)]


LAYERS: tuple[Layer, ...] = (DynamicResize(),)
