"""Which launches of a run must follow which others: so many branches as the memory that they touch
allows.

A launch follows the last one that wrote what it reads, and all that read or wrote what it writes.
What counts is where buffers lie at the bound shape: an arena is used again and again, and a caller
may pass one address twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.contracts.artifact import Launch
from tactix.contracts.launcher import Step

RESIDENT = -1
"""What launches of a step with ``params["cooperative"]`` write: they take turns, as their blocks
wait for each other and need the device until all of them have begun."""
LANES = 4
"""Branches side by side where nobody says how many: 8 towers of small products took 70 us in one
line, 38 in two and 30 in four; where products fill the device all took the same (H200;
docs/benchmarks.md, "Other precisions, calls, branches").
"""

Follows = list[list[int]]
"""For each launch the earlier ones that it must directly follow, by their places."""


@dataclass(frozen=True)
class Access:
    """Buffers that a launch reads, and those that it may write: its step's outputs and workspace
    may be read, too.
    """

    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()


def access(step: Step, launch: Launch) -> Access:
    """What a launch can reach by its arguments. Constants are left out: nobody writes them."""
    reads = {step.inputs[a.index].buffer for a in launch.args if a.kind == "input"}
    writes = {step.outputs[a.index].buffer for a in launch.args if a.kind == "output"}
    if step.workspace >= 0 and any(a.kind == "workspace" for a in launch.args):
        writes.add(step.workspace)
    if step.artifact.params.get("cooperative"):
        writes.add(RESIDENT)
    return Access(frozenset(reads), frozenset(writes))


def extents(step: Step) -> list[tuple[int, Dim]]:
    """The step's buffers that something writes, and the bytes that it touches of each."""
    own = [
        (o.buffer, o.spec.nbytes(o.format)) for o in (*step.inputs, *step.outputs) if o.buffer >= 0
    ]
    return [*own, (step.workspace, step.artifact.workspace)] if step.workspace >= 0 else own


Span = tuple[int, int]
"""The first byte of some memory, and the one behind its last."""


class Regions:
    """Where buffers lie, and which of them share memory. ``sizes``: bytes by buffer."""

    def __init__(self, addresses: Sequence[int], sizes: Mapping[int, int]) -> None:
        self._spans = {b: (addresses[b], addresses[b] + n) for b, n in sizes.items()}
        self._loose: set[int] = set()
        self._rest: list[Span] = []

    def spans(self) -> dict[int, Span]:
        """By buffer."""
        return self._spans | {RESIDENT: (-1, 0)}

    def move(self, buffer: int, address: int) -> bool:
        """Change an address; whether the buffer then shares memory with others than before."""
        if buffer not in self._spans:
            return False
        if buffer not in self._loose:  # few ever move; the rest is looked at as a whole
            self._loose.add(buffer)
            self._rest = _joined(s for b, s in self._spans.items() if b not in self._loose)
        old, new = (
            self._spans[buffer],
            (address, address + self._spans[buffer][1] - self._spans[buffer][0]),
        )
        self._spans[buffer] = new
        near = [*self._rest, *(self._spans[b] for b in self._loose if b != buffer)]
        if not any(_meet(old, s) or _meet(new, s) for s in near):
            return False
        return any(_meet(old, s) != _meet(new, s) for b, s in self._spans.items() if b != buffer)


def _meet(a: Span, b: Span) -> bool:
    """Whether they share a byte."""
    return max(a[0], b[0]) < min(a[1], b[1])


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same bytes in as few pieces as there can be."""
    out: list[Span] = []
    for start, stop in sorted(s for s in spans if s[0] < s[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


class _History:
    """Of memory, piece by piece: the launch that wrote it last, and those that read it since.

    Pieces lie between ``_borders``, addresses in bytes in ascending order, the first below all of
    them. Whatever overlaps counts, whichever buffer it is called by. A writer of -1 is none.
    """

    def __init__(self) -> None:
        self._borders, self._writers = [-(1 << 62)], [-1]
        self._readers: list[tuple[int, ...]] = [()]

    def pieces(self, start: int, stop: int) -> slice:
        """Those between two addresses, which become borders."""
        return slice(self._cut(start), self._cut(stop))

    def _cut(self, at: int) -> int:
        i = bisect_left(self._borders, at)
        if i == len(self._borders) or self._borders[i] != at:
            self._borders.insert(i, at)
            self._writers.insert(i, self._writers[i - 1])
            self._readers.insert(i, self._readers[i - 1])
        return i

    def before_read(self, span: Span) -> set[int]:
        return set(self._writers[self.pieces(*span)])

    def before_write(self, span: Span) -> set[int]:
        return self.before_read(span).union(*self._readers[self.pieces(*span)])

    def read(self, span: Span, by: int) -> None:
        own = self.pieces(*span)
        self._readers[own] = [(*r, by) for r in self._readers[own]]

    def write(self, span: Span, by: int) -> None:
        own = self.pieces(*span)
        if own.start < own.stop:
            self._borders[own], self._writers[own], self._readers[own] = [span[0]], [by], [()]


def follows(accesses: Sequence[Access], spans: Mapping[int, Span]) -> Follows:
    """The fewest edges that keep all results as they are when launches run one after another.
    ``spans``: by buffer.
    """
    history = _History()
    behind: list[int] = []
    out: Follows = []
    for i, a in enumerate(accesses):
        wanted = {-1}.union(
            *(history.before_read(spans[b]) for b in a.reads),
            *(history.before_write(spans[b]) for b in a.writes),
        )
        out.append(_direct(wanted - {-1}, behind))
        for b in a.reads:
            history.read(spans[b], i)
        for b in a.writes:
            history.write(spans[b], i)
    return out


def in_lanes(wanted: Follows, most: int, wide: Sequence[bool]) -> Follows:
    """With so many edges more that at most ``most`` launches are ever under way at a time.

    Launches go to lanes, each of which is one after the other. ``wide``: launches that fill the
    device by themselves; they share a lane.

    ``behind`` has, for every launch, all that it follows as the bits of an integer, so that an edge
    that others imply is found by one "and". A launch before another in the run stays before it: a
    lane adds edges to earlier launches only, so there are no rings.
    """
    tails: list[int] = []
    behind: list[int] = []
    out: Follows = []
    for i, before in enumerate(wanted):
        lane = 0 if wide[i] and tails else _lane(tails, before, behind, most)
        after = {*before, tails[lane]} if lane < len(tails) else set(before)
        tails[lane : lane + 1] = [i]
        out.append(_direct(after, behind))
    return out


def _lane(tails: Sequence[int], before: Sequence[int], behind: Sequence[int], most: int) -> int:
    """One that ends in what the launch follows anyway, else a new one, else the one that ended
    first.
    """
    mask = _union(before, behind)
    free = [lane for lane, tail in enumerate(tails) if mask >> tail & 1]
    if free:
        return max(free, key=tails.__getitem__)
    return len(tails) if len(tails) < most else min(range(most), key=tails.__getitem__)


def _union(before: Iterable[int], behind: Sequence[int]) -> int:
    """All that these follow, and they themselves, as bits."""
    mask = 0
    for k in before:
        mask |= behind[k] | 1 << k
    return mask


def _direct(wanted: Iterable[int], behind: list[int]) -> list[int]:
    """Without those that others of them follow anyway; ``behind`` gets the bits of the launch."""
    out: list[int] = []
    covered = 0
    for k in sorted(wanted, reverse=True):
        if not covered >> k & 1:
            out.append(k)
            covered |= behind[k] | 1 << k
    behind.append(covered)
    return out[::-1]
