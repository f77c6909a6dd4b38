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
from tactix_ops.layers.float8 import FLOATS


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
class Computed:
    """What a node computes on, and the specs of its body that it was found for.

    ``in_vectors``: as the function of that name says; ``float8``: the same, but that floats of 8
    bits may be among what it reads and gives.
    """

    in_vectors: bool
    float8: bool
    specs: Sequence[TensorSpec]


_computed: WeakKeyDictionary[Node, Computed] = WeakKeyDictionary()


def computed(node: Node) -> Computed:
    """What a pointwise node computes on, worked out once for what it reads."""
    specs = node.specs
    known = _computed.get(node)
    if known is None or known.specs is not specs:
        dtypes = [s.dtype for s in specs]
        computes = {
            (b.layer, b.attrs, tuple([dtypes[i] for i in b.inputs])) for b in node.body.nodes
        }
        found = frozenset().union(*(_kinds(*each) for each in computes))
        known = _computed[node] = Computed(found <= {"vectors"}, "others" not in found, specs)
    return known


def in_vectors(node: Node) -> bool:
    """Whether a pointwise node computes on floats of up to 32 bits and truth values, as vectors of
    accumulators hold.

    Integers of up to 32 bits may be what it reads and what it gives.
    """
    return computed(node).in_vectors


@functools.lru_cache(1024)
def _kinds(layer: Layer, attrs: Attributes, dtypes: tuple[DType, ...]) -> frozenset[str]:
    """Of all that a layer computes: "vectors", "float8", "others"."""
    found = result_dtypes([layer.scalar(attrs, len(dtypes))], dtypes)
    return frozenset(_kind(n.op, t) for n, t in found.items())


def _kind(op: str, dtype: DType) -> str:
    passes = op in ("var", "cast")
    if dtype in FLOATS and passes:
        return "float8"
    if dtype.is_int:
        fits = dtype.bits <= 32 and dtype is not DType.UINT32 and passes
    else:
        fits = dtype is DType.BOOL or (dtype.is_float and dtype.bits in (16, 32))
    return "vectors" if fits else "others"
