"""The closed list of operations that recipes are made of: what tracing writes down and refitting
computes again.

An operation takes arrays and parameters that are JSON, and gives an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tactix.base.dtypes import DType

Array = Any

UFUNCS: dict[str, Any] = {
    f.__name__: f
    for f in (
        np.add,
        np.subtract,
        np.multiply,
        np.divide,
        np.negative,
        np.sqrt,
        np.square,
        np.reciprocal,
        np.exp,
        np.log,
        np.absolute,
        np.maximum,
        np.minimum,
        np.power,
        np.tanh,
        np.rint,
        np.floor,
        np.ceil,
        np.sign,
        np.matmul,
    )
}
"""By name, which is that of the operation."""


def key_to_json(key: Any, ndim: int) -> list[Any] | None:
    """A basic index: integers, slices, None, one Ellipsis; None for any other."""
    parts = key if isinstance(key, tuple) else (key,)
    out: list[Any] = []
    for p in parts:
        if isinstance(p, slice):
            out.append([None if v is None else int(v) for v in (p.start, p.stop, p.step)])
        elif isinstance(p, (int, np.integer)) and not isinstance(p, (bool, np.bool_)):
            out.append(int(p))
        elif p is None:
            out.append("new")
        elif p is Ellipsis:
            out.append("...")
        else:
            return None
    return out


def _index(j: Any) -> Any:
    if isinstance(j, (list, tuple)):
        return slice(*j)
    return {"new": None, "...": Ellipsis}[j] if isinstance(j, str) else int(j)


def _pad(x: Array, widths: Sequence[Sequence[int]]) -> Array:
    """Zeros before and after each axis; quicker than numpy's."""
    out = np.zeros([n + a + b for n, (a, b) in zip(x.shape, widths, strict=True)], x.dtype)
    out[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, widths, strict=True))] = x
    return out


def _concatenate(*args: Any) -> Array:
    *arrays, axis = args
    return np.concatenate(arrays, axis)


def _finite_or(x: Array, other: Array) -> Array:
    finite = np.isfinite(x)
    return (
        other
        if x.shape == other.shape and x.dtype == other.dtype and finite.all()
        else np.where(finite, other, x)
    )


VIEWS: dict[str, Callable[..., Array]] = {
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, axes: x.transpose(axes),
    "index": lambda x, key: x[tuple(map(_index, key))],
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
}
"""Operations that compute nothing: most give another view of the same memory."""

_OTHERS: dict[str, Callable[..., Array]] = {
    "cast": lambda x, dtype: x.astype(DType(dtype).numpy),
    "bits": lambda x, dtype: np.ascontiguousarray(x).view(DType(dtype).numpy),
    "pad": _pad,
    "concatenate": _concatenate,
    "sum": lambda x, axes, keep: x.sum(axis=None if axes is None else tuple(axes), keepdims=keep),
    "take": lambda x, places, axis: np.take(x, places, axis),
    "repeat": lambda x, times, axis: np.repeat(x, times, axis),
    "clip": lambda x, low, high: np.clip(x, low, high),
    "finite_or": lambda x, other: _finite_or(x, other),
}

ELEMENTWISE = (UFUNCS.keys() - {"matmul"}) | {"cast", "clip", "finite_or"}
"""Operations on single elements, whose first axis is that of what they are given."""

OPS: dict[str, Callable[..., Array]] = {**UFUNCS, **VIEWS, **_OTHERS}
"""Name to what computes it, of arrays and then parameters."""


def run(op: str, args: Sequence[Array], params: Sequence[Any]) -> Array:
    """The result. Raises what numpy raises."""
    with np.errstate(all="ignore"):
        return OPS[op](*args, *params)


def growth(op: str, shapes: Sequence[tuple[int, ...]], params: Sequence[Any]) -> int:
    """Elements of the result of an operation that may give more of them than it reads; 0 for
    others.
    """
    if op == "pad":
        return math.prod(n + a + b for n, (a, b) in zip(shapes[0], params[0], strict=True))
    if op in ("broadcast", "repeat"):
        return (
            int(math.prod(params[0]))
            if op == "broadcast"
            else math.prod(shapes[0]) * int(params[0])
        )
    if op == "matmul":
        return (
            math.prod(shapes[0][:-1])
            * math.prod(shapes[1][-1:])
            * max(1, math.prod(shapes[1][:-2]))
        )
    if op == "concatenate":
        return sum(map(math.prod, shapes))
    if op == "take":
        return math.prod(shapes[0]) // max(1, shapes[0][int(params[0])]) * math.prod(shapes[1])
    return int(math.prod(np.broadcast_shapes(*shapes))) if op in UFUNCS or op == "finite_or" else 0
