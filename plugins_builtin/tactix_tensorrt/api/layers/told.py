"""Counting to sizes that only a run tells; slices by such bounds, and beyond a tensor's ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.base.dims import Dim
from tactix_tensorrt.api.enums import SampleMode
from tactix_tensorrt.api.lowering import Lowering

if TYPE_CHECKING:
    from tactix.contracts.graph import Value

FAR = 1 << 62
"""Beyond the end of any axis."""


@dataclass(frozen=True)
class Bounds:
    """Of a slice along ``axes``: int64 vectors with an integer for each."""

    start: Value
    size: Value
    stride: Value
    axes: tuple[int, ...]

    def are_of_all(self, i: int, size: Dim) -> bool:
        """Whether the i-th are known to take all of an axis of that size."""
        known = [v.spec.known() for v in (self.start, self.size, self.stride)]
        return [None if v is None else v[i] for v in known] == [0, size, 1]


def vector(emit: Lowering, numbers: tuple[Dim, ...]) -> Value:
    return emit.one("Dims", values=numbers, shape=(len(numbers),))


def element(emit: Lowering, numbers: Value, i: int) -> Value:
    """Of a vector, as a scalar."""
    return emit.reshape(emit.part(numbers, 0, i, 1), ())


def counted(emit: Lowering, sizes: Value, i: int) -> Value:
    """``0, 1, ...`` up to the i-th of some sizes, int64."""
    first, step = (emit.one("Dims", values=(n,), shape=()) for n in (0, 1))
    symbol = f"{emit.symbol('size')}_{i}"
    return emit.one("Range", first, element(emit, sizes, i), step, symbol=symbol)


def along(emit: Lowering, numbers: Value, axis: int, rank: int) -> Value:
    """A vector along one of ``rank`` axes."""
    (size,) = numbers.spec.shape
    return emit.reshape(numbers, tuple(size if i == axis else 1 for i in range(rank)))


def inside(emit: Lowering, x: Value, bounds: Bounds) -> Value:
    """A slice whose bounds only a run tells; the run fails if they are not within ``x``.

    What numpy takes of a tensor has less elements where bounds reach beyond its ends, and then has
    not the sizes that are asked for.
    """
    zero, size, step = emit.number(0, bounds.start), bounds.size, bounds.stride
    beyond = emit.one("Mul", emit.one("Sign", step), emit.number(FAR, step))
    end = emit.one("Add", bounds.start, emit.one("Mul", size, step))
    start, end = (
        emit.one("Where", emit.one("Less", v, zero), beyond, v) for v in (bounds.start, end)
    )
    axes = vector(emit, bounds.axes)
    taken = emit.one("DynamicSlice", x, start, end, axes, step, symbol=emit.symbol("taken"))
    sizes = emit.one("Concat", *_sizes(emit, x, bounds), axis=0)
    return emit.one("DynamicReshape", taken, sizes, symbol=emit.symbol("size"), allowzero=True)


def _sizes(emit: Lowering, x: Value, bounds: Bounds) -> list[Value]:
    """Of each axis, as vectors of one."""
    own = {axis: i for i, axis in enumerate(bounds.axes)}
    return [
        emit.part(bounds.size, 0, own[a], 1) if a in own else vector(emit, (n,))
        for a, n in enumerate(x.spec.shape)
    ]


def beyond_ends(
    emit: Lowering, x: Value, bounds: Bounds, mode: SampleMode, fill: Value | None
) -> Value:
    """A slice that may reach beyond ``x``. ``fill``: a scalar that is there by SampleMode.FILL, 0
    for None.
    """
    for i, axis in enumerate(bounds.axes):
        n = x.spec.shape[axis]
        if bounds.are_of_all(i, n):
            continue
        steps = emit.one("Mul", counted(emit, bounds.size, i), element(emit, bounds.stride, i))
        where = emit.one("Add", steps, element(emit, bounds.start, i))
        count = emit.one("Dims", values=(n,), shape=())
        taken = emit.one("Gather", x, PLACES[mode](emit, where, count), axis=axis)
        x = taken if mode is not SampleMode.FILL else _filled(emit, taken, axis, where, count, fill)
    return x


def _nearest(emit: Lowering, where: Value, count: Value) -> Value:
    last = emit.one("Sub", count, emit.number(1, count))
    return emit.one("Max", emit.one("Min", where, last), emit.number(0, where))


def _wrapped(emit: Lowering, where: Value, count: Value) -> Value:
    return emit.one("Mod", where, count)


def _reflected(emit: Lowering, where: Value, count: Value) -> Value:
    """About the middles of the outermost elements; of a single element that."""
    last = emit.one("Sub", count, emit.number(1, count))
    twice = emit.one("Add", last, last)
    period = emit.one("Max", twice, emit.number(1, twice))
    from_last = emit.one("Sub", emit.one("Mod", where, period), last)
    return emit.one("Sub", last, emit.one("Abs", from_last))


PLACES: Mapping[SampleMode, Callable[[Lowering, Value, Value], Value]] = {
    SampleMode.CLAMP: _nearest,
    SampleMode.FILL: _nearest,
    SampleMode.WRAP: _wrapped,
    SampleMode.REFLECT: _reflected,
}
"""Which element is read for each place along an axis of so many."""


def _filled(
    emit: Lowering, x: Value, axis: int, where: Value, count: Value, fill: Value | None
) -> Value:
    """``fill`` for what was taken from no place along the axis."""
    low = emit.one("Less", where, emit.number(0, where))
    out = emit.one("Or", low, emit.one("GreaterOrEqual", where, count))
    value = emit.number(0, x) if fill is None else emit.cast(fill, x.spec.dtype)
    scalar = emit.reshape(value, ())
    return emit.one("Where", along(emit, out, axis, x.spec.rank), scalar, x)
