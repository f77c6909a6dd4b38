"""Sliding windows: the geometry that convolution and pooling share.

A window of extent ``k`` with dilation ``d`` spans ``d (k - 1) + 1`` elements. ``pads`` lists the
begin of every spatial axis, then the end of every one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tactix.base.dims import Dim, Shape, assume, ceildiv, compare, dmin, floordiv
from tactix.base.errors import ShapeError
from tactix_ops.layers.common import Array


def filled(values: Sequence[Dim], rank: int, default: int, who: str, what: str) -> tuple[Dim, ...]:
    """``values``, or the default for each axis where there are none. Raises ShapeError for another
    number of them.
    """
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise ShapeError(f"{who}: {len(values)} {what} where {rank} are needed")
    return tuple(values)


def spans(kernel: Sequence[Dim], dilations: Sequence[Dim]) -> tuple[Dim, ...]:
    """Elements from the first to the last of a window."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def window_count(
    size: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[Dim],
    pads: Sequence[Dim],
    dilations: Sequence[Dim],
    ceil_mode: bool,
    who: str,
) -> Shape:
    """Windows along each axis. With ``ceil_mode`` a last one may hang over, if it starts before the
    end's pad.

    The last may be the first: a window larger than its axis, by less than the stride. Of an open
    axis it is assumed that the number is not negative. Raises ShapeError.
    """
    counts, n = _counts(size, kernel, strides, pads, dilations, ceil_mode), len(size)
    for i, span in enumerate(spans(kernel, dilations)):
        around = f"pads of {pads[i]} and {pads[n + i]}"
        window = f"a window of {span} (kernel {kernel[i]}, dilation {dilations[i]})"
        broken = f"{who}: {window} does not fit spatial axis {i} of {size[i]} with {around}"
        if compare(counts[i], 1) == "<":
            raise ShapeError(broken, do="Give a larger input, a smaller kernel or more pads")
        beyond = 2 * strides[i] - 1 if ceil_mode else strides[i]
        assume(size[i], ">=", span - pads[i] - pads[n + i] - beyond, broken)
    return fitting(size, kernel, strides, pads, dilations, ceil_mode)


def fitting(
    size: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[Dim],
    pads: Sequence[Dim],
    dilations: Sequence[Dim],
    ceil_mode: bool,
) -> Shape:
    """As ``window_count``, but 0 where no window fits: an open axis may turn out too small."""
    counts = _counts(size, kernel, strides, pads, dilations, ceil_mode)
    if not ceil_mode:
        return counts
    starts = (ceildiv(size[i] + pads[i], strides[i]) for i in range(len(size)))
    return tuple(dmin(count, most) for count, most in zip(counts, starts, strict=True))


def _counts(
    size: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[Dim],
    pads: Sequence[Dim],
    dilations: Sequence[Dim],
    ceil_mode: bool,
) -> Shape:
    """Windows along each axis, those among them that start in the pad at the end."""
    divided, n = ceildiv if ceil_mode else floordiv, len(size)
    rooms = (size[i] + pads[i] + pads[n + i] - s for i, s in enumerate(spans(kernel, dilations)))
    return tuple(divided(room, strides[i]) + 1 for i, room in enumerate(rooms))


def padded(x: Array, pads: Sequence[int], value: float, extra: Sequence[int] = ()) -> Array:
    """``x`` (N, C, spatial...) with ``value`` around it; ``extra`` more at the end of each axis."""
    n = x.ndim - 2
    more = extra or (0,) * n
    widths = [(0, 0), (0, 0), *((pads[i], pads[n + i] + more[i]) for i in range(n))]
    if not any(a or b for a, b in widths):
        return x
    if any(a < 0 or b < 0 for a, b in widths):
        x = x[
            tuple(
                slice(max(0, -a), m - max(0, -b)) for (a, b), m in zip(widths, x.shape, strict=True)
            )
        ]
        widths = [(max(0, a), max(0, b)) for a, b in widths]
    return np.pad(x, widths, constant_values=np.asarray(value, x.dtype))


def windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    out: Sequence[int],
) -> Array:
    """A view (N, C, out..., kernel...) of the padded array: no copy."""
    n = x.ndim - 2
    if 0 in out:  # no window fits in
        return np.empty((*x.shape[:2], *out, *kernel), x.dtype)
    shown = np.lib.stride_tricks.sliding_window_view(
        x,
        tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)),
        axis=tuple(range(2, 2 + n)),
    )
    steps = tuple(slice(None, o * s, s) for o, s in zip(out, strides, strict=True))
    return shown[(slice(None), slice(None), *steps, *(slice(None, None, d) for d in dilations))]


def overhang(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    out: Sequence[int],
) -> tuple[int, ...]:
    """Elements that the last window reaches beyond the padded end, per axis."""
    n = len(size)
    geometry = zip(out, strides, kernel, dilations, strict=True)
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in geometry]
    return tuple(max(0, reach[i] - (size[i] + pads[i] + pads[n + i])) for i in range(n))


def taps(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    out: Sequence[int],
) -> Iterator[Array]:
    """For each place in a window, a view (N, C, out...) of the elements that windows have there."""
    for tap in itertools.product(*map(range, kernel)):
        starts = (t * d for t, d in zip(tap, dilations, strict=True))
        yield x[
            (
                ...,
                *(
                    slice(a, a + (o - 1) * s + 1, s)
                    for a, o, s in zip(starts, out, strides, strict=True)
                ),
            )
        ]
