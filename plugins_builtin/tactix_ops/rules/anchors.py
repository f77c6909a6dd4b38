"""Which layers take pointwise layers into the loop that writes their result, and which pointwise
layers they take.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Attributes
from tactix.contracts.expr import result_dtypes
from tactix.contracts.graph import Node
from tactix.contracts.layer import Layer
from tactix.contracts.region import Program, program


def takes_epilogue(node: Node) -> bool:
    """Whether the node's anchor says so and has one result; kernels that take the largest of
    integers hold bytes.
    """
    anchor = node.anchor
    if anchor is None or len(node.outputs) != 1 or not anchor.layer.takes_epilogue:
        return False
    return anchor.layer.key != "tactix.MaxPool@1" or node.given[0].spec.dtype.is_float


def broadcasts_surely(shape: Shape, out: Shape) -> bool:
    """Whether that is so for all values of the symbols, and which axes repeat is known now."""
    tail = out[len(out) - len(shape) :]
    if shape == out:
        return True
    return len(shape) <= len(out) and all(d in (1, o) for d, o in zip(shape, tail, strict=True))


@dataclass(frozen=True)
class PointwisePart:
    """A node's pointwise part, and the specs of its body that it was worked out from."""

    program: Program
    specs: Sequence[TensorSpec]


_expressions: WeakKeyDictionary[Node, PointwisePart] = WeakKeyDictionary()


def expressions(node: Node) -> PointwisePart:
    """A node's pointwise part, worked out once for what it reads."""
    specs = node.specs
    if (part := _expressions.get(node)) is None or part.specs is not specs:
        part = _expressions[node] = PointwisePart(program(node.body, specs), specs)
    return part


@dataclass(frozen=True)
class InVectors:
    """What ``in_vectors`` found of a node, and the specs of its body that it was found for."""

    holds: bool
    specs: Sequence[TensorSpec]


_vectors: WeakKeyDictionary[Node, InVectors] = WeakKeyDictionary()


def in_vectors(node: Node) -> bool:
    """Whether a pointwise node computes on floats of up to 32 bits and truth values, as vectors of
    accumulators hold.

    Integers of up to 32 bits may be what it reads and what it gives.
    """
    specs = node.specs
    known = _vectors.get(node)
    if known is None or known.specs is not specs:
        found = all(
            _computes_in_vectors(b.layer, b.attrs, tuple([specs[i].dtype for i in b.inputs]))
            for b in node.body.nodes
        )
        known = _vectors[node] = InVectors(found, specs)
    return known.holds


@functools.lru_cache(1024)
def _computes_in_vectors(layer: Layer, attrs: Attributes, dtypes: tuple[DType, ...]) -> bool:
    found = result_dtypes([layer.scalar(attrs, len(dtypes))], dtypes)
    return all(_in_vectors(n.op, t) for n, t in found.items())


def _in_vectors(op: str, dtype: DType) -> bool:
    if dtype.is_int:
        return dtype.bits <= 32 and dtype is not DType.UINT32 and op in ("var", "cast")
    return dtype is DType.BOOL or (dtype.is_float and dtype.bits in (16, 32))
