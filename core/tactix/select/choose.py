"""Choose one candidate for every node so that the whole network is fastest, changes of format
included.

Coordinate descent from several starts: each node's fastest candidate, and for every format the
candidates that use it most. Two nodes in a row that may be views are changed together: the one's
output is the other's input, so that a change of one alone costs a change of format more. A change
of format is charged by the bytes that it moves, once per tensor and format; every launch by what it
costs on the device beside its own time. Of candidates that the noise of their times does not tell
apart the first in a fixed order is taken: tactix's own, then by key and by the tactic's own
ranking.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tactix.base.dims import Env, evaluate
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.device import Costs
from tactix.contracts.graph import Node, Value
from tactix.plugins.names import OWN
from tactix.select.enumerate import Candidate

NEAR_TIE = 0.03
"""Share of a time that two builds may see it differ by, however little its samples did."""


@dataclass
class Choice:
    """The chosen candidates, by node, and the predicted seconds. ``ties``: titles of those that
    others might choose.

    ``duels``: times of lowered nodes beside those of what they were, by names, that precision was
    decided by.
    """

    candidates: dict[Node, Candidate]
    seconds: float
    ties: dict[Node, set[str]] = field(default_factory=dict)
    duels: dict[str, Any] = field(default_factory=dict)


class Chooser:
    """One network's nodes with their options."""

    def __init__(
        self,
        nodes: Sequence[Node],
        options: Mapping[Node, Sequence[Candidate]],
        outputs: Sequence[Value],
        env: Env,
        costs: Costs = Costs(),  # noqa: B008
    ):
        self.nodes = nodes
        self.options = {
            n: sorted((c for c in options[n] if c.status != "rejected"), key=_standing)
            for n in nodes
        }
        self.outputs, self.launch = set(outputs), costs.launch
        read = (v for n in nodes for v in n.given if v.const is None)
        made = (v for n in nodes for v in n.outputs)
        self.move = {
            v: 2 * evaluate(v.spec.nbytes(), env) / costs.bandwidth + costs.reformat + costs.launch
            for v in dict.fromkeys((*read, *made))
        }
        views = {n for n, cs in self.options.items() if any(c.artifact.alias for c in cs)}
        self.in_a_row = [
            (before, n) for n in nodes if n in views and (before := n.given[0].producer) in views
        ]

    def run(self) -> Choice:
        found = [self._descend(start) for start in self._starts()]
        best = min(found, key=lambda f: round(f.seconds, 12))
        rivals = [f for f in found if f is not best and f.seconds <= best.seconds * (1 + NEAR_TIE)]
        taken = Taken(best.candidates, self.outputs)
        for n, c in best.candidates.items():
            near = {
                x.title for x in (*self._near_ties(n, taken), *(f.candidates[n] for f in rivals))
            }
            best.ties[n] = near - {c.title}
        return best

    def _starts(self) -> list[dict[Node, Candidate]]:
        formats = {
            f
            for cs in self.options.values()
            for c in cs
            for f in (*c.variant.inputs, *c.variant.outputs)
        }
        starts = [{n: min(cs, key=lambda c: c.order) for n, cs in self.options.items()}]
        for f in sorted(formats | {LINEAR}):
            starts += [
                {
                    n: min(cs, key=lambda c: (-self._count(n, c, f), *c.order))
                    for n, cs in self.options.items()
                }
            ]
        return starts

    @staticmethod
    def _count(n: Node, c: Candidate, f: Format) -> int:
        read = sum(c.variant.input_format(i) == f for i, v in enumerate(n.given) if v.const is None)
        return read + sum(c.variant.output_format(i) == f for i in range(len(n.outputs)))

    def _descend(self, chosen: dict[Node, Candidate]) -> Choice:
        taken = Taken(chosen, self.outputs)
        for _ in range(20):
            changed = False
            for n in self.nodes:
                if len(self.options[n]) > 1:
                    best = self._best(n, taken)
                    changed |= best is not taken.candidates[n]
                    taken.take(n, best)
            for two in self.in_a_row:
                changed |= self._take_both(two, taken)
            if not changed:
                break
        seconds = sum(map(self._cost, taken.candidates.values())) + sum(
            self._moves(v, taken) for v in self.move
        )
        return Choice(taken.candidates, seconds)

    def _best(self, n: Node, taken: Taken) -> Candidate:
        """The one to take, given the others: the first of those that noise does not tell apart
        from the fastest, noise being a few percent at most.
        """
        fastest, behind = self._behind(n, taken)
        noise = min(fastest.spread, NEAR_TIE) * fastest.seconds
        return next(c for c, late in zip(self.options[n], behind, strict=True) if late <= noise)

    def _take_both(self, two: tuple[Node, Node], taken: Taken) -> bool:
        """Take the fastest candidates of two nodes, given the others, if they are others."""
        now = [taken.candidates[n] for n in two]
        pairs = [now, *map(list, product(*(self.options[n] for n in two)))]
        costs = [self._local(dict(zip(two, pair, strict=True)), taken) for pair in pairs]
        best = pairs[costs.index(min(costs))]
        if min(costs) >= costs[0] - 1e-12:
            return False
        for n, c in zip(two, best, strict=True):
            taken.take(n, c)
        return True

    def _near_ties(self, n: Node, taken: Taken) -> list[Candidate]:
        """Those that another build might see in front: behind the fastest by no more than its own
        noise. How far the samples of a slow one lie apart says nothing of who is faster.
        """
        fastest, behind = self._behind(n, taken)
        noise = max(fastest.spread, NEAR_TIE) * fastest.seconds
        return [c for c, late in zip(self.options[n], behind, strict=True) if late <= noise]

    def _behind(self, n: Node, taken: Taken) -> tuple[Candidate, Sequence[float]]:
        """The fastest, given the others, and by how many seconds each option is behind it."""
        costs = [self._local({n: c}, taken) for c in self.options[n]]
        least = min(costs)
        return self.options[n][costs.index(least)], [s - least for s in costs]

    def _cost(self, c: Candidate) -> float:
        return c.seconds + self.launch * len(c.artifact.launches)

    def _local(self, tried: Mapping[Node, Candidate], taken: Taken) -> float:
        """Seconds of nodes with these candidates, and of all changes of format around them."""
        before = {n: taken.candidates[n] for n in tried}
        for n, c in tried.items():
            taken.take(n, c)
        around = {v for n in tried for v in (*n.given, *n.outputs) if v in self.move}
        total = sum(map(self._cost, tried.values())) + sum(
            self._moves(v, taken) for v in sorted(around, key=lambda v: v.name)
        )
        for n, c in before.items():
            taken.take(n, c)
        return total

    def _moves(self, v: Value, taken: Taken) -> float:
        return taken.changes(v) * self.move[v]


class Taken:
    """A candidate for every node, and how often each tensor is read in each format then.

    The counts are kept as candidates change: a tensor may have as many readers as there are nodes.
    """

    def __init__(self, candidates: Mapping[Node, Candidate], outputs: Collection[Value]) -> None:
        self.candidates = dict(candidates)
        self._wanted: dict[Value, dict[Format, int]] = {}
        for v in outputs:
            self._count(v, LINEAR, 1)
        for n, c in self.candidates.items():
            for i, v in enumerate(n.given):
                if v.const is None:
                    self._count(v, c.variant.input_format(i), 1)

    def take(self, n: Node, c: Candidate) -> None:
        """Another candidate for the node."""
        before = self.candidates[n]
        self.candidates[n] = c
        if c.variant.inputs == before.variant.inputs:
            return
        for i, v in enumerate(n.given):
            was, now = before.variant.input_format(i), c.variant.input_format(i)
            if v.const is None and was != now:
                self._count(v, was, -1)
                self._count(v, now, 1)

    def changes(self, v: Value) -> int:
        """In how many formats the tensor is read in which it does not lie as it is made."""
        wanted = self._wanted.get(v, ())
        made = produced_format(v, self.candidates)
        return sum(not f.lies_as(made, v.spec.shape) for f in wanted)

    def _count(self, v: Value, f: Format, by: int) -> None:
        wanted = self._wanted.setdefault(v, {})
        wanted[f] = wanted.get(f, 0) + by
        if not wanted[f]:
            del wanted[f]


def _standing(c: Candidate) -> tuple[bool, str]:
    return not c.tactic.key.startswith(f"{OWN}."), c.tactic.key


def produced_format(v: Value, chosen: Mapping[Node, Candidate]) -> Format:
    """The format in which a tensor is made; the network's inputs are linear."""
    return LINEAR if v.producer is None else chosen[v.producer].variant.output_format(v.index)
