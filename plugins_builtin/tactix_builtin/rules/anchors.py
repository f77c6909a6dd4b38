"""Which layers take pointwise layers into the loop that writes their result, and which pointwise layers they take."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tactix.contracts.expr import result_dtype, walk
from tactix.contracts.graph import Node
from tactix.contracts.region import Program, program
from tactix.words.dims import Shape
from tactix.words.dtypes import DType
from tactix.words.tensor import TensorSpec


def takes_epilogue(node: Node) -> bool:
    """Whether the node's anchor says so and has one result; kernels that take the largest of integers hold bytes."""
    anchor = node.anchor
    if anchor is None or len(node.outputs) != 1 or not anchor.layer.takes_epilogue:
        return False
    return anchor.layer.key != "tactix.MaxPool@1" or node.given[0].spec.dtype.is_float


def broadcasts_surely(shape: Shape, out: Shape) -> bool:
    """Whether that is so for all values of the symbols, and which axes repeat is known now."""
    tail = out[len(out) - len(shape) :]
    return len(shape) <= len(out) and all(d in (1, o) for d, o in zip(shape, tail, strict=True))


_expressions: WeakKeyDictionary[Node, tuple[list[TensorSpec], Program, list[TensorSpec]]] = WeakKeyDictionary()


def expressions(node: Node) -> tuple[Program, list[TensorSpec]]:
    """A node's pointwise part and the specs of its body, worked out once for what it reads."""
    given = [v.spec for v in node.given]
    if (held := _expressions.get(node)) is None or any(a is not b for a, b in zip(held[0], given, strict=True)):
        specs = node.specs
        held = _expressions[node] = given, program(node.body, specs), specs
    _, found, specs = held
    return found, specs


def in_vectors(node: Node) -> bool:
    """Whether a pointwise node computes on floats of up to 32 bits and truth values, as vectors of accumulators hold.

    Integers of up to 32 bits may be what it reads and what it gives.
    """
    p, specs = expressions(node)
    dtypes = [specs[i].dtype for i in p.leaves]
    computed = [(n.op, result_dtype(n, dtypes)) for n in walk(p.results)]
    return all(_in_vectors(op, t) for op, t in computed)


def _in_vectors(op: str, dtype: DType) -> bool:
    if dtype.is_int:
        return dtype.bits <= 32 and dtype is not DType.UINT32 and op in ("var", "cast")
    return dtype is DType.BOOL or (dtype.is_float and dtype.bits in (16, 32))
