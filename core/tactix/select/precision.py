"""Precision: what a build and its wishes for single layers allow, and which nodes a lower one makes slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from tactix.contracts.graph import Node
from tactix.contracts.rule import Rule, call
from tactix.select.choose import NEAR_TIE, Choice
from tactix.words.errors import ConfigError

LOWER = frozenset({"fp16", "bf16", "tf32"})
"""Kinds of numerics that lose precision."""
NOT_FASTER = "it is not faster"
"""What the trace says of a node that stays as it is."""


class Precisions:
    """One build's: ``allowed`` kinds of numerics; ``wanted``: precisions by patterns of node names, the last wins.

    ``kinds``: those that may be of use anywhere.
    """

    def __init__(self, allowed: frozenset[str], wanted: Mapping[str, str]) -> None:
        self.allowed, self.wanted, self.kinds = allowed, wanted, allowed | {*wanted.values()}
        self._met: set[str] = set()

    def of(self, node: Node, done: str = "fp32") -> str:
        """What is wanted of the node, by its name or one of the model's; empty if nothing. ``done``: it is so now."""
        fit = [p for p in self.wanted if any(fnmatchcase(n, p) for n in (node.name, *node.origin))]
        if fit and self.wanted[fit[-1]] == done:
            self._met.add(fit[-1])
        return self.wanted[fit[-1]] if fit else ""

    def gated(self, rule: Rule, stays: Callable[[str], bool] = lambda name: False) -> Rule:
        """The rule; one that lowers precision only where that is wanted, or allowed and the node not one that stays."""

        def when(**bound: Any) -> bool | str:
            root, want = bound["root"], self.of(bound["root"])
            if want != rule.numerics and (want or rule.numerics not in self.allowed):
                return False
            if not want and stays(root.name):
                return NOT_FASTER
            verdict = rule.when is None or call(rule.when, bound)
            if verdict is True:
                self.of(root, rule.numerics)
            return verdict  # type: ignore[no-any-return]

        return replace(rule, when=when) if rule.numerics in LOWER else rule

    def check(self) -> None:
        """Raises ConfigError for a wish that nothing fulfilled."""
        for pattern in self.wanted.keys() - self._met:
            why = f"no layer of that name can be computed in {self.wanted[pattern]} on this device"
            raise ConfigError("unfulfilled layer precision", who=pattern, why=why, do="Names are those of the model")


def slower(lowered: Choice, wide: Choice) -> frozenset[str]:
    """Names of anchors that gain nothing lowered, counting the steps before them that only then are there."""
    times = {b.name: c.seconds * (1 - NEAR_TIE) for n, c in wide.candidates.items() for b in n.body.nodes}

    def seconds(n: Node) -> float:
        made = {v.producer for v in n.given} & lowered.candidates.keys()
        added = [lowered.candidates[p] for p in made if p and not any(b.name in times for b in p.body.nodes)]
        return sum(c.seconds for c in (lowered.candidates[n], *added))

    def own(name: str) -> str:
        return name if name in times else name.rpartition("/")[0]

    anchors = ((own(n.anchor.name), n) for n in lowered.candidates if n.anchor)
    return frozenset(name for name, n in anchors if seconds(n) > times.get(name, 0.0))
