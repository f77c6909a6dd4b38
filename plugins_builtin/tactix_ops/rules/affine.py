"""Integer tensors that count: Range and what reshapes, shifts and scales it. A gather by one of
them is a Slice or a Reshape, a comparison of one with a bound is decided before running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape, compare, prod
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, literal, var
from tactix_ops.rules.facts import uniform

T = P.tactix
MAX_CONSTANT = 1 << 16
"""Most elements of constants that are looked through."""


@dataclass(frozen=True)
class Affine:
    """The element at index ``i`` is ``offset + sum(i[axis] * strides[axis])``; the stride of a dim
    of 1 is 0.
    """

    shape: Shape
    offset: Dim
    strides: tuple[Dim, ...]

    def times(self, factor: Dim) -> Affine:
        return Affine(self.shape, self.offset * factor, tuple(s * factor for s in self.strides))

    def spread(self, rank: int) -> tuple[Dim, ...]:
        """Strides along the axes of a tensor of that rank that it broadcasts to."""
        return (0,) * (rank - len(self.strides)) + self.strides


def affine(v: Value | None) -> Affine | None:
    """How a tensor of integers counts, or None if it is not known to."""
    if v is None or not v.spec.dtype.is_int:
        return None
    known = v.spec.known()
    if known is not None and len(known) == 1:
        return Affine(v.spec.shape, known[0], (0,) * v.spec.rank)
    if v.const is not None:
        return _constant(v)
    p = v.producer
    step = _STEPS.get(p.layer.name) if p is not None else None
    return None if p is None or step is None else step(p, v.spec.shape)


def _constant(v: Value) -> Affine | None:
    c = v.array
    if not 0 < c.size <= MAX_CONSTANT:
        return None
    first = int(c.flat[0])
    units = np.eye(c.ndim, dtype=np.int64)
    strides = tuple(
        int(c[tuple(u)]) - first if n > 1 else 0 for u, n in zip(units, c.shape, strict=True)
    )
    counted = first + sum(
        (
            np.arange(n).reshape(-1, *(1,) * (c.ndim - i - 1)) * s
            for i, (n, s) in enumerate(zip(c.shape, strides))
        ),
        np.zeros((), np.int64),
    )
    return (
        Affine(c.shape, first, strides)
        if np.array_equal(np.broadcast_to(counted, c.shape), c)
        else None
    )


def _range(node: Node, shape: Shape) -> Affine | None:
    start, _, delta = (v.spec.known() for v in node.given)
    return None if start is None or delta is None else Affine(shape, start[0], (delta[0],))


def _cast(node: Node, shape: Shape) -> Affine | None:
    return affine(node.inputs[0])


def _reshape(node: Node, shape: Shape) -> Affine | None:
    """Only sizes of 1 may come or go."""
    inner = affine(node.inputs[0])
    if inner is None or [d for d in inner.shape if d != 1] != [d for d in shape if d != 1]:
        return None
    strides = iter([s for s, d in zip(inner.strides, inner.shape, strict=True) if d != 1])
    return Affine(shape, inner.offset, tuple(0 if d == 1 else next(strides) for d in shape))


def _expand(node: Node, shape: Shape) -> Affine | None:
    inner = affine(node.inputs[0])
    if inner is None or len(inner.shape) > len(shape):
        return None
    return Affine(shape, inner.offset, inner.spread(len(shape)))


def _slice(node: Node, shape: Shape) -> Affine | None:
    inner, a = affine(node.inputs[0]), node.attrs
    if inner is None:
        return None
    offset, strides = inner.offset, list(inner.strides)
    for begin, axis, step in zip(a.begins, a.axes, a.steps, strict=True):
        offset = offset + begin * strides[axis]
        strides[axis] = strides[axis] * step
    return Affine(
        shape, offset, tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
    )


def _sum(node: Node, shape: Shape) -> Affine | None:
    a, b = (affine(v) for v in node.given)
    if a is None or b is None:
        return None
    strides = zip(a.spread(len(shape)), b.spread(len(shape)), strict=True)
    return Affine(shape, a.offset + b.offset, tuple(x + y for x, y in strides))


def _product(node: Node, shape: Shape) -> Affine | None:
    a, b = (affine(v) for v in node.given)
    if a is None or b is None:
        return None
    if all(s == 0 for s in a.strides):
        a, b = b, a
    if any(s != 0 for s in b.strides):
        return None
    return Affine(shape, a.offset, a.spread(len(shape))).times(b.offset)


_STEPS: dict[str, Callable[[Node, Shape], Affine | None]] = {
    "Range": _range,
    "Cast": _cast,
    "Reshape": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Add": _sum,
    "Mul": _product,
}


def _row_major(shape: Shape) -> list[Dim]:
    return [0 if d == 1 else prod(shape[i + 1 :]) for i, d in enumerate(shape)]


def _spans(count: Affine, size: Dim) -> bool:
    """Whether it enumerates all indices below ``size`` in order."""
    return (
        count.offset == 0
        and prod(count.shape) == size
        and list(count.strides) == _row_major(count.shape)
    )


# -- gather --------------------------------------------------------------------------------------


def _gather_slice(root: Node, data: Value, indices: Value) -> dict[str, Any] | None:
    """Attributes of the Slice that the gather is, if its indices count along one axis at most, and
    none is certain to lie beyond the data's.
    """
    count, axis = affine(indices), root.attrs.axis % data.spec.rank
    if count is None or compare(count.offset, 0) not in ("==", ">=", ">"):
        return None
    moving = [(d, s) for d, s in zip(count.shape, count.strides, strict=True) if d != 1]
    size, step = moving[0] if moving else (1, 1)
    if len(moving) > 1 or not isinstance(step, int) or step <= 0:
        return None
    last = count.offset + (size - 1) * step
    if compare(last, data.spec.shape[axis]) in ("==", ">=", ">"):
        return None
    return {"begins": (count.offset,), "sizes": (size,), "axes": (axis,), "steps": (step,)}


def _gather_all(root: Node, data: Value, indices: Value) -> bool:
    count = affine(indices)
    return count is not None and _spans(count, data.spec.shape[root.attrs.axis])


def _gather_when(root: Node, data: Value, indices: Value) -> bool:
    return _gather_all(root, data, indices) or _gather_slice(root, data, indices) is not None


def _gather(root: Node, data: Value, indices: Value) -> Op:
    where = None if _gather_all(root, data, indices) else _gather_slice(root, data, indices)
    part: Any = data if where is None else T.Slice(data, **where)
    return T.Reshape(part, shape=root.outputs[0].spec.shape)


def _number(net: Any, value: int) -> Value:
    return net.add_constant(np.int64(value))  # type: ignore[no-any-return]


def _counting(net: Any, x: Value, axis: int) -> Value:
    """An example's 0, 1, ... up to the size of one of x's axes."""
    (size,) = net.add_layer("tactix.Shape", [x], start=axis, end=axis + 1)
    (size,) = net.add_layer("tactix.Reshape", [size], shape=())
    counted: Value = net.add_layer("tactix.Range", [_number(net, 0), size, _number(net, 1)])[0]
    return counted


def _gather_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", "s", 3])
    n, s = x.spec.shape[:2]
    table = net.add_constant(np.arange(200, dtype=np.float32).reshape(100, 2))
    rows, columns = _counting(net, x, 0), _counting(net, x, 1)
    net.mark_output(net.add_layer("tactix.Gather", [table, columns], axis=0)[0], "y")
    (rows,) = net.add_layer(
        "tactix.Mul", [net.add_layer("tactix.Reshape", [rows], shape=(n, 1))[0], _dims(net, s)]
    )
    (flat,) = net.add_layer("tactix.Reshape", [x], shape=(n * s, 3))
    (places,) = net.add_layer("tactix.Add", [rows, columns])
    net.mark_output(net.add_layer("tactix.Gather", [flat, places], axis=0)[0], "z")


def _dims(net: Any, d: Dim) -> Value:
    return net.add_layer("tactix.Dims", [], values=(d,), shape=())[0]  # type: ignore[no-any-return]


# -- gather by tuples ----------------------------------------------------------------------------


def _columns(indices: Value) -> Sequence[Value]:
    """What stands for each axis of the data, where the tuples are joined of single columns."""
    p = indices.producer
    joined = (
        p is not None
        and p.layer.name == "Concat"
        and p.attrs.axis % indices.spec.rank == indices.spec.rank - 1
    )
    columns: Sequence[Value] = p.given if joined and p is not None else (indices,)
    return columns if all(c.spec.shape[-1] == 1 for c in columns) else ()


def _grid(root: Node, data: Value, indices: Value) -> bool:
    """Whether the tuples enumerate the leading axes of the data in order."""
    columns = _columns(indices)
    if root.attrs.batch_dims or not columns:
        return False
    grid = indices.spec.shape[:-1]
    if prod(grid) != prod(data.spec.shape[: len(columns)]):
        return False
    axes = iter(range(len(grid)))
    for c, size in zip(columns, data.spec.shape, strict=False):
        count = affine(c)
        if count is None or count.offset != 0:
            return False
        moving = [i for i, s in enumerate(count.strides) if s != 0 and count.shape[i] != 1]
        wanted = [] if size == 1 else [next((i for i in axes if grid[i] != 1), -1)]
        if moving != wanted or any(count.strides[i] != 1 or grid[i] != size for i in moving):
            return False
    return True


def _grid_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", "s", 3])
    n, s = x.spec.shape[:2]
    (rows,) = net.add_layer("tactix.Reshape", [_counting(net, x, 0)], shape=(n, 1, 1, 1))
    (columns,) = net.add_layer("tactix.Reshape", [_counting(net, x, 1)], shape=(1, 1, s, 1))
    spread = [net.add_layer("tactix.Expand", [v], shape=(n, 1, s, 1))[0] for v in (rows, columns)]
    (places,) = net.add_layer("tactix.Concat", spread, axis=-1)
    net.mark_output(net.add_layer("tactix.GatherND", [x, places])[0], "y")


# -- comparisons ---------------------------------------------------------------------------------


def _low(a: Affine) -> Dim | None:
    """A lower bound of the elements."""
    return a.offset if all(compare(s, 0) in ("==", ">=", ">") for s in a.strides) else None


def _at_least(a: Value, b: Value, root: Node) -> bool:
    """Whether every element of ``a`` is at least the one number that ``b`` is."""
    count, bound = affine(a), uniform(b)
    low = None if count is None else _low(count)
    return bound is not None and low is not None and compare(low, int(bound)) in ("==", ">=", ">")


def _true(root: Node) -> Op:
    return T.Expand(literal(np.asarray(True)), shape=root.outputs[0].spec.shape)


def _compare_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", "s"])
    (keep,) = net.add_layer("tactix.GreaterOrEqual", [_counting(net, x, 1), _number(net, 0)])
    (never,) = net.add_layer("tactix.Sub", [x, x])
    net.mark_output(net.add_layer("tactix.Where", [keep, x, never])[0], "y")


_DATA, _INDICES = var("data"), var("indices")

RULES = (
    Rule(
        "tactix.counted_gather",
        T.Gather(_DATA, _INDICES),
        _gather,
        _gather_when,
        benefit=50,
        example=_gather_example,
    ),
    Rule(
        "tactix.counted_gather_nd",
        T.GatherND(_DATA, _INDICES),
        lambda root, data: T.Reshape(data, shape=root.outputs[0].spec.shape),
        _grid,
        benefit=50,
        example=_grid_example,
    ),
    Rule(
        "tactix.counted_at_least",
        any_of(T.GreaterOrEqual(var("a"), var("b")), T.LessOrEqual(var("b"), var("a"))),
        _true,
        _at_least,
        benefit=50,
        example=_compare_example,
    ),
)
