"""Sequences, optionals and maps: lists of arrays, values that may be missing, dicts from labels to
numbers.

They live on the host as Python objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Expr, Shape, sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import Element, TensorSpec
from tactix.contracts.layer import Layer, NoAttrs
from tactix_ops.layers.common import Array, Specs, axis_of, optional, pick, required


class ObjectLayer(Layer):
    """A layer about sequences or optionals."""

    takes_objects = True


def element_of(spec: TensorSpec) -> Element:
    """What a sequence of such values holds."""
    return Element(spec.dtype, spec.shape, spec.element)


def join(a: Element, b: Element) -> Element:
    """What fits both. Raises DTypeError."""
    if a.none or b.none:
        known, other = (b, a) if a.none else (a, b)
        if known.dtype is not other.dtype:
            raise DTypeError(f"a sequence holds {other.dtype.value} and {known.dtype.value}")
        return known
    if a.dtype is not b.dtype:
        raise DTypeError(f"a sequence holds {a.dtype.value} and {b.dtype.value}")
    if a.of is not None and b.of is not None:
        return dataclasses.replace(a, of=join(a.of, b.of))
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return dataclasses.replace(a, shape=None)
    return dataclasses.replace(
        a, shape=tuple(d if d == e else None for d, e in zip(a.shape, b.shape, strict=True))
    )


def sequence(element: Element) -> TensorSpec:
    """The spec of a sequence."""
    return TensorSpec(DType.SEQUENCE, (), element=element)


def element_spec(element: Element, symbol: str, who: str) -> TensorSpec:
    """The spec of one element; dims that differ between elements are symbols. Raises ShapeError
    without a rank.
    """
    if element.of is not None:
        return TensorSpec(element.dtype, (), element=element.of)
    if element.shape is None:
        raise ShapeError(f"{who}: nothing tells the rank of the elements", do=DECLARE_RANK)
    return TensorSpec(element.dtype, dims_of(element.shape, symbol))


DECLARE_RANK = "Declare a shape for the elements of the sequence: names stand for open sizes"


def dims_of(shape: Sequence[Dim | None], symbol: str) -> Shape:
    """The shape with fresh symbols where a dim is None."""
    return tuple(sym(f"{symbol}_{i}") if d is None else d for i, d in enumerate(shape))


def _sequence(layer: Layer, inputs: Specs) -> Element:
    """The element of input 0. Raises DTypeError."""
    found = required(layer, inputs, 1)[0]
    if found.dtype is not DType.SEQUENCE or found.element is None:
        raise DTypeError(f"{layer.key} takes a sequence, not {found}")
    return found.element


def _position(x: Array | None, length: int, most: int) -> int:
    """A position, counted from the end if negative. Raises IndexError."""
    at = most if x is None else int(np.reshape(x, ()))
    if not -length <= at <= most:
        raise IndexError(f"position {at} of a sequence of {length}")
    return at


class SequenceConstruct(ObjectLayer):
    """A sequence of the inputs."""

    key = "tactix.SequenceConstruct@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        first, *rest = (element_of(s) for s in required(self, inputs, max(1, len(inputs))))
        for e in rest:
            first = join(first, e)
        return [sequence(first)]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (list(inputs),)


@dataclass(frozen=True)
class SequenceEmptyAttrs:
    """``dtype``: of the tensors that it could hold."""

    dtype: DType = DType.FP32


class SequenceEmpty(ObjectLayer):
    """A sequence without elements; no inputs."""

    key = "tactix.SequenceEmpty@1"
    Attrs = SequenceEmptyAttrs

    def infer(self, attrs: SequenceEmptyAttrs, inputs: Specs) -> list[TensorSpec]:
        return [sequence(Element(attrs.dtype, none=True))]

    def reference(self, attrs: SequenceEmptyAttrs, *inputs: Any) -> tuple[Any, ...]:
        return ([],)


class SequenceInsert(ObjectLayer):
    """A sequence with one more element; inputs: sequence, value, position (the end if absent)."""

    key = "tactix.SequenceInsert@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        return [sequence(join(_sequence(self, inputs), element_of(required(self, inputs, 2)[1])))]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        out = list(inputs[0])
        out.insert(_position(pick(inputs, 2), len(out), len(out)), inputs[1])
        return (out,)


class SequenceErase(ObjectLayer):
    """A sequence without one element; inputs: sequence, position (the last if absent)."""

    key = "tactix.SequenceErase@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        return [sequence(_sequence(self, inputs))]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        out = list(inputs[0])
        del out[_position(pick(inputs, 1), len(out), len(out) - 1)]
        return (out,)


@dataclass(frozen=True)
class ElementAttrs:
    """``symbol``: what the dims are called that only running tells. ``shape``: of the result, where
    it is declared; None for a dim that is not."""

    symbol: str = "held"
    shape: tuple[int | None, ...] | None = None


class SequenceAt(ObjectLayer):
    """One element of a sequence; inputs: sequence, position."""

    key = "tactix.SequenceAt@1"
    Attrs = ElementAttrs

    def infer(self, attrs: ElementAttrs, inputs: Specs) -> list[TensorSpec]:
        return [_declared(_sequence(self, inputs), attrs, self.key)]

    def reference(self, attrs: ElementAttrs, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0][_position(inputs[1], len(inputs[0]), len(inputs[0]) - 1)],)


def _declared(element: Element, attrs: ElementAttrs, who: str) -> TensorSpec:
    if element.shape is None and element.of is None and attrs.shape is not None:
        return TensorSpec(element.dtype, dims_of(attrs.shape, attrs.symbol))
    return element_spec(element, attrs.symbol, who)


class SequenceLength(ObjectLayer):
    """How many elements a sequence has, as an int64 of shape ()."""

    key = "tactix.SequenceLength@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        _sequence(self, inputs)
        return [TensorSpec(DType.INT64, ())]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (np.array(len(inputs[0]), np.int64),)


@dataclass(frozen=True)
class SplitToSequenceAttrs:
    """``keepdims``: without sizes, whether slices of length 1 keep the axis."""

    axis: int = 0
    keepdims: bool = True


class SplitToSequence(ObjectLayer):
    """Pieces of a tensor along an axis; inputs: x, sizes: a scalar for equal ones, a vector, or
    absent for ones.
    """

    key = "tactix.SplitToSequence@1"
    Attrs = SplitToSequenceAttrs

    def infer(self, attrs: SplitToSequenceAttrs, inputs: Specs) -> list[TensorSpec]:
        x = required(self, inputs, 1)[0]
        shape: list[Dim | None] = list(x.shape)
        axis = axis_of(attrs.axis, x.rank, self.key)
        if optional(inputs, 1) is not None:
            shape[axis] = None
        else:
            shape[axis : axis + 1] = [1] if attrs.keepdims else []
        return [sequence(Element(x.dtype, tuple(shape)))]

    def reference(self, attrs: SplitToSequenceAttrs, *inputs: Any) -> tuple[Any, ...]:
        x, sizes = inputs[0], pick(inputs, 1)
        if sizes is None:
            moved = np.moveaxis(x, attrs.axis, 0)
            rows = [moved[i, ...] for i in range(len(moved))]
            return ([np.expand_dims(r, attrs.axis) for r in rows] if attrs.keepdims else rows,)
        length = x.shape[attrs.axis]
        steps = (
            [int(sizes)] * -(-length // int(sizes)) if sizes.ndim == 0 else [int(n) for n in sizes]
        )
        if sizes.ndim and sum(steps) != length:
            raise ValueError(f"sizes {steps} of an axis of {length}")
        return (np.split(x, np.cumsum(steps)[:-1], attrs.axis),)


@dataclass(frozen=True)
class ConcatFromSequenceAttrs:
    """``new_axis``: stack along an axis of its own. ``symbol``: what the dims are called that only
    running tells.
    """

    axis: int = 0
    new_axis: bool = False
    symbol: str = "concat"


class ConcatFromSequence(ObjectLayer):
    """The elements of a sequence as one tensor."""

    key = "tactix.ConcatFromSequence@1"
    Attrs = ConcatFromSequenceAttrs

    def infer(self, attrs: ConcatFromSequenceAttrs, inputs: Specs) -> list[TensorSpec]:
        element = _sequence(self, inputs)
        if element.shape is None:
            raise ShapeError(f"{self.key}: nothing tells the rank of the elements", do=DECLARE_RANK)
        shape = list(element.shape)
        axis = axis_of(attrs.axis, len(shape) + attrs.new_axis, self.key)
        shape[axis : axis if attrs.new_axis else axis + 1] = [None]
        return [TensorSpec(element.dtype, dims_of(shape, attrs.symbol))]

    def reference(self, attrs: ConcatFromSequenceAttrs, *inputs: Any) -> tuple[Any, ...]:
        if not inputs[0]:
            raise ValueError("an empty sequence has nothing to concatenate")
        return ((np.stack if attrs.new_axis else np.concatenate)(inputs[0], attrs.axis),)


@dataclass(frozen=True)
class OptionalAttrs:
    """What it would hold, where it is empty: ``dtype``, and whether a sequence of these."""

    dtype: DType = DType.FP32
    is_sequence: bool = False


class OptionalLayer(ObjectLayer):
    """A value that may be missing; input: the value, or nothing."""

    key = "tactix.Optional@1"
    Attrs = OptionalAttrs

    def infer(self, attrs: OptionalAttrs, inputs: Specs) -> list[TensorSpec]:
        given = optional(inputs, 0)
        inner = Element(attrs.dtype, none=True)
        absent = Element(DType.SEQUENCE, (), inner) if attrs.is_sequence else inner
        return [
            TensorSpec(DType.OPTIONAL, (), element=absent if given is None else element_of(given))
        ]

    def reference(self, attrs: OptionalAttrs, *inputs: Any) -> tuple[Any, ...]:
        return (pick(inputs, 0),)


def _optional(layer: Layer, inputs: Specs) -> Element:
    found = required(layer, inputs, 1)[0]
    if found.dtype is not DType.OPTIONAL or found.element is None:
        raise DTypeError(f"{layer.key} takes an optional, not {found}")
    return found.element


class OptionalGetElement(ObjectLayer):
    """What an optional holds. Running it on an empty one is an error."""

    key = "tactix.OptionalGetElement@1"
    Attrs = ElementAttrs

    def infer(self, attrs: ElementAttrs, inputs: Specs) -> list[TensorSpec]:
        return [_declared(_optional(self, inputs), attrs, self.key)]

    def reference(self, attrs: ElementAttrs, *inputs: Any) -> tuple[Any, ...]:
        if inputs[0] is None:
            raise InvalidArgument("the optional is empty")
        return (inputs[0],)


class OptionalHasElement(ObjectLayer):
    """Whether an optional holds something: a bool of shape ()."""

    key = "tactix.OptionalHasElement@1"
    Attrs = NoAttrs

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        _optional(self, inputs)
        return [TensorSpec(DType.BOOL, ())]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (np.array(inputs[0] is not None),)


class ZipMap(ObjectLayer):
    """A sequence of maps, one for each row of x; inputs: x (N, C), labels (C) of the columns,
    integers or text.
    """

    key = "tactix.ZipMap@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        x, labels = required(self, inputs, 2)
        if x.rank != 2 or labels.shape != x.shape[1:]:
            raise ShapeError(f"{self.key}: scores {x}, labels {labels}")
        return [sequence(Element(DType.MAP, (), Element(x.dtype, ())))]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        x, labels = inputs
        names = labels.tolist()
        return ([dict(zip(names, row, strict=True)) for row in x.tolist()],)


def outside(element: Element, known: frozenset[str]) -> Element:
    """The element as it looks where only those symbols have a value."""
    from tactix.base.dims import symbols

    of = None if element.of is None else outside(element.of, known)
    if element.shape is None:
        return dataclasses.replace(element, of=of)
    kept = [None if isinstance(d, Expr) and not symbols(d) <= known else d for d in element.shape]
    return dataclasses.replace(element, of=of, shape=tuple(kept))


LAYERS = [
    SequenceConstruct(),
    SequenceEmpty(),
    SequenceInsert(),
    SequenceErase(),
    SequenceAt(),
    SequenceLength(),
    SplitToSequence(),
    ConcatFromSequence(),
    OptionalLayer(),
    OptionalGetElement(),
    OptionalHasElement(),
    ZipMap(),
]
