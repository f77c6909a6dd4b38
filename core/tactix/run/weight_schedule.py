"""Which weights stay, and which pass through a window: from the bytes of each step and a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Uses = Sequence[frozenset[str]]
"""The streamable weights that each step reads."""


@dataclass(frozen=True)
class Group:
    """Steps [first, stop) that run as one, and the blobs that come before them and go after them.

    ``slot``: the part of the window that these pass through.
    """

    first: int
    stop: int
    blobs: tuple[str, ...]
    slot: int


@dataclass(frozen=True)
class WeightSchedule:
    """What stays under a budget, and the window: ``slots`` parts of ``limit`` bytes; none where
    everything stays.

    With several of them a group's blobs come while those before it run.
    """

    sizes: Mapping[str, int]
    kept: frozenset[str]
    limit: int
    slots: int

    @property
    def window(self) -> int:
        """Bytes."""
        return self.limit * self.slots

    def groups(self, steps: Uses) -> tuple[Group, ...]:
        """Steps as far as their blobs fit into a slot together; a blob lies where the steps first
        need it.
        """
        out: list[Group] = []
        first, blobs = 0, dict[str, None]()
        for i, s in enumerate(steps):
            own = dict.fromkeys(sorted(s - self.kept))
            if _sum(blobs | own, self.sizes) > self.limit:
                out.append(self._group(len(out), first, i, blobs))
                first, blobs = i, {}
            blobs = blobs | own
        return (*out, self._group(len(out), first, len(steps), blobs))

    def _group(self, index: int, first: int, stop: int, blobs: Mapping[str, None]) -> Group:
        return Group(first, stop, tuple(blobs), index % max(1, self.slots))


def least(steps: Uses, sizes: Mapping[str, int]) -> int:
    """The smallest budget: what the step with the most weights needs."""
    return max((_sum(s, sizes) for s in steps), default=0)


@dataclass(frozen=True)
class StreamingWindow:
    """What a backing asks of a window. ``slots``: how many it may have; with three, what comes need
    not keep step with what runs. ``most``: bytes beyond which nothing is gained, but for larger
    steps. ``multiple``: of blobs and slots.
    """

    slots: int = 2
    most: int | None = None
    multiple: int = 1


def plan(
    steps: Uses, sizes: Mapping[str, int], budget: int, want: StreamingWindow
) -> WeightSchedule:
    """What a budget of at least ``least`` leaves room for.

    A quarter of the budget is a window through which weights pass, but room for two steps if that
    can be, and for more of them in half of the budget: a slot for what runs, the others for what
    comes next; what fits beside it stays. Blobs so large that without them a smaller window would
    do stay before others. Where nothing can come ahead, there is one slot.
    """
    everything = frozenset().union(*steps)
    if _sum(everything, sizes) <= budget:
        return WeightSchedule(sizes, everything, 0, 0)
    wanted = budget // 4 if want.most is None else min(want.most, budget // 4)
    slots, window, large = 1, min(budget, max(least(steps, sizes), wanted)), frozenset[str]()
    for bound in sorted({sizes[b] for b in everything}, reverse=True):
        above = frozenset(b for b in everything if sizes[b] > bound)
        step, left = least([s - above for s in steps], sizes), budget - _sum(above, sizes)
        several = want.slots if 2 * want.slots * step <= left else 2
        needed = max(wanted, several * step)
        if needed <= left and (slots == 1 or needed < window):
            slots, window, large = several, needed, above
    limit = window // slots // want.multiple * want.multiple
    left = budget - slots * limit - _sum(large, sizes)
    return WeightSchedule(
        sizes, large | _kept([s - large for s in steps], sizes, left), limit, slots
    )


def _kept(steps: Uses, sizes: Mapping[str, int], left: int) -> frozenset[str]:
    """Blobs that stay: what several steps read, which would come several times; then others, spread
    evenly over the run, so that what passes can come all the time; then what still fits.
    """
    readers = Counter(b for s in steps for b in sorted(s))
    out = _fitting([b for b, n in readers.items() if n > 1], sizes, left)
    left -= _sum(out, sizes)
    rest = [b for b in readers if b not in out]
    total, due, spread = _sum(rest, sizes), 0, set[str]()
    for b in rest:
        due += sizes[b] * left
        if sizes[b] * total <= due:
            spread.add(b)
            due -= sizes[b] * total
    left -= _sum(spread, sizes)
    return frozenset(out | spread | _fitting([b for b in rest if b not in spread], sizes, left))


def _fitting(blobs: Iterable[str], sizes: Mapping[str, int], left: int) -> set[str]:
    """As they come, as far as there is room."""
    out = set()
    for b in blobs:
        if sizes[b] <= left:
            out.add(b)
            left -= sizes[b]
    return out


def _sum(blobs: Iterable[str], sizes: Mapping[str, int]) -> int:
    """Bytes."""
    return sum(sizes[b] for b in blobs)
