"""Which weights stay, and which pass through a window: from the bytes of each step and a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Steps [first, stop) that run as one, and the blobs that come before them and go after them."""

    first: int
    stop: int
    blobs: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """``ahead``: whether a group's blobs may come while the group before it runs."""

    groups: tuple[Group, ...]
    ahead: bool


def least(steps: Sequence[frozenset[str]], sizes: Mapping[str, int]) -> int:
    """The smallest budget: what the step with the most weights needs."""
    return max((sum(sizes[b] for b in s) for s in steps), default=0)


def plan(steps: Sequence[frozenset[str]], sizes: Mapping[str, int], budget: int) -> Schedule | None:
    """The groups under a budget; None where everything fits.

    A quarter of the budget, or twice the largest step, is a window through which weights pass, half of it for what runs
    and half for what comes next; what fits beside it stays. With less than twice the largest step, nothing comes ahead.
    """
    everything = frozenset().union(*steps)
    if sum(sizes[b] for b in everything) <= budget:
        return None
    largest = least(steps, sizes)
    window = min(budget, max(2 * largest, budget // 4))
    ahead = window >= 2 * largest
    kept = _kept(steps, sizes, budget - window)
    limit = window // 2 if ahead else window
    groups: list[Group] = []
    first, held = 0, frozenset[str]()
    for i, s in enumerate(steps):
        more = held | (s - kept)
        if sum(sizes[b] for b in more) > limit:
            groups.append(Group(first, i, tuple(sorted(held))))
            first, more = i, s - kept
        held = more
    return Schedule((*groups, Group(first, len(steps), tuple(sorted(held)))), ahead)


def _kept(steps: Sequence[frozenset[str]], sizes: Mapping[str, int], room: int) -> frozenset[str]:
    """Blobs that stay: as they come, as far as there is room."""
    out: set[str] = set()
    for b in dict.fromkeys(b for s in steps for b in sorted(s)):
        if sizes[b] <= room:
            out.add(b)
            room -= sizes[b]
    return frozenset(out)
