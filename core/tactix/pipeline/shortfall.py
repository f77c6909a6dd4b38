"""What of a network falls short of the fast path: in numbers for the ledger, and in one line for
people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tactix.contracts.graph import Node
from tactix.fuse.trace import Trace
from tactix.plan.schema import Plan
from tactix.select.choose import Choice
from tactix.select.enumerate import Bids

KEY = "fell_short"
"""Of the ledger."""


@dataclass(frozen=True)
class Shortfall:
    """Counts of one network, or of several. ``layers``: all; ``references``: those that run on a
    reference, by its tactic's source and their own name; ``wide``: that keep their precision where
    a lower one was asked for; ``split``: groups that were fused in vain; ``untried``: bids that
    lost since nobody had tried them; ``estimated``: layers that were to be measured, and were
    chosen by estimate.
    """

    layers: int = 0
    references: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wide: int = 0
    split: int = 0
    untried: int = 0
    estimated: int = 0

    @classmethod
    def of(
        cls, bids: Mapping[Node, Bids], choice: Choice, trace: Trace, wide: int, measured: bool
    ) -> Shortfall:
        """Of one network without the bodies in it. ``measured``: whether candidates were to be."""
        found: dict[str, Counter[str]] = {}
        for n, c in choice.candidates.items():
            if c.is_reference:
                found.setdefault(c.tactic.source, Counter())[_name(n)] += 1
        parts = {name for s in trace.splits for name in s.parts}
        split = sum(s.node not in parts and not s.outrun for s in trace.splits)
        guesses = (
            n
            for n, c in choice.candidates.items()
            if c.status == "estimated" and not c.is_reference
        )
        estimated = sum(bids[n].races for n in guesses) if measured else 0
        untried = sum(
            c.untried
            for n in choice.candidates
            for c in bids[n].candidates
            if c.status == "rejected"
        )
        return cls(
            len(choice.candidates),
            {k: dict(v) for k, v in found.items()},
            wide,
            split,
            untried,
            estimated,
        )

    @classmethod
    def read(cls, ledger: Mapping[str, Any]) -> Shortfall:
        """What a plan's ledger says; nothing if that of an older plan says nothing."""
        return cls(**ledger.get(KEY, {}))

    @classmethod
    def total(cls, parts: Iterable[Shortfall]) -> Shortfall:
        """Of several networks together."""
        every = list(parts)
        references: dict[str, Counter[str]] = {}
        for source, names in (row for p in every for row in p.references.items()):
            references.setdefault(source, Counter()).update(names)
        counts = {
            k: sum(getattr(p, k) for p in every)
            for k in ("layers", "wide", "split", "untried", "estimated")
        }
        return cls(references={k: dict(v) for k, v in references.items()}, **counts)

    def to_json(self) -> dict[str, Any]:
        """For the ledger: those fields alone that count something."""
        return {k: v for k, v in vars(self).items() if v}

    @property
    def text(self) -> str:
        """One line; empty if nothing falls short."""
        told = [
            f"{sum(names.values())} of {_many(self.layers, 'layer')} run on {source}: "
            f"{_ranked(names)}"
            for source, names in sorted(self.references.items())
        ]
        told += (
            [f"{_many(self.wide, 'layer')} kept the precision of the model"] if self.wide else []
        )
        told += [f"{_many(self.split, 'group')} fused in vain"] if self.split else []
        told += [f"{_many(self.untried, 'bid')} not tried"] if self.untried else []
        told += [f"{_many(self.estimated, 'layer')} chosen by estimate"] if self.estimated else []
        return "; ".join(told)


def of_plan(plan: Plan) -> Shortfall:
    """Of a plan that was just made, with all bodies in it."""
    return Shortfall.total(Shortfall.read(p.ledger) for p in plan.nested())


def _name(n: Node) -> str:
    """The layer's, without namespace and version; a group's without an anchor is what tactics call
    it.
    """
    layer = n.anchor.layer.name if n.anchor else n.layer.name
    return "pointwise" if n.is_fused and not n.anchor else layer


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s'[: n != 1]}"


def _ranked(names: Mapping[str, int]) -> str:
    ranked = sorted(names.items(), key=lambda row: (-row[1], row[0]))
    return ", ".join(f"{name} ({n})" for name, n in ranked)
