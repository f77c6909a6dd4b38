"""A graph laid out in rows, from what is given to what comes out.

The steps of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of Hierarchical System
Structures", 1981): a row is the longest way from an input; rows are ordered by the means of their
neighbours' places; places are the nearest to these means that keep nodes apart, which is isotonic
regression and solved exactly by pooling adjacent violators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_BENDS = 60_000
"""Points where long edges pass rows; a graph with more of them gets straight edges."""
ORDERINGS = 8
PLACINGS = 4
LANE = 0.16
"""Width of a passing edge, where a node's is 1."""
STIFF = 8.0
"""How much more an edge wants to go straight through than a node wants to be in the middle."""


@dataclass(frozen=True)
class Layered:
    """``rows``: of each node. ``places``: the middle of each, where a node is 1 wide and the
    leftmost begins at 0. ``trunks``: for the nodes that are read further down, where their edge
    passes each row between.
    """

    rows: Sequence[int]
    places: Sequence[float]
    trunks: Mapping[int, Sequence[float]]


def layered(count: int, edges: Iterable[tuple[int, int]], in_order: Sequence[int]) -> Layered:
    """``in_order``: all nodes, none before the makers of what it reads."""
    pairs = tuple(edges)
    rows = _rows(count, pairs, in_order)
    graph = _Graph(rows, pairs, in_order)
    graph.order()
    graph.place()
    return graph.layered()


def _rows(count: int, edges: Sequence[tuple[int, int]], in_order: Sequence[int]) -> list[int]:
    """The longest way; what reads one node at most stands right above its first reader, as its
    edges are no more there.
    """
    made: dict[int, list[int]] = {}
    read: dict[int, list[int]] = {}
    for a, b in edges:
        made.setdefault(b, []).append(a)
        read.setdefault(a, []).append(b)
    rows = [0] * count
    for n in in_order:
        rows[n] = max((rows[m] + 1 for m in made.get(n, ())), default=0)
    for n in reversed(in_order):
        if len(made.get(n, ())) <= 1 and n in read:
            rows[n] = max(0, min(rows[r] for r in read[n]) - 1)
    return rows


class _Graph:
    """Nodes, and behind them the bends of long edges, in rows; edges lead to the next row."""

    def __init__(
        self, rows: Sequence[int], edges: Sequence[tuple[int, int]], in_order: Sequence[int]
    ) -> None:
        self._count = len(rows)
        self._row = list(rows)
        self._lines: list[list[int]] = [[] for _ in range(max(rows, default=0) + 1)]
        for n in in_order:
            self._lines[rows[n]].append(n)
        self._trunks = self._bends(edges)
        self._up: list[list[int]] = [[] for _ in self._row]
        self._down: list[list[int]] = [[] for _ in self._row]
        for a, b in self._links(edges):
            self._up[b].append(a)
            self._down[a].append(b)
        self._x = [0.0] * len(self._row)

    def _bends(self, edges: Sequence[tuple[int, int]]) -> dict[int, range]:
        """Bends of each node's edge down to its last reader, numbered behind the nodes."""
        last: dict[int, int] = {}
        for a, b in edges:
            last[a] = max(last.get(a, 0), self._row[b])
        spans = {a: end - self._row[a] - 1 for a, end in last.items()}
        spans = {a: n for a, n in spans.items() if n > 0}
        out: dict[int, range] = {}
        for a, n in spans.items() if sum(spans.values()) <= MOST_BENDS else ():
            out[a] = range(len(self._row), len(self._row) + n)
            for k, bend in enumerate(out[a]):
                self._row.append(self._row[a] + 1 + k)
                self._lines[self._row[bend]].append(bend)
        return out

    def _links(self, edges: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        for a, bends in self._trunks.items():
            chain = (a, *bends)
            yield from pairwise(chain)
        for a, b in edges:
            between = self._row[b] - self._row[a] - 1
            yield (self._trunks[a][between - 1] if between and a in self._trunks else a), b

    def order(self) -> None:
        for line in self._lines:
            self._number(line)
        for k in range(ORDERINGS):
            down = k % 2 == 0
            beside = self._up if down else self._down
            for line in self._lines if down else self._lines[::-1]:
                line.sort(key=self._middle(beside))
                self._number(line)

    def _number(self, line: Sequence[int]) -> None:
        """Places in the middle of the page, so that rows of other lengths lie below each other."""
        widths = [self._width(v) for v in line]
        at = -sum(widths) / 2
        for v, w in zip(line, widths, strict=True):
            self._x[v] = at + w / 2
            at += w

    def _middle(self, beside: Sequence[Sequence[int]]) -> Callable[[int], float]:
        def middle(v: int) -> float:
            near = beside[v]
            return sum(self._x[n] for n in near) / len(near) if near else self._x[v]

        return middle

    def place(self) -> None:
        for k in range(PLACINGS):
            down = k % 2 == 1  # so that what is read ends straight below what is given
            beside = self._up if down else self._down
            for line in self._lines if down else self._lines[::-1]:
                self._settle(line, beside)

    def _settle(self, line: Sequence[int], beside: Sequence[Sequence[int]]) -> None:
        """The places of a row nearest to the middles of its neighbours."""
        middle = self._middle(beside)
        shifts, at = [], 0.0
        for k, v in enumerate(line):
            at += (self._width(line[k - 1]) + self._width(v)) / 2 if k else 0.0
            shifts.append(at)
        wishes = [middle(v) - s for v, s in zip(line, shifts, strict=True)]
        found = _rising(wishes, [self._weight(v, beside) for v in line])
        for v, x, s in zip(line, found, shifts, strict=True):
            self._x[v] = x + s

    def _weight(self, v: int, beside: Sequence[Sequence[int]]) -> float:
        if not beside[v]:
            return 0.01  # it may stand anywhere
        goes_straight = v >= self._count and all(n >= self._count for n in beside[v])
        return STIFF if goes_straight else 1.0

    def _width(self, v: int) -> float:
        return LANE if v >= self._count else 1.0

    def layered(self) -> Layered:
        left = min((x - self._width(v) / 2 for v, x in enumerate(self._x)), default=0.0)
        x = [round(x - left, 2) for x in self._x]
        trunks = {a: [x[bend] for bend in bends] for a, bends in self._trunks.items()}
        return Layered(self._row[: self._count], x[: self._count], trunks)


def _rising(wishes: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The numbers nearest to the wishes, by weighted squares, of which none is below the one before
    it.
    """
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for wish, weight in zip(wishes, weights, strict=True):
        mean, mass, size = wish, weight, 1
        while means and means[-1] > mean:
            before = masses.pop()
            mean = (mean * mass + means.pop() * before) / (mass + before)
            mass += before
            size += sizes.pop()
        means.append(mean)
        masses.append(mass)
        sizes.append(size)
    return [m for m, n in zip(means, sizes, strict=True) for _ in range(n)]
