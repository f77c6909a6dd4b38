"""Layers whose attributes are tensors: axes, bounds, pads, repeats and sizes that only running
gives.

Each is the twin of a layer with such attributes. Dims that hang on the content of a tensor are
symbols, called ``symbol_0``, ``symbol_1``...: the step that runs the layer tells them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Shape, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.host_memory import check_array_fits, check_fits
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer, random_array
from tactix_ops.layers import reduce as reductions
from tactix_ops.layers import sort
from tactix_ops.layers.common import (
    Array,
    Specs,
    axes_of,
    axis_of,
    content,
    optional,
    pick,
    required,
    same_dim,
)
from tactix_ops.layers.shape import Pad, PadAttrs

_REDUCTIONS = {x.name: x for x in reductions.LAYERS}
_FOLDS = {x.name: x for x in sort.LAYERS if isinstance(x, sort.Cumulative)}


@dataclass(frozen=True)
class DynamicAttrs:
    """``symbol``: what the dims are called that only running tells."""

    symbol: str = "dynamic"


def fresh(attrs: DynamicAttrs, rank: int) -> Shape:
    """A shape of which only the rank is known."""
    return tuple(sym(f"{attrs.symbol}_{i}") for i in range(rank))


FIX_LENGTH = (
    "Export the model with a fixed length, or build for one where an input tells it: "
    'shapes={"NAME": (2,)}, or --shapes NAME:2'
)


def length(spec: TensorSpec, who: str, what: str) -> int:
    """Elements of a vector (a scalar has one) whose number must be fixed. Raises ShapeError."""
    found = spec.numel
    if not isinstance(found, int) or spec.rank > 1:
        raise ShapeError(
            f"{who}: the number of {what} must be fixed, not that of {spec}", do=FIX_LENGTH
        )
    return found


def numbers(x: Array) -> list[int]:
    """The elements of a vector or scalar as ints."""
    return [int(v) for v in np.asarray(x).reshape(-1)]


class Dynamic(Layer):
    """A layer whose first input is data and whose further ones are attributes. Subclasses give
    ``shapes``.
    """

    Attrs: Any = DynamicAttrs
    needed = 2

    def shapes(self, attrs: Any, inputs: Specs) -> list[Shape]:
        """Shapes of the outputs, which have the first input's dtype. Raises ShapeError."""
        raise NotImplementedError(f"{self.key}: shapes")

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        x = required(self, inputs, self.needed)[0]
        return [TensorSpec(x.dtype, s) for s in self.shapes(attrs, inputs)]

    def sample(self, attrs: Any, inputs: Specs, rng: Any) -> list[Any]:
        """The data is random; subclasses give valid attributes by ``settings``."""
        x = random_array(required(self, inputs, 1)[0], rng)
        values = self.settings(attrs, x, inputs[1:], rng)
        return [
            x,
            *(None if s is None else _like(s, v) for s, v in zip(inputs[1:], values, strict=True)),
        ]

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        """Valid content for the further inputs."""
        raise NotImplementedError(f"{self.key}: settings")


def _like(spec: TensorSpec, value: Any) -> Array:
    if spec.const is not None:
        return spec.const
    return np.broadcast_to(np.asarray(value, spec.dtype.numpy), spec.at({})).copy()


@dataclass(frozen=True)
class DynamicReduceAttrs(DynamicAttrs):
    """``reduction``: the name of a Reduce layer. ``noop_with_empty_axes``: no axes mean none, not
    all.
    """

    reduction: str = "ReduceSum"
    keepdims: bool = True
    noop_with_empty_axes: bool = False


class DynamicReduce(Dynamic):
    """A reduction of x over the axes in a vector; inputs x, axes."""

    key = "tactix.DynamicReduce@1"
    Attrs = DynamicReduceAttrs

    def shapes(self, attrs: DynamicReduceAttrs, inputs: Specs) -> list[Shape]:
        x, axes = required(self, inputs, 2)
        if attrs.keepdims:
            return [fresh(attrs, x.rank)]
        count = length(axes, self.key, "axes")
        every = count == 0 and not attrs.noop_with_empty_axes
        return [fresh(attrs, 0 if every else x.rank - count)]

    def reference(self, attrs: DynamicReduceAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, axes = inputs[0], axes_of(numbers(inputs[1]), inputs[0].ndim, self.key)
        if not axes and not attrs.noop_with_empty_axes:
            axes = tuple(range(x.ndim))
        static = reductions.ReduceAttrs(axes, attrs.keepdims)
        return (x,) if not axes else _REDUCTIONS[attrs.reduction].reference(static, x)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [range(specs[0].at({})[0])] if specs[0] is not None else []


@dataclass(frozen=True)
class DynamicCumulativeAttrs:
    """``fold``: the name of a layer of running folds; ``exclusive`` and ``reverse`` are its."""

    fold: str = "CumSum"
    exclusive: bool = False
    reverse: bool = False


class DynamicCumulative(Dynamic):
    """A running fold of x along the axis in a scalar; inputs x, axis."""

    key = "tactix.DynamicCumulative@1"
    Attrs = DynamicCumulativeAttrs

    def shapes(self, attrs: DynamicCumulativeAttrs, inputs: Specs) -> list[Shape]:
        return [required(self, inputs, 2)[0].shape]

    def reference(self, attrs: DynamicCumulativeAttrs, *inputs: Array) -> tuple[Array, ...]:
        axis = axis_of(numbers(inputs[1])[0], inputs[0].ndim, self.key)
        return _FOLDS[attrs.fold].reference(
            sort.CumulativeAttrs(axis, attrs.exclusive, attrs.reverse), inputs[0]
        )

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [-1]


class DynamicSqueeze(Dynamic):
    """x without the axes in a vector, which have size 1; inputs x, axes."""

    key = "tactix.DynamicSqueeze@1"

    def shapes(self, attrs: DynamicAttrs, inputs: Specs) -> list[Shape]:
        x, axes = required(self, inputs, 2)
        return [fresh(attrs, x.rank - length(axes, self.key, "axes"))]

    def reference(self, attrs: DynamicAttrs, *inputs: Array) -> tuple[Array, ...]:
        axes = axes_of(numbers(inputs[1]), inputs[0].ndim, self.key)
        if any(inputs[0].shape[a] != 1 for a in axes):
            raise ShapeError(f"{self.key}: axes {axes} of {inputs[0].shape} do not all have size 1")
        return (inputs[0].squeeze(axes),)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [[i for i, n in enumerate(x.shape) if n == 1]]


class DynamicUnsqueeze(Dynamic):
    """x with axes of size 1 at the places in a vector; inputs x, axes."""

    key = "tactix.DynamicUnsqueeze@1"

    def shapes(self, attrs: DynamicAttrs, inputs: Specs) -> list[Shape]:
        x, axes = required(self, inputs, 2)
        return [fresh(attrs, x.rank + length(axes, self.key, "axes"))]

    def reference(self, attrs: DynamicAttrs, *inputs: Array) -> tuple[Array, ...]:
        axes = numbers(inputs[1])
        return (np.expand_dims(inputs[0], axes_of(axes, inputs[0].ndim + len(axes), self.key)),)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [range(specs[0].at({})[0])] if specs[0] is not None else []


class DynamicSlice(Dynamic):
    """``x[start:end:step]`` as numpy has it; inputs x, starts, ends, axes (the first ones), steps
    (1).
    """

    key = "tactix.DynamicSlice@1"
    needed = 3

    def shapes(self, attrs: DynamicAttrs, inputs: Specs) -> list[Shape]:
        x, starts = required(self, inputs, 2)
        axes = optional(inputs, 3)
        if axes is not None:
            known = axes.known()
        else:
            known = tuple(range(starts.numel)) if isinstance(starts.numel, int) else None
        fixed = [a for a in known or range(x.rank) if isinstance(a, int)]
        named = axes_of(fixed, x.rank, self.key)
        new = fresh(attrs, x.rank)
        return [tuple(new[i] if i in named else d for i, d in enumerate(x.shape))]

    def reference(self, attrs: DynamicAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, starts, ends = inputs[0], numbers(inputs[1]), numbers(inputs[2])
        axes, steps = pick(inputs, 3), pick(inputs, 4)
        where = [slice(None)] * x.ndim
        order = axes_of(range(len(starts)) if axes is None else numbers(axes), x.ndim, self.key)
        strides = [1] * len(starts) if steps is None else numbers(steps)
        for a, *bounds in zip(order, starts, ends, strides, strict=True):
            if bounds[2] == 0:
                raise ShapeError(f"the step along axis {a} is 0", do="Give less or more than 0")
            where[a] = slice(*bounds)
        return (x[tuple(where)],)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [0, -1, range(x.ndim), 1][: len(specs)]


@dataclass(frozen=True)
class DynamicPadAttrs(DynamicAttrs):
    """``mode``: as in Pad."""

    mode: str = "constant"


class DynamicPad(Dynamic):
    """x with elements added around; inputs x, pads (begins, then ends), value (0), axes (all)."""

    key = "tactix.DynamicPad@1"
    Attrs = DynamicPadAttrs

    def shapes(self, attrs: DynamicPadAttrs, inputs: Specs) -> list[Shape]:
        x, pads = required(self, inputs, 2)
        known = pads.known()
        axes = content(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
        if axes is not None:
            padded = axes_of(axes.tolist(), x.rank, self.key)
            new = enumerate(zip(x.shape, fresh(attrs, x.rank), strict=True))
            return [tuple(d if a in padded else own for a, (own, d) in new)]
        if known is None or len(known) != 2 * x.rank:
            return [fresh(attrs, x.rank)]
        return [tuple(d + a + b for d, a, b in zip(x.shape, known, known[x.rank :], strict=False))]

    def reference(self, attrs: DynamicPadAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, given, value, axes = inputs[0], numbers(inputs[1]), pick(inputs, 2), pick(inputs, 3)
        order = range(x.ndim) if axes is None else axes_of(numbers(axes), x.ndim, self.key)
        pads = [0] * (2 * x.ndim)
        for i, a in enumerate(order):
            pads[a], pads[x.ndim + a] = given[i], given[len(order) + i]
        for a, n in enumerate(x.shape):
            if n + pads[a] + pads[x.ndim + a] < 0:
                raise ShapeError(
                    f"pads take more than axis {a} of {n} has", do="Give pads that leave 0 or more"
                )
        grown = [n + max(0, pads[a]) + max(0, pads[x.ndim + a]) for a, n in enumerate(x.shape)]
        check_array_fits(grown, x.dtype)
        fill = 0.0 if value is None else float(value.reshape(()))
        return Pad().reference(PadAttrs(tuple(pads), attrs.mode, fill), x)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [rng.integers(0, 3, 2 * x.ndim), 0.5, range(x.ndim)][: len(specs)]


class DynamicExpand(Dynamic):
    """x broadcast with the shape in a vector; inputs x, shape. A fixed dim of x other than 1 stays
    as it is.
    """

    key = "tactix.DynamicExpand@1"

    def shapes(self, attrs: DynamicAttrs, inputs: Specs) -> list[Shape]:
        x, shape = required(self, inputs, 2)
        new = fresh(attrs, max(x.rank, length(shape, self.key, "dims")))
        kept = zip(new[len(new) - x.rank :], x.shape, strict=True)
        return [
            (
                *new[: len(new) - x.rank],
                *(d if isinstance(d, int) and d != 1 else n for n, d in kept),
            )
        ]

    def reference(self, attrs: DynamicAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        return (np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(numbers(inputs[1])))),)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [1]


class DynamicTile(Dynamic):
    """x repeated along its axes; inputs x, repeats."""

    key = "tactix.DynamicTile@1"

    def shapes(self, attrs: DynamicAttrs, inputs: Specs) -> list[Shape]:
        return [fresh(attrs, required(self, inputs, 2)[0].rank)]

    def reference(self, attrs: DynamicAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, repeats = inputs[0], numbers(inputs[1])
        check_fits(x.nbytes * math.prod(repeats))
        return (np.tile(x, repeats),)

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [rng.integers(1, 3, x.ndim)]


@dataclass(frozen=True)
class DynamicFillAttrs(DynamicAttrs):
    """``value`` everywhere."""

    value: float | bool = 0.0
    dtype: DType = DType.FP32


class DynamicFill(Layer):
    """A tensor of one number with the shape in a vector, the only input."""

    key = "tactix.DynamicFill@1"
    Attrs = DynamicFillAttrs

    def infer(self, attrs: DynamicFillAttrs, inputs: Specs) -> list[TensorSpec]:
        (shape,) = required(self, inputs, 1)
        return [TensorSpec(attrs.dtype, fresh(attrs, length(shape, self.key, "dims")))]

    def reference(self, attrs: DynamicFillAttrs, *inputs: Array) -> tuple[Array, ...]:
        shape, dtype = numbers(inputs[0]), attrs.dtype.numpy
        check_array_fits(shape, dtype)
        return (np.full(shape, attrs.value, dtype),)


@dataclass(frozen=True)
class DynamicTopKAttrs(DynamicAttrs):
    """As those of TopK, but for ``k``."""

    axis: int = -1
    largest: bool = True
    sorted: bool = True


class DynamicTopK(Dynamic):
    """TopK with k in a tensor; inputs x, k."""

    key = "tactix.DynamicTopK@1"
    Attrs = DynamicTopKAttrs

    def infer(self, attrs: DynamicTopKAttrs, inputs: Specs) -> list[TensorSpec]:
        x, _ = required(self, inputs, 2)
        axis = axis_of(attrs.axis, x.rank, self.key)
        shape = (*x.shape[:axis], *fresh(attrs, 1), *x.shape[axis + 1 :])
        return [TensorSpec(x.dtype, shape), TensorSpec(DType.INT64, shape)]

    def reference(self, attrs: DynamicTopKAttrs, *inputs: Array) -> tuple[Array, ...]:
        static = sort.TopKAttrs(numbers(inputs[1])[0], attrs.axis, attrs.largest, attrs.sorted)
        return sort.TopK().reference(static, inputs[0])

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        return [rng.integers(1, x.shape[attrs.axis] + 1)]


@dataclass(frozen=True)
class DynamicSplitAttrs(DynamicAttrs):
    """``axis``: the one that is cut. ``parts``: how many."""

    axis: int = 0
    parts: int = 1


class DynamicSplit(Dynamic):
    """Consecutive parts of x along an axis; inputs x, sizes."""

    key = "tactix.DynamicSplit@1"
    Attrs = DynamicSplitAttrs

    def shapes(self, attrs: DynamicSplitAttrs, inputs: Specs) -> list[Shape]:
        x, _ = required(self, inputs, 2)
        axis = axis_of(attrs.axis, x.rank, self.key)
        return [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in fresh(attrs, attrs.parts)]

    def reference(self, attrs: DynamicSplitAttrs, *inputs: Array) -> tuple[Array, ...]:
        sizes = numbers(inputs[1])
        if len(sizes) != attrs.parts or sum(sizes) != inputs[0].shape[attrs.axis] or min(sizes) < 0:
            raise ShapeError(f"{self.key}: parts {sizes} of axis {attrs.axis} of {inputs[0].shape}")
        return tuple(np.split(inputs[0], np.cumsum(sizes)[:-1], axis=attrs.axis))

    def settings(self, attrs: Any, x: Array, specs: Specs, rng: Any) -> Sequence[Any]:
        total = x.shape[attrs.axis]
        cuts = np.sort(rng.integers(0, total + 1, attrs.parts - 1))
        return [np.diff([0, *cuts, total])]


@dataclass(frozen=True)
class DynamicOneHotAttrs(DynamicAttrs):
    """``axis``: the new one, counted in the result."""

    axis: int = -1


class DynamicOneHot(Layer):
    """``on`` at the index along a new axis, ``off`` elsewhere; inputs indices, depth, values (off,
    on).

    An index outside [-depth, depth) is nowhere.
    """

    key = "tactix.DynamicOneHot@1"
    Attrs = DynamicOneHotAttrs

    def infer(self, attrs: DynamicOneHotAttrs, inputs: Specs) -> list[TensorSpec]:
        indices, depth, values = required(self, inputs, 3)
        same_dim(depth.numel, 1, self.key, "the number of depths")
        same_dim(values.numel, 2, self.key, "the number of values")
        axis = axis_of(attrs.axis, indices.rank + 1, self.key)
        return [
            TensorSpec(
                values.dtype, (*indices.shape[:axis], *fresh(attrs, 1), *indices.shape[axis:])
            )
        ]

    def reference(self, attrs: DynamicOneHotAttrs, *inputs: Array) -> tuple[Array, ...]:
        depth = numbers(inputs[1])[0]
        if depth < 0:
            raise ShapeError(f"the depth is {depth}", do="Give 0 or more")
        axis = axis_of(attrs.axis, inputs[0].ndim + 1, self.key)
        places = np.expand_dims(inputs[0].astype(np.int64), axis)
        check_fits(places.size * depth * np.int64().itemsize)
        count = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(places.ndim)])
        hit = (places == count) | (places + depth == count)
        return (np.where(hit, inputs[2][1], inputs[2][0]),)

    def sample(self, attrs: DynamicOneHotAttrs, inputs: Specs, rng: Any) -> list[Any]:
        indices, depth, values = super().sample(attrs, inputs, rng)
        return [indices, np.full_like(depth, 5), values]


LAYERS: tuple[Layer, ...] = (
    DynamicReduce(),
    DynamicCumulative(),
    DynamicSqueeze(),
    DynamicUnsqueeze(),
    DynamicSlice(),
    DynamicPad(),
    DynamicExpand(),
    DynamicTile(),
    DynamicFill(),
    DynamicTopK(),
    DynamicSplit(),
    DynamicOneHot(),
)
