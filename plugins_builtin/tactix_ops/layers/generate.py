"""Layers that make tensors of shapes and numbers: fill, range, dims as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tactix.base.dims import Dim, ceildiv, dmax, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.host_memory import check_fits
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, content, is_tracked, required
from tactix_sdk.symbolic import content as known_content


@dataclass(frozen=True)
class FillAttrs:
    """``value`` everywhere."""

    shape: tuple[Dim, ...] = ()
    value: float | bool = 0.0
    dtype: DType = DType.FP32


class Fill(Layer):
    """A tensor of one number; no inputs."""

    key = "tactix.Fill@1"
    Attrs = FillAttrs

    def infer(self, attrs: FillAttrs, inputs: Specs) -> list[TensorSpec]:
        spec = TensorSpec(attrs.dtype, attrs.shape)
        whole = not attrs.dtype.is_float and is_tracked(attrs.shape)
        element = int(np.asarray(attrs.value).astype(attrs.dtype.numpy)) if whole else 0
        return [replace(spec, value=(element,) * math.prod(spec.at({})) if whole else None)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.full(attrs.shape, attrs.value, attrs.dtype.numpy),)


@dataclass(frozen=True)
class DimsAttrs:
    """``values`` in row-major order, of a tensor of ``shape``."""

    values: tuple[Dim, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: DType = DType.INT64


class Dims(Layer):
    """Numbers that follow from the shapes of the network's inputs, as a tensor; no inputs."""

    key = "tactix.Dims@1"
    Attrs = DimsAttrs

    def infer(self, attrs: DimsAttrs, inputs: Specs) -> list[TensorSpec]:
        if len(attrs.values) != math.prod(attrs.shape):
            raise ShapeError(f"{self.key}: {len(attrs.values)} values for shape {attrs.shape}")
        return [TensorSpec(attrs.dtype, attrs.shape, attrs.values)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.array(attrs.values, attrs.dtype.numpy).reshape(attrs.shape),)


@dataclass(frozen=True)
class RangeAttrs:
    """``symbol``: the name of the result's dim where the content of the inputs is only known by
    running.
    """

    symbol: str = ""


def _no_step(start: Dim | float, limit: Dim | float) -> ShapeError:
    why = f"it leads nowhere from {start} to {limit}"
    return ShapeError("the step is 0", why=why, do="Give a step that is less or more than 0")


def _count(start: float, limit: float, step: float) -> int:
    """Elements of a range. Raises ShapeError for a step of 0, and for floats without an end."""
    if step == 0:
        raise _no_step(start, limit)
    if isinstance(limit - start, int) and isinstance(step, int):
        return max(0, int(-(-(limit - start) // step)))
    if not math.isfinite(count := (limit - start) / step):
        raise ShapeError(f"from {start} to {limit} by {step} there is no number of elements")
    return max(0, math.ceil(count))


class Range(Layer):
    """``start, start + delta, ...`` below ``limit`` (above, if delta is negative); three scalars of
    one dtype.
    """

    key = "tactix.Range@1"
    Attrs = RangeAttrs

    def infer(self, attrs: RangeAttrs, inputs: Specs) -> list[TensorSpec]:
        start, limit, delta = required(self, inputs, 3)
        known = [known_content(s) for s in (start, limit, delta)]
        if any(k is None for k in known):
            return [TensorSpec(start.dtype, (self._constant_size(attrs, start, limit, delta),))]
        (a,), (b,), (step,) = (k for k in known if k is not None)
        if not isinstance(step, int):
            what = f"{self.key}: the step is {step}, which may be 0"
            raise ShapeError(what, do="Give a step that is a constant")
        if step == 0:
            raise _no_step(a, b)
        size = dmax(ceildiv(b - a, step) if step > 0 else ceildiv(a - b, -step), 0)
        spec = TensorSpec(start.dtype, (size,))
        small = is_tracked(spec.shape)
        steps = range(spec.at({})[0]) if small else None
        return [replace(spec, value=None if steps is None else tuple(a + i * step for i in steps))]

    def _constant_size(self, attrs: RangeAttrs, *inputs: TensorSpec) -> Dim:
        if all(s.const is not None for s in inputs):
            return _count(*(s.const.item() for s in inputs))
        if not attrs.symbol:
            raise ShapeError(
                f"{self.key}: the number of elements is only known by running",
                do="Give it a symbol",
            )
        return sym(attrs.symbol)

    def reference(self, attrs: RangeAttrs, *inputs: Array) -> tuple[Array, ...]:
        a, b, step = (x.item() for x in inputs)
        count = _count(a, b, step)
        check_fits(count * np.int64().itemsize)
        return ((a + np.arange(count) * step).astype(inputs[0].dtype),)

    def sample(self, attrs: RangeAttrs, inputs: Specs, rng: Any) -> list[Any]:
        fresh = (0, int(rng.integers(1, 64)), 1)
        return [
            np.array(fresh[i], s.dtype.numpy)
            if (known := content(s)) is None
            else known.astype(s.dtype.numpy)
            for i, s in enumerate(required(self, inputs, 3))
        ]


LAYERS: tuple[Layer, ...] = (Fill(), Dims(), Range())
