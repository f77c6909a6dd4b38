"""Scalar expressions over dims instead of numbers: the content of small shape tensors through
pointwise layers.

Elements are dims; truth values are 0 and 1; floats take part while they are whole. None: not
decided for all symbols.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim, Shape, compare
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr

LIMIT = 1024
"""Most elements that are tracked."""

Element = Dim | None


def propagate(
    s: expr.Scalar, inputs: Sequence[TensorSpec], out: TensorSpec
) -> tuple[Dim, ...] | None:
    """The output's elements in row-major order, if those of all inputs are known and all results
    can be decided.
    """
    known = [content(x) for x in inputs]
    if None in known:
        return None
    sizes = [d for d in out.shape if isinstance(d, int)]
    if len(sizes) != out.rank or math.prod(sizes) > LIMIT:
        return None
    spread = [
        _spread(v, x.shape, sizes) for v, x in zip(known, inputs, strict=True) if v is not None
    ]
    nodes, types = expr.walk([s]), [x.dtype for x in inputs]
    results = [_element(nodes, values, types) for values in zip(*spread, strict=True)]
    if any(isinstance(r, int) and not -(1 << 63) <= r < 1 << 63 for r in results):
        return None  # running wraps around, or is a float
    return None if any(r is None for r in results) else tuple(r for r in results if r is not None)


def content(x: TensorSpec) -> tuple[Dim, ...] | None:
    """``known()``, or the elements of a small floating constant whose elements are whole."""
    import numpy as np

    found = x.known()
    if (
        found is None
        and isinstance(x.const, np.ndarray)
        and x.dtype.is_float
        and x.const.size <= LIMIT
    ):
        floats = [float(v) for v in x.const.ravel()]
        return tuple(int(v) for v in floats) if all(v.is_integer() for v in floats) else None
    return found


def _spread(values: Sequence[Dim], shape: Shape, to: Sequence[int]) -> list[Dim]:
    """Broadcasting of a row-major list."""
    strides, step = [0] * len(to), 1
    for axis in range(1, len(shape) + 1):
        strides[-axis] = 0 if shape[-axis] == 1 else step
        step *= int(shape[-axis])  # type: ignore[arg-type]
    places = itertools.product(*(range(n) for n in to))
    return [values[sum(i * k for i, k in zip(index, strides, strict=True))] for index in places]


def _element(
    nodes: Sequence[expr.Scalar], values: Sequence[Dim], types: Sequence[DType]
) -> Element:
    memo: dict[int, Element] = {}
    for n in nodes:
        memo[id(n)] = _node(n, [memo[id(a)] for a in n.args], values, types)
    return memo[id(nodes[-1])]


def _node(
    n: expr.Scalar, args: list[Element], values: Sequence[Dim], types: Sequence[DType]
) -> Element:
    if n.op == "var":
        return values[n.index]
    if n.op == "const":
        return int(n.number) if math.isfinite(n.number) and n.number == int(n.number) else None
    if n.op == "select":
        return args[1] if args[0] == 1 else args[2] if args[0] == 0 or args[1] == args[2] else None
    if n.op == "cast" and args[0] is not None:
        return _cast(args[0], n.dtype)
    if n.op not in _TABLE or any(a is None for a in args):
        return None
    floating = n.op == "div" and expr.result_dtype(n, types).is_float
    return (_exact if floating else _TABLE[n.op])(*args)


def _cast(a: Dim, dtype: DType) -> Element:
    if dtype is DType.BOOL:
        return _not(_eq(a, 0))
    if isinstance(a, dims.Expr) or dtype.is_float:
        return a if dtype.bits >= 32 and (dtype.is_int or dtype.is_float) else None
    low = -(1 << dtype.bits - 1) if dtype.is_signed_int else 0
    return a if dtype.is_int and low <= a < low + (1 << dtype.bits) else None


def _exact(a: Any, b: Any) -> Element:
    return None if b == 0 else dims.exact_div(a, b)


def _div(a: Dim, b: Dim) -> Element:
    """Truncating division."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not _at_least(b, 1):
        return _exact(a, b)
    if _at_least(a, 0):
        return dims.floordiv(a, b)
    exact = _exact(a, b)
    if exact is not None:
        return exact
    # what is below 0 as long as a size may be 0, as (size - 1) / 4 in what exporters write
    up, down = (dims.floordiv(dims.dmax(part, 0), b) for part in (a, -a))
    return up if _at_least(a + b, 1) else up - down


def _mod(a: Dim, b: Dim) -> Element:
    return dims.mod(a, b) if b != 0 and (isinstance(b, int) or _at_least(b, 1)) else None


def _abs(a: Dim) -> Element:
    return abs(a) if isinstance(a, int) else a if _at_least(a, 0) else None


def _at_least(a: Dim, low: int) -> bool:
    return (found := dims.bounds(a)[0]) is not None and found >= low


def _eq(a: Dim, b: Dim) -> Element:
    return {"==": 1, "<": 0, ">": 0}.get(compare(a, b) or "")


def _not(a: Element) -> Element:
    return 1 - a if isinstance(a, int) else None


_TABLE: dict[str, Callable[..., Element]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _div,
    "mod": _mod,
    "min": dims.dmin,
    "max": dims.dmax,
    "abs": _abs,
    "lt": lambda a, b: {"<": 1, "==": 0, ">": 0, ">=": 0}.get(compare(a, b) or ""),
    "le": lambda a, b: {"<": 1, "<=": 1, "==": 1, ">": 0}.get(compare(a, b) or ""),
    "eq": _eq,
    "not": _not,
    "and": lambda a, b: a * b,
    "or": lambda a, b: a + b - a * b,
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda a: a),
}
