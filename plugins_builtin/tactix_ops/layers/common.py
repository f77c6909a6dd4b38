"""What layers share: checks of their inputs, axes, wide arithmetic, and known content through data
movement.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Expr, Shape, assume, compare, show
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix.contracts.reference import computed
from tactix_sdk.symbolic import LIMIT

Array = Any
"""A numpy array; element types from ml_dtypes included."""

Specs = Sequence[TensorSpec | None]

RANK = 32
"""So many axes are shown in errors."""


def required(layer: Layer, inputs: Specs, count: int) -> list[TensorSpec]:
    """The first ``count`` inputs, which must be there. Raises InvalidArgument."""
    found = [s for s in inputs[:count] if s is not None]
    if len(found) != count:
        raise InvalidArgument(f"{layer.key} needs {count} inputs", why=f"{len(found)} are given")
    return found


def optional(inputs: Specs, index: int) -> TensorSpec | None:
    """An input that may be absent."""
    return inputs[index] if index < len(inputs) else None


def pick(arrays: Sequence[Array], index: int) -> Array | None:
    """An array that may be absent."""
    return arrays[index] if index < len(arrays) else None


def axis_of(axis: int, rank: int, who: str) -> int:
    """A non-negative axis. Raises ShapeError."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{who}: axis {axis} of a tensor of rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, who: str) -> tuple[int, ...]:
    """Non-negative axes in the order given. Raises ShapeError, also for one that is named twice."""
    found = tuple(axis_of(a, rank, who) for a in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{who}: axes {list(axes)[:RANK]} name one twice")
    return found


def same_dim(a: Dim, b: Dim, who: str, what: str) -> None:
    """Raises ShapeError if two dims differ for every value of the symbols."""
    if compare(a, b) in ("<", ">"):
        raise ShapeError(f"{who}: {what} is {a} and {b}")
    assume(a, "==", b)


def same_shape(found: TensorSpec, wanted: Shape, who: str, what: str) -> None:
    """Raises ShapeError if an input has another shape for every value of the symbols."""
    if found.rank != len(wanted):
        raise ShapeError(f"{who}: {what} {found} for a shape of {show(wanted)}")
    for i, (a, b) in enumerate(zip(found.shape, wanted, strict=True)):
        same_dim(a, b, who, f"axis {i} of its {what}")


def no_less(a: Dim, b: Dim, broken: str, do: str = "") -> None:
    """Raises ShapeError if a dim is less than another for every value of the symbols."""
    if compare(a, b) == "<":
        raise ShapeError(broken, do=do)
    assume(a, ">=", b, broken)


def float_only(spec: TensorSpec, who: str) -> None:
    """Raises DTypeError unless the elements are floats."""
    if not spec.dtype.is_float:
        raise DTypeError(f"{who} takes floats, not {spec.dtype.value}")


def one_dtype(who: str, *specs: TensorSpec | None) -> None:
    """Raises DTypeError unless all that are given have the same dtype."""
    found = [s.dtype for s in specs if s is not None]
    if any(t is not found[0] for t in found):
        kinds = ", ".join(t.value for t in found)
        raise DTypeError(f"{who} takes tensors of one dtype, not {kinds}")


def wide(x: Array) -> Array:
    """16-bit and narrower floats in float32; all else as it is."""
    t = DType.of(x.dtype)
    return x.astype(np.float32) if t.is_float and t.bits < 32 else x


def spec_of(x: Array) -> TensorSpec:
    """dtype and shape of an array."""
    return TensorSpec(DType.of(x.dtype), x.shape)


def is_static(value: Any) -> bool:
    """Whether an attribute value, or every field of attributes, holds no symbol."""
    if dataclasses.is_dataclass(value):
        return all(is_static(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, tuple):
        return all(is_static(v) for v in value)
    return not isinstance(value, Expr)


def is_tracked(shape: Shape) -> bool:
    """Whether content of that shape is small and static enough to be tracked."""
    sizes = [d for d in shape if isinstance(d, int)]
    return len(sizes) == len(shape) and math.prod(sizes) <= LIMIT


def content(spec: TensorSpec) -> Array | None:
    """Known elements as an array: int64, or objects where some are expressions."""
    known = spec.known() if is_tracked(spec.shape) else None
    if known is None:
        return None
    fit = all(isinstance(v, int) and -(2**63) <= v < 2**63 for v in known)
    return np.array(known, dtype=np.int64 if fit else object).reshape(spec.at({}))


class Movement(Layer):
    """A layer that moves elements without computing on them: known content moves along.

    Subclasses give ``shapes`` and ``reference``; ``positions`` are the inputs that say where, not
    what. The outputs have the first input's dtype.
    """

    positions: tuple[int, ...] = ()

    def shapes(self, attrs: Any, inputs: list[TensorSpec]) -> list[Shape]:
        """Shapes of the outputs. Raises ShapeError."""
        raise NotImplementedError(f"{self.key}: shapes")

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        given = required(self, inputs, len(inputs))
        if not given:
            raise InvalidArgument(f"{self.key} needs an input")
        out = [TensorSpec(given[0].dtype, tuple(s)) for s in self.shapes(attrs, given)]
        return track(self, attrs, given, out, self.positions)


def track(
    layer: Layer,
    attrs: Any,
    inputs: Sequence[TensorSpec],
    outputs: list[TensorSpec],
    positions: Sequence[int] = (),
) -> list[TensorSpec]:
    """The outputs with content, by running the reference on dims, where every input's content is
    known.
    """
    if not is_static(attrs) or not all(is_tracked(s.shape) for s in outputs):
        return outputs
    arrays: list[Array] = []
    for i, s in enumerate(inputs):
        array = content(s)
        if array is None or (i in positions and array.dtype == object):
            return outputs
        arrays.append(array)
    results = computed(layer, attrs, arrays)
    return [
        dataclasses.replace(s, value=_elements(r)) for s, r in zip(outputs, results, strict=True)
    ]


def _elements(x: Array) -> tuple[Dim, ...]:
    return tuple(v if isinstance(v, Expr) else int(v) for v in np.asarray(x).ravel())
