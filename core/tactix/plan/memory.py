"""Where intermediate tensors lie: offsets in one arena, so that tensors live at the same time never
overlap.

Greedy best fit over live intervals (as in Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020), in a few orders; the best result is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce

from tactix.base.arithmetic import ArithmeticWriter
from tactix.base.errors import InvalidArgument

Lifetimes = Sequence[tuple[int, int]]

CROWD = 1024
"""Among more tensors that live together no gap is looked for: that would take time that grows with
their square.
"""


def plan_memory(
    sizes: Sequence[int], lifetimes: Lifetimes, alignment: int = 64
) -> tuple[list[int], int]:
    """Offsets in bytes, and the bytes of the arena.

    ``lifetimes``: first and last step, both included. Raises InvalidArgument for negative sizes or
    reversed lifetimes.
    """
    if (
        any(n < 0 for n in sizes)
        or any(a > b for a, b in lifetimes)
        or len(sizes) != len(lifetimes)
    ):
        raise InvalidArgument("sizes must not be negative, and lifetimes not end before they begin")
    padded = [-(-n // alignment) * alignment for n in sizes]
    bound = lower_bound(sizes, lifetimes, alignment)
    best: tuple[list[int], int] = ([], -1)
    for order in _orders(padded, lifetimes):
        found = _place(padded, lifetimes, order)
        if best[1] < 0 or found[1] < best[1]:
            best = found
        if best[1] == bound:
            break
    return best


def lower_bound(sizes: Sequence[int], lifetimes: Lifetimes, alignment: int = 64) -> int:
    """The most bytes that are live at once: no placement needs less."""
    change: dict[int, int] = {}
    for n, (first, last) in zip(sizes, lifetimes, strict=True):
        padded = -(-n // alignment) * alignment
        change[first] = change.get(first, 0) + padded
        change[last + 1] = change.get(last + 1, 0) - padded
    live = most = 0
    for t in sorted(change):
        live += change[t]
        most = max(most, live)
    return most


def _orders(sizes: Sequence[int], lifetimes: Lifetimes) -> Iterator[list[int]]:
    """By size; by time; by size times duration; the largest come first."""
    ids = range(len(sizes))
    yield sorted(ids, key=lambda i: (-sizes[i], lifetimes[i]))
    yield sorted(ids, key=lambda i: (lifetimes[i][0], -sizes[i]))
    yield sorted(
        ids, key=lambda i: (-sizes[i] * (1 + lifetimes[i][1] - lifetimes[i][0]), lifetimes[i])
    )


def _place(
    sizes: Sequence[int], lifetimes: Lifetimes, order: Sequence[int]
) -> tuple[list[int], int]:
    """Each in turn in the smallest gap that it fits in, else above what is there."""
    begun, ended = _masks(lifetimes, order)
    offsets = [0] * len(sizes)
    top, placed = 0, 0
    for rank, i in enumerate(order):
        if not (size := sizes[i]):
            continue
        first, last = lifetimes[i]
        others = begun[last] & ~ended[first] & placed
        offset = (
            _fit(size, _taken(others, order, offsets, sizes))
            if others.bit_count() <= CROWD
            else top
        )
        offsets[i] = offset
        top = max(top, offset + size)
        placed |= 1 << rank
    return offsets, top


def _masks(lifetimes: Lifetimes, order: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """For each time, as bits by rank: who has begun by then, and who has ended before."""
    times = sorted({t for life in lifetimes for t in life})
    starts, stops = dict.fromkeys(times, 0), dict.fromkeys(times, 0)
    for rank, i in enumerate(order):
        first, last = lifetimes[i]
        starts[first] |= 1 << rank
        stops[last] |= 1 << rank
    begun, ended, b, e = {}, {}, 0, 0
    for t in times:
        b |= starts[t]
        begun[t], ended[t] = b, e
        e |= stops[t]
    return begun, ended


def _taken(
    mask: int, order: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Sorted intervals of the ranks in the mask."""
    out = []
    while mask:
        low = mask & -mask
        i = order[low.bit_length() - 1]
        out.append((offsets[i], offsets[i] + sizes[i]))
        mask ^= low
    out.sort()
    return out


def _fit(size: int, taken: list[tuple[int, int]]) -> int:
    """Offset of the smallest gap that holds the size, or the end."""
    best, best_gap, end = -1, -1, 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = end, gap
        if stop > end:
            end = stop
    return end if best < 0 else best


class Stacking:
    """Which tensor lies above which, taken from a placement: gives offsets at other sizes without
    another search.

    Two tensors that live at the same time keep their order in the arena at any sizes, so they never
    overlap; a tensor begins where the highest of those directly below it ends (the longest path in
    that graph). At the sizes of the placement that is at most its bytes.

    ``sizes``: in bytes, those of the placement.
    """

    def __init__(self, offsets: Sequence[int], sizes: Sequence[int], lifetimes: Lifetimes) -> None:
        # what is empty now lies below: above, it would push up what only lives beside it later
        self._order = sorted(range(len(offsets)), key=lambda i: (offsets[i], sizes[i] > 0, i))
        self._below = _below(self._order, lifetimes)

    def write(
        self, writer: ArithmeticWriter, sizes: Sequence[int], alignment: int = 64
    ) -> tuple[list[int], int]:
        """Places of the offsets in bytes, and of the bytes of the arena. ``sizes``: places of those
        of each tensor, in bytes.
        """
        zero, more, unit = map(writer.constant, (0, alignment - 1, alignment))
        offsets, ends = [zero] * len(sizes), list[int]()
        for i, direct in zip(self._order, self._below, strict=True):
            offsets[i] = _highest(writer, [ends[rank] for rank in direct])
            units = writer.operation("//", writer.operation("+", sizes[i], more), unit)
            padded = writer.operation("*", units, unit)
            ends.append(writer.operation("+", offsets[i], padded))
        covered = {rank for direct in self._below for rank in direct}
        return offsets, _highest(writer, [e for i, e in enumerate(ends) if i not in covered])


def _highest(writer: ArithmeticWriter, places: Sequence[int]) -> int:
    """The place of the largest of some values, 0 of none."""
    return reduce(partial(writer.operation, "max"), places) if places else writer.constant(0)


def _below(order: Sequence[int], lifetimes: Lifetimes) -> list[list[int]]:
    """For each rank the ranks directly below it: lower ones that live at the same time, but for
    those with another of them between.
    """
    begun, ended = _masks(lifetimes, order)
    lower = []
    for rank, i in enumerate(order):
        first, last = lifetimes[i]
        lower.append(begun[last] & ~ended[first] & ((1 << rank) - 1))
    out = []
    for mask in lower:
        reached, direct = 0, []
        while left := mask & ~reached:
            rank = left.bit_length() - 1
            direct.append(rank)
            reached |= 1 << rank | lower[rank]
        out.append(direct)
    return out
