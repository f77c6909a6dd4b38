"""Choose one candidate for every node so that the whole network is fastest, changes of format included.

Coordinate descent from several starts: each node's fastest candidate, and for every format the candidates that use it
most. A change of format is charged by the bytes that it moves, once per tensor and format; every launch by what it
costs on the device beside its own time. Of candidates that the noise of their times does not tell apart the first in a
fixed order is taken: tactix's own, then by key and by the tactic's own ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tactix.contracts.device import Costs
from tactix.contracts.graph import Node, Value
from tactix.plugins.identity import OWN
from tactix.select.enumerate import Candidate
from tactix.words.dims import Env, evaluate
from tactix.words.tensor import LINEAR, Format

NEAR_TIE = 0.03


@dataclass
class Choice:
    """The chosen candidates, by node, and the predicted seconds. ``ties``: titles of those that others might choose.

    ``duels``: times of lowered nodes beside those of what they were, by names, that precision was decided by.
    """

    candidates: dict[Node, Candidate]
    seconds: float
    ties: dict[Node, set[str]] = field(default_factory=dict)
    duels: dict[str, Any] = field(default_factory=dict)


class Chooser:
    """One network's nodes with their options."""

    def __init__(
        self, nodes: Sequence[Node], options: Mapping[Node, Sequence[Candidate]], outputs: Sequence[Value], env: Env,
        costs: Costs = Costs(),  # noqa: B008
    ):  # fmt: skip
        self.nodes = nodes
        self.options = {n: sorted((c for c in options[n] if c.status != "rejected"), key=_standing) for n in nodes}
        self.outputs, self.launch = set(outputs), costs.launch
        self.reads: dict[Value, list[tuple[Node, int]]] = {}
        for n in nodes:
            for i, v in enumerate(n.given):
                if v.const is None:
                    self.reads.setdefault(v, []).append((n, i))
        made = [v for n in nodes for v in n.outputs]
        self.move = {
            v: 2 * evaluate(v.spec.nbytes(), env) / costs.bandwidth + costs.reformat + costs.launch
            for v in dict.fromkeys((*self.reads, *made))
        }

    def run(self) -> Choice:
        found = [self._descend(start) for start in self._starts()]
        best = min(found, key=lambda f: round(f.seconds, 12))
        rivals = [f for f in found if f is not best and f.seconds <= best.seconds * (1 + NEAR_TIE)]
        for n, c in best.candidates.items():
            near = {x.title for x in (*self._near(n, best.candidates, max), *(f.candidates[n] for f in rivals))}
            best.ties[n] = near - {c.title}
        return best

    def _starts(self) -> list[dict[Node, Candidate]]:
        formats = {f for cs in self.options.values() for c in cs for f in (*c.variant.inputs, *c.variant.outputs)}
        starts = [{n: min(cs, key=lambda c: c.order) for n, cs in self.options.items()}]
        for f in sorted(formats | {LINEAR}):
            starts += [{n: min(cs, key=lambda c: (-self._count(n, c, f), *c.order)) for n, cs in self.options.items()}]
        return starts

    @staticmethod
    def _count(n: Node, c: Candidate, f: Format) -> int:
        read = sum(c.variant.input_format(i) == f for i, v in enumerate(n.given) if v.const is None)
        return read + sum(c.variant.output_format(i) == f for i in range(len(n.outputs)))

    def _descend(self, chosen: dict[Node, Candidate]) -> Choice:
        chosen = dict(chosen)
        for _ in range(20):
            changed = False
            for n in self.nodes:
                if len(self.options[n]) > 1:
                    best = self._near(n, chosen, min)[0]
                    changed |= best is not chosen[n]
                    chosen[n] = best
            if not changed:
                break
        seconds = sum(map(self._cost, chosen.values())) + sum(self._moves(v, chosen) for v in self.move)
        return Choice(chosen, seconds)

    def _near(self, n: Node, chosen: dict[Node, Candidate], margin: Callable[[float, float], float]) -> list[Candidate]:
        """The best candidate, given the others, and those that noise may hide it behind. ``margin``: least or most."""
        costs = [(self._local(n, c, chosen), c) for c in self.options[n]]
        least, best = min(costs, key=lambda x: x[0])
        noise = margin(best.spread, NEAR_TIE) * best.seconds
        return [c for s, c in costs if c is best or s - least <= max(noise, margin(c.spread, NEAR_TIE) * c.seconds)]

    def _cost(self, c: Candidate) -> float:
        return c.seconds + self.launch * len(c.artifact.launches)

    def _local(self, n: Node, c: Candidate, chosen: dict[Node, Candidate]) -> float:
        """Seconds of the node and of all changes of format around it."""
        before = chosen[n]
        chosen[n] = c
        around = {v for v in (*n.given, *n.outputs) if v in self.move}
        total = self._cost(c) + sum(self._moves(v, chosen) for v in sorted(around, key=lambda v: v.name))
        chosen[n] = before
        return total

    def _moves(self, v: Value, chosen: Mapping[Node, Candidate]) -> float:
        have = produced_format(v, chosen)
        wanted = {chosen[n].variant.input_format(i) for n, i in self.reads.get(v, ())}
        if v in self.outputs:
            wanted.add(LINEAR)
        return len(wanted - {have}) * self.move[v]


def _standing(c: Candidate) -> tuple[bool, str]:
    return not c.tactic.key.startswith(f"{OWN}."), c.tactic.key


def produced_format(v: Value, chosen: Mapping[Node, Candidate]) -> Format:
    """The format in which a tensor is made; the network's inputs are linear."""
    return LINEAR if v.producer is None else chosen[v.producer].variant.output_format(v.index)
