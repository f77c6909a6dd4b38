"""What rules ask about tensors and nodes, and templates that repeat a node with other inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tactix.base.dims import Dim, Expr, Shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op

Array = Any
"""A numpy array."""

NOT_NUMBERS = frozenset({DType.STRING, DType.COMPLEX64, DType.COMPLEX128})


def is_static(value: Any) -> bool:
    """Whether an attribute value, or every field of attributes, holds no symbol."""
    if dataclasses.is_dataclass(value):
        return all(is_static(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, tuple):
        return all(is_static(v) for v in value)
    return not isinstance(value, Expr)


def fields_of(attrs: Any) -> tuple[tuple[str, Any], ...]:
    """Attributes as an Op takes them."""
    return tuple((f.name, getattr(attrs, f.name)) for f in dataclasses.fields(attrs))


def again(node: Node, inputs: Sequence[Any], **changed: Any) -> Op:
    """Template: the node's layer over other inputs, some attributes changed."""
    return Op(
        node.layer.key, tuple(inputs), tuple({**dict(fields_of(node.attrs)), **changed}.items())
    )


def uniform(v: Value | None) -> float | None:
    """The number that every element of a constant is; None if they differ, or it is no constant."""
    if v is None or v.const is None or not v.const.size or v.spec.dtype in NOT_NUMBERS:
        return None
    first = v.const.flat[0]
    return float(first) if (v.const == first).all() else None


def scalar_const(v: Value | None) -> float | None:
    """The number that a constant with one element is; None if it is another tensor."""
    return uniform(v) if v is not None and v.const is not None and v.const.size == 1 else None


def close(v: Value | None, target: float) -> bool:
    """Whether it is the target as models spell it: one element, to four digits, or as the tensor's
    dtype rounds it.
    """
    number = scalar_const(v)
    if v is None or number is None:
        return False
    return abs(number - target) <= 1e-4 * abs(target) or number == float(
        np.asarray(target).astype(v.array.dtype)
    )


def core_shape(shape: Shape) -> Shape:
    """The shape without leading ones: how far it reaches when it broadcasts."""
    lead = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return tuple(shape[lead:])


def along_axis(v: Value, rank: int, axis: int, size: Dim) -> Array | None:
    """A constant that broadcasts to a tensor of that rank and varies along ``axis`` alone: a vector
    of ``size``.
    """
    if v.const is None or v.spec.rank > rank or not isinstance(size, int):
        return None
    shape = (1,) * (rank - v.spec.rank) + v.const.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, size):
        return None
    return np.broadcast_to(v.const.reshape(-1), (size,))


def contiguous(x: Array) -> Array:
    """A C-contiguous array of the same content; itself if it is one."""
    x = x if hasattr(x, "flags") else np.asarray(x)
    return x if x.flags.c_contiguous else x.copy()


def used_only_by(graph: Any, value: Value, node: Node) -> bool:
    """Whether the node alone reads the tensor, however often."""
    uses = graph.uses(value)
    return bool(uses) and not graph.is_output(value) and all(n is node for n, _ in uses)


def awaits_reader(node: Node, graph: Any) -> bool:
    """Whether the node only widens halves for one pointwise node: then it joins that one, so that
    halves are stored.
    """
    if (
        node.layer.key != "tactix.Cast@1"
        or node.attrs.to is not DType.FP32
        or node.given[0].spec.dtype.bits != 16
    ):
        return False
    shape, reader = node.outputs[0].spec.shape, graph.only_use(node.outputs[0])
    return (
        reader is not None and reader.body.anchor is None and reader.outputs[0].spec.shape == shape
    )


def narrows_for_reader(node: Node, graph: Any) -> bool:
    """Whether the node only rounds to float16, for one pointwise node, what others read in float32:
    then it joins that one, so that the tensor is stored once.
    """
    if (
        node.layer.key != "tactix.Cast@1"
        or node.attrs.to is not DType.FP16
        or node.given[0].spec.dtype is not DType.FP32
    ):
        return False
    reader = graph.only_use(node.outputs[0])
    return (
        reader is not None
        and reader.body.anchor is None
        and graph.only_use(node.given[0]) is not node
    )


def holds_magnitudes(dtype: DType, largest: Array) -> bool:
    """Whether a dtype holds numbers of so large magnitudes in place of those that they are made of:
    as normal numbers, so that they are rounded no more than those were. ``largest``: of each
    channel, in float64; 0 where it has nothing but zeros. What is below the normal numbers of a
    channel whose largest is one is lost beside that. Integers never do: these numbers have
    fractions.
    """
    if not dtype.is_float:
        return False
    find: Any = ml_dtypes.finfo
    limits = find(dtype.numpy)
    normal = (largest >= float(limits.tiny)) & (largest <= float(limits.max))
    return bool((normal | (largest == 0)).all())
