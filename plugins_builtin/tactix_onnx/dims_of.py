"""Shape arithmetic of the shape operators: targets of Reshape, bounds of Slice, sizes of Split,
over symbolic dims.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import Dim, bounds, ceildiv, compare, dmax, dmin, exact_div, floordiv, prod
from tactix.base.errors import ShapeError

INFINITY = 1 << 31
"""Exporters write "to the end" as a bound beyond any dim: from here on it is taken as that."""


def resolved(shape: Sequence[Dim], target: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """A Reshape target with 0 (the input's dim, unless ``allow_zero``) and -1 (what is left)
    replaced.

    Raises ShapeError.
    """
    out = list(target)
    for i, d in enumerate(out):
        if isinstance(d, int) and d == 0 and not allow_zero:
            if i >= len(shape):
                raise ShapeError(f"the target's axis {i} copies a dim that the input does not have")
            out[i] = shape[i]
    free = [i for i, d in enumerate(out) if isinstance(d, int) and d == -1]
    if len(free) > 1:
        raise ShapeError("the target has more than one -1")
    if free:
        out[free[0]] = _left(shape, [d for i, d in enumerate(out) if i != free[0]])
    return tuple(out)


def _left(shape: Sequence[Dim], taken: Sequence[Dim]) -> Dim:
    """The quotient of two products, common factors first, so that symbols cancel."""
    above, below = list(shape), []
    for d in taken:
        if d in above:
            above.remove(d)
        else:
            below.append(d)
    total, divisor = prod(above), prod(below)
    if isinstance(divisor, int) and divisor == 0:
        raise ShapeError("-1 beside a dim of 0 has no meaning")
    if isinstance(total, int) and isinstance(divisor, int) and total % divisor:
        raise ShapeError(f"{total} elements do not divide by {divisor}")
    exact = exact_div(total, divisor)
    return floordiv(total, divisor) if exact is None else exact


def slice_bounds(size: Dim, start: Dim, end: Dim, step: int, fits: bool = False) -> tuple[Dim, Dim]:
    """First element and number of elements of ``start:end:step`` as ONNX clamps them to an axis of
    ``size``.

    ``fits``: ``end`` is known to lie within.
    """
    if step > 0:
        first = _clamped(_from_end(start, size), size)
        last = size if _is_beyond(end) else end if fits else _clamped(_from_end(end, size), size)
        return first, _positive(ceildiv(last - first, step))
    first = size - 1 if _is_beyond(start) else dmin(_from_end(start, size), size - 1)
    last = -1 if isinstance(end, int) and end <= -INFINITY else dmax(_from_end(end, size), -1)
    return _positive(first), _positive(ceildiv(first - last, -step))


def _is_beyond(d: Dim) -> bool:
    return isinstance(d, int) and d >= INFINITY


def _from_end(d: Dim, size: Dim) -> Dim:
    """A negative bound counts from the end; an expression is negative if it cannot be otherwise."""
    high = bounds(d)[1]
    if high is not None and high < 0:
        return size + d if not (isinstance(d, int) and d <= -INFINITY) else 0
    return d


def _clamped(d: Dim, size: Dim) -> Dim:
    return dmin(_positive(d), size)


def _positive(d: Dim) -> Dim:
    return d if compare(d, 0) in (">", ">=", "==") else dmax(d, 0)


def even_parts(size: Dim, count: int) -> tuple[Dim, ...]:
    """``count`` equal parts, the last one smaller where they do not divide."""
    each = ceildiv(size, count)
    return (*(each,) * (count - 1), size - each * (count - 1))
