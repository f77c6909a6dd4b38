"""Growers of layers that move elements: each draws attributes and inputs that fit each other and
adds a layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from strategies import ALL, F32, FLOATS, I32, I64, KINDS, Grower, Unfit

from tactix.base.dims import Dim, ceildiv, prod, sym
from tactix.contracts.graph import Value


def transpose(g: Grower) -> None:
    x = g.take(low=1)
    g.add("Transpose", [x], perm=g.permuted(x.spec.rank))


def reshape(g: Grower) -> None:
    """Neighbours joined, fixed dims taken apart, ones added and dropped."""
    x = g.take()
    out: list[Dim] = []
    for d in x.spec.shape:
        choice = g.int(0, 5)
        if choice == 0 and out:
            out[-1] = out[-1] * d
        elif choice == 1 and isinstance(d, int) and d > 1:
            first = g.one([k for k in range(1, d + 1) if d % k == 0])
            out += [first, d // first]
        elif choice == 2:
            out += [1, d]
        elif choice != 3 or d != 1:
            out.append(d)
    g.add("Reshape", [x], shape=tuple(out) if len(out) <= 6 else (prod(x.spec.shape),))


def with_dim(x: Value, axis: int, d: Dim) -> tuple[Dim, ...]:
    return (*x.spec.shape[:axis], d, *x.spec.shape[axis + 1 :])


def concat(g: Grower) -> None:
    x = g.take(low=1)
    axis = g.int(0, x.spec.rank - 1)

    def suits(v: Value) -> bool:
        pairs = enumerate(zip(v.spec.shape, x.spec.shape, strict=True))
        return v.spec.rank == x.spec.rank and all(a == b for i, (a, b) in pairs if i != axis)

    parts = [x]
    for _ in range(g.int(1, 3)):
        shape = with_dim(x, axis, g.one((x.spec.shape[axis], 1, 3, 16, sym("n"), 0)))
        rank = x.spec.rank
        new = lambda t, shape=shape: g.fresh(t, shape, constant=g.flag())  # noqa: E731
        parts.append(g.take((x.spec.dtype,), rank, rank, when=suits, new=new))
    g.add("Concat", parts, axis=axis - g.one((0, x.spec.rank)))


def split(g: Grower) -> None:
    x = g.take(low=1)
    axis = g.int(0, x.spec.rank - 1)
    rest, sizes = x.spec.shape[axis], []
    for _ in range(g.int(1, 2)):
        least = g.least(rest)
        size: Dim = (
            rest // 2 if g.flag(3) else g.one([k for k in (1, 2, 16, 0, least) if k <= least])
        )
        sizes.append(size)
        rest = rest - size
    g.add("Split", [x], axis=axis, sizes=(*sizes, rest))


def part(g: Grower, d: Dim) -> tuple[Dim, Dim, int]:
    """Begin, size and step of a slice."""
    least = g.least(d)
    if least == 0:
        return 0, d, 1
    if g.flag(3):
        step = g.int(1, 3)
        return d - 1, ceildiv(d, step), -step
    begin, step = g.int(0, min(3, least - 1)), g.int(1, 3)
    size: Dim = ceildiv(d - begin, step)
    return (begin, g.int(0, g.least(size)), step) if g.flag() else (begin, size, step)


def slice_(g: Grower) -> None:
    x = g.take(low=1)
    axes = [i for i in range(x.spec.rank) if g.flag()] or [x.spec.rank - 1]
    rows = [part(g, x.spec.shape[i]) for i in axes]
    begins, sizes, steps = (tuple(r[k] for r in rows) for k in range(3))
    g.add("Slice", [x], begins=begins, sizes=sizes, axes=tuple(axes), steps=steps)


def indices(g: Grower, shape: tuple[Dim, ...], bounds: list[int]) -> Value:
    """Integers that index axes which are never shorter than ``bounds``; the last axis goes over the
    bounds.
    """

    def fill(rng: np.random.Generator, size: tuple[int, ...]) -> Any:
        high = bounds[0] if len(bounds) == 1 else np.array(bounds)
        return rng.integers(-np.asarray(high), high, size)

    return g.fresh(g.one((I64, I32)), shape, constant=g.flag(), fill=fill)


def gather(g: Grower) -> None:
    x = g.take(low=1)
    axis = g.int(0, x.spec.rank - 1)
    bound = g.least(x.spec.shape[axis])
    if not bound:
        raise Unfit
    shape = g.one(((), (1,), (3,), (sym("s"),), (2, 3), (sym("n"), 1, 5), (0,)))
    g.add("Gather", [x, indices(g, shape, [bound])], axis=axis - g.one((0, x.spec.rank)))


def gather_elements(g: Grower) -> None:
    x = g.take(low=1, high=4)
    axis = g.int(0, x.spec.rank - 1)
    bound = g.least(x.spec.shape[axis])
    if not bound:
        raise Unfit
    shape = with_dim(x, axis, g.one((1, 4, sym("s"))))
    g.add("GatherElements", [x, indices(g, shape, [bound])], axis=axis)


def gather_nd(g: Grower) -> None:
    x = g.take(low=1, high=4)
    batch = g.int(0, x.spec.rank - 1) if g.flag(3) else 0
    depth = g.int(1, x.spec.rank - batch)
    bounds = [g.least(d) for d in x.spec.shape[batch : batch + depth]]
    if min(bounds) < 1:
        raise Unfit
    shape = (*x.spec.shape[:batch], *g.one(((), (3,), (sym("s"), 2))), depth)
    g.add("GatherND", [x, indices(g, shape, bounds)], batch_dims=batch)


def scatter_elements(g: Grower) -> None:
    x = g.take(FLOATS, low=1, high=4)
    axis = g.int(0, x.spec.rank - 1)
    bound = g.least(x.spec.shape[axis])
    if not bound:
        raise Unfit
    shape = with_dim(x, axis, 1)
    i = indices(g, shape, [bound])
    g.add(
        "ScatterElements",
        [x, i, g.fresh(x.spec.dtype, shape)],
        axis=axis,
        reduction=g.one(("none", "add", "max")),
    )


def expand(g: Grower) -> None:
    x = g.take(high=4)
    shape = [g.one((sym("n"), 3, 17, 1, 0)) if d == 1 and g.flag() else d for d in x.spec.shape]
    lead = [g.dim() for _ in range(g.int(0, 5 - x.spec.rank))]
    g.add("Expand", [x], shape=(*lead, *shape))


def pad(g: Grower) -> None:
    x = g.take(low=1)
    mode = g.one(("constant", "constant", "edge", "reflect", "wrap"))
    begins, ends = [], []
    for d in x.spec.shape:
        least = g.least(d)
        most = (
            3
            if mode == "constant"
            else 0
            if not least
            else min(3, least - 1)
            if mode == "reflect"
            else 2
        )
        cut = least >= 2 and mode == "constant" and g.flag(4)
        begins.append(-1 if cut else g.int(0, most))
        ends.append(g.int(0, most))
    g.add("Pad", [x], pads=(*begins, *ends), mode=mode, value=g.one((0.0, 1.0)))


def tile(g: Grower) -> None:
    x = g.take(low=1)
    g.add("Tile", [x], repeats=tuple(g.one((1, 2, 3, sym("n"))) for _ in x.spec.shape))


def shape_of(g: Grower) -> None:
    x = g.take()
    start = g.int(0, x.spec.rank)
    g.add("Shape", [x], start=start, end=g.int(start, x.spec.rank) if g.flag() else None)


def fill(g: Grower) -> None:
    g.add(
        "Fill", [], shape=g.shape(0, 4), value=g.one((0.0, 1.0, 3.0)), dtype=g.one((F32, I64, *ALL))
    )


KINDS.update(
    (f.__name__, f)
    for f in (
        transpose,
        reshape,
        concat,
        split,
        slice_,
        gather,
        gather_elements,
        gather_nd,
        scatter_elements,
        expand,
        pad,
        tile,
        shape_of,
        fill,
    )
)
