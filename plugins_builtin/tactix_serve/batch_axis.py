"""Whether requests to a network can go together, and how its tensors are put together and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dims import symbol_name, symbols
from tactix.base.errors import ConfigError, DTypeError, InvalidArgument, ShapeError
from tactix.plan.batch_axis import batch_axis
from tactix.plan.schema import Plan, TensorIO
from tactix_serve.batch_sizes import padded_to

Pads = Mapping[str, Mapping[int, float]]
"""By input and axis, what fills it up to the longest request of a batch."""
PadSizes = Mapping[str, Mapping[int, Sequence[int]]]
"""By input and axis that is padded, sizes of which the least that has room is taken in place of the
longest request's.
"""


class BatchRefused(ConfigError):
    """A network whose requests cannot go together, or not in the way that was asked for."""


@dataclass(frozen=True)
class BatchAxes:
    """``batch``: the symbol of the first axis of all inputs and outputs. ``padded``: symbols of the
    axes that are padded, and ``pads`` with what. ``lowest``, ``highest``: rows that every profile
    takes together, the latter None without a limit. ``lengths``: sizes that padded axes are padded
    to, ascending, by symbol; where there are none that is the longest of the batch.
    """

    inputs: tuple[TensorIO, ...]
    outputs: tuple[TensorIO, ...]
    batch: str
    lowest: int
    highest: int | None
    pads: Pads = field(default_factory=dict)
    padded: frozenset[str] = frozenset()
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def checked(self, feeds: Mapping[str, Array]) -> int:
        """The rows of a request, which fits the inputs but for the profiles. Raises
        InvalidArgument, DTypeError, ShapeError.
        """
        known = {io.name for io in self.inputs}
        if feeds.keys() != known:
            odd = ", ".join(sorted(map(str, feeds.keys() ^ known)))
            what = f"inputs are missing or unknown: {odd}"
            raise InvalidArgument(what, do=f"There are: {', '.join(sorted(known))}")
        sizes: dict[str, int] = {}
        for io in self.inputs:
            _check(io, feeds[io.name], sizes)
        return sizes[self.batch]

    def key(self, feeds: Mapping[str, Array]) -> tuple[tuple[int, ...], ...]:
        """The same for requests that can go together: all sizes but rows and what is padded."""
        return tuple(
            tuple(
                -1 if symbol_name(d) in self.padded else n
                for d, n in zip(io.shape[1:], feeds[io.name].shape[1:], strict=True)
            )
            for io in self.inputs
        )

    def together(self, requests: Sequence[Mapping[str, Array]], rows: int = 0) -> dict[str, Array]:
        """All of them, one after the other along the first axis; behind them the last row again
        until there are so many ``rows``: it is valid wherever its like is.
        """
        few = rows <= len(requests[0][self.inputs[0].name])
        if len(requests) == 1 and few and not self.lengths:
            return dict(requests[0])
        return {
            io.name: self._joined(io, [r[io.name] for r in requests], rows) for io in self.inputs
        }

    def _joined(self, io: TensorIO, arrays: Sequence[Array], rows: int) -> Array:
        pads = self.pads.get(io.name, {})
        longest = [max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)]
        room = [
            padded_to(self.lengths.get(symbol_name(d) or "", ()), n)
            for d, n in zip(io.shape[1:], longest, strict=True)
        ]
        return _joined(arrays, pads, rows, room)

    def apart(
        self, results: Mapping[str, Array], requests: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """The results of each, without rows and ends that are others'; of outputs that there are
        results of.
        """
        if not self.padded:
            return self._rows_apart(results, requests)
        outputs = [io for io in self.outputs if io.name in results]
        out, start = list[dict[str, Array]](), 0
        for feeds in requests:
            sizes = self._sizes(feeds)
            end = start + sizes[self.batch]
            cuts = {io.name: self._cut(io, sizes) for io in outputs}
            out.append({name: results[name][(slice(start, end), *c)] for name, c in cuts.items()})
            start = end
        return out

    def _rows_apart(
        self, results: Mapping[str, Array], requests: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Where only rows are others'."""
        first, rows = self.inputs[0].name, list(results.items())
        out, start = list[dict[str, Array]](), 0
        for feeds in requests:
            end = start + len(feeds[first])
            out.append({name: x[start:end] for name, x in rows})
            start = end
        return out

    def _sizes(self, feeds: Mapping[str, Array]) -> dict[str, int]:
        return {
            name: n
            for io in self.inputs
            for d, n in zip(io.shape, feeds[io.name].shape, strict=True)
            if (name := symbol_name(d)) is not None
        }

    def _cut(self, io: TensorIO, sizes: Mapping[str, int]) -> tuple[slice, ...]:
        names = (symbol_name(d) for d in io.shape[1:])
        return tuple(slice(sizes[n]) if n in self.padded else slice(None) for n in names)


def batch_axes(
    plan: Plan, pads: Pads | None = None, pad_sizes: PadSizes | None = None
) -> BatchAxes:
    """How requests to a plan go together. Raises BatchRefused with the reason where they cannot."""
    axis = batch_axis(plan)
    batch = axis.symbol
    if axis.reasons:
        do = "Export the model with an open first axis, or serve it without batching"
        why = "; ".join(axis.reasons)
        raise BatchRefused("requests cannot go together", who=plan.name, why=why, do=do)
    pads = pads or {}
    padded = _padded(plan, pads)
    tops = [p.dims[batch][2] for p in plan.profiles if batch in p.dims]
    known = [top for top in tops if top is not None]
    highest = min(known) if known else None
    lowest = max((p.dims[batch][0] for p in plan.profiles if batch in p.dims), default=0)
    lengths = _lengths(plan, pad_sizes or {}, padded)
    rows = max(1, lowest), highest
    return BatchAxes(plan.inputs, plan.outputs, batch, *rows, pads, padded, lengths)


def _lengths(plan: Plan, asked: PadSizes, padded: frozenset[str]) -> dict[str, list[int]]:
    """By symbol. Raises BatchRefused for an axis that nothing pads."""
    shapes, out = {io.name: io.shape for io in plan.inputs}, dict[str, list[int]]()
    for name, axes in asked.items():
        for axis, sizes in axes.items():
            shape = shapes.get(name, ())
            symbol = symbol_name(shape[axis]) if 0 < axis < len(shape) else None
            if symbol is None or symbol not in padded:
                what = f"nothing pads axis {axis} of {name!r}, which has sizes to be padded to"
                raise BatchRefused(what, who=plan.name, do="Say what pads it")
            out[symbol] = sorted({*out.get(symbol, ()), *sizes})
    return out


def _padded(plan: Plan, pads: Pads) -> frozenset[str]:
    """Symbols of padded axes. Raises BatchRefused for axes that cannot be."""
    ios = {io.name: io for io in plan.inputs}
    names = set()
    for name, axes in pads.items():
        if name not in ios:
            do = f"There are: {', '.join(ios)}"
            raise BatchRefused(f"no input is named {name!r}, to be padded", who=plan.name, do=do)
        for axis, value in axes.items():
            names.add(_padded_symbol(plan, ios[name], axis))
            _check_pad(plan, ios[name], value)
    for io in plan.inputs:
        bare = {i for i, d in enumerate(io.shape) if symbol_name(d) in names}
        if unpadded := sorted(bare - pads.get(io.name, {}).keys()):
            what = f"axis {unpadded[0]} of {io.name!r} is as long as one that is padded"
            raise BatchRefused(what, who=plan.name, do="Say what pads it, too")
    for io in plan.outputs:
        if any(symbol_name(d) is None and symbols(d) & names for d in io.shape):
            what = f"output {io.name!r} cannot be cut: a size of it is computed of a padded one"
            raise BatchRefused(what, who=plan.name, do="Do not pad that axis")
    return frozenset(names)


def _padded_symbol(plan: Plan, io: TensorIO, axis: int) -> str:
    """Raises BatchRefused."""
    if axis == 0:
        what = f"axis 0 of {io.name!r} is that of rows, which are other requests'"
        raise BatchRefused(what, who=plan.name, do="Name the sizes of batches to have rows padded")
    symbol = symbol_name(io.shape[axis]) if 0 < axis < len(io.shape) else None
    if symbol is None:
        what = f"axis {axis} of {io.name!r} is not open, so that nothing pads it"
        raise BatchRefused(what, who=plan.name, do="Name open axes of inputs but the first")
    return symbol


def _check_pad(plan: Plan, io: TensorIO, value: float) -> None:
    """Raises BatchRefused for a number that the input's dtype does not have."""
    dtype = io.dtype.numpy
    with np.errstate(all="ignore"):
        try:
            fits = io.dtype.is_float or np.asarray(value, dtype).item() == value
        except (TypeError, ValueError, OverflowError):
            fits = False
    if not fits:
        what = f"{value!r} is no {io.dtype.value}, which {io.name!r} could be padded with"
        raise BatchRefused(what, who=plan.name, do=f"Give a number of {io.dtype.value}")


def _check(io: TensorIO, x: Array, sizes: dict[str, int]) -> None:
    if not isinstance(x, np.ndarray) or x.dtype != io.dtype.numpy:
        got = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise DTypeError(f"{io.name!r} is {io.dtype.value}, got {got}")
    fits = len(x.shape) == len(io.shape) and all(
        d == n or sizes.setdefault(str(symbol_name(d) or d), n) == n
        for d, n in zip(io.shape, x.shape, strict=True)
        if isinstance(d, int) or symbol_name(d) is not None
    )
    if not fits:
        wanted = ", ".join(map(str, io.shape))
        sized = ((str(symbol_name(d)), n) for d, n in zip(io.shape, x.shape))
        others = [f"{name} is {sizes[name]}" for name, n in sized if sizes.get(name, n) != n]
        what = f"input {io.name!r} is ({wanted}), got {x.shape}"
        raise ShapeError(what, why=", ".join(others))


def _joined(
    arrays: Sequence[Array], pads: Mapping[int, float], least: int, rest: Sequence[int]
) -> Array:
    rows = sum(map(len, arrays))
    if not pads and rows >= least:
        return np.concatenate(arrays)
    out = np.empty((max(rows, least), *rest), arrays[0].dtype)
    if pads:
        out[:rows] = next(iter(pads.values()))
        start = 0
        for a in arrays:
            out[(slice(start, start + len(a)), *(slice(n) for n in a.shape[1:]))] = a
            start += len(a)
    else:
        np.concatenate(arrays, out=out[:rows])
    if rows:
        out[rows:] = out[rows - 1]
    return out
