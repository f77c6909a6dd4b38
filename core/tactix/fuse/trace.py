"""What the rewriting did: which rule fired where, and which nearly fired and why it did not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Firing:
    """One rewrite: the rule, the node at which its pattern matched, those that left, those that
    came, seconds taken.
    """

    rule: str
    root: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class NearMiss:
    """A pattern that matched at a node, and what stood against it."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True)
class SplitGroup:
    """A fused node that was taken apart again: its name, those of its parts, and why. ``outrun``:
    its parts are faster, so that nothing is lost.
    """

    node: str
    parts: tuple[str, ...]
    reason: str
    outrun: bool = False


@dataclass(frozen=True)
class Outrun:
    """A node that another form took the place of: its name, those of the form's nodes, and the
    rules that gave the form.
    """

    node: str
    parts: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass
class Trace:
    """All firings in order, each near miss once, what was fused in vain, in the order in which it
    was split, and what lost against its rivals.
    """

    firings: list[Firing] = field(default_factory=list)
    near_misses: dict[NearMiss, None] = field(default_factory=dict)
    splits: list[SplitGroup] = field(default_factory=list)
    outrun: list[Outrun] = field(default_factory=list)

    def miss(self, rule: str, node: str, reason: str) -> None:
        self.near_misses[NearMiss(rule, node, reason)] = None

    @property
    def counts(self) -> dict[str, int]:
        """How often each rule fired."""
        return dict(sorted(Counter(f.rule for f in self.firings).items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "fired": [
                {"rule": f.rule, "removed": list(f.removed), "added": list(f.added)}
                for f in self.firings
            ],
            "nearly": [
                {"rule": m.rule, "node": m.node, "reason": m.reason} for m in self.near_misses
            ],
            "split": [
                {"node": s.node, "parts": list(s.parts), "reason": s.reason} for s in self.splits
            ],
            "outrun": [
                {"node": o.node, "parts": list(o.parts), "rules": list(o.rules)}
                for o in self.outrun
            ],
        }
