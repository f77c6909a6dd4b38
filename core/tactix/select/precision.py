"""Precision: what a build and its wishes for single layers allow, and which nodes stay as they are,
and why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

from tactix.base.errors import ConfigError, punctuated
from tactix.base.logger import Logger
from tactix.contracts.graph import Node
from tactix.contracts.rule import Rule
from tactix.fuse.trace import Trace
from tactix.select.choose import NEAR_TIE, Choice
from tactix.select.enumerate import Bids, Candidate, reasons

LOWER = frozenset({"fp16", "bf16", "tf32"})
"""Kinds of numerics that lose precision."""
PERMITTED = frozenset({"int8_activations"})
"""Kinds of numerics that round what a layer permits to be rounded."""
ROUNDS = LOWER | PERMITTED
"""Kinds of numerics that a layer of which a precision is wanted is not computed with."""
NOT_FASTER = "it is not faster"
"""What the trace says of a node that stays as it is, as do the next."""
LOCKED = "the lock says so"
Stays = Callable[[str], str]
"""Why the node of that name keeps its precision; empty if it need not."""


@dataclass(frozen=True)
class Keeps:
    """Which nodes keep their precision: where ``rules`` could lower it, and where ``stages``
    could.
    """

    rules: Stays
    stages: Stays

    @classmethod
    def both(cls, stays: Stays) -> Keeps:
        return cls(stays, stays)


REASSOCIATES = "reassociates"
"""The kind of rules whose results are rounded otherwise, as they compute in another order."""
WITHHELD = "it changes how results are rounded, which exact numerics do without"

SHOWN = 3
"""Reasons that are told of one node, or of a whole network."""


class Precisions:
    """One build's: ``allowed`` kinds of numerics; ``wanted``: precisions by patterns of node names,
    the last wins. ``preferred``: patterns that nothing need fulfil.

    ``kinds``: those that may be of use anywhere.
    """

    def __init__(
        self,
        allowed: frozenset[str],
        wanted: Mapping[str, str],
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self.allowed, self.wanted, self.kinds = allowed, wanted, allowed | {*wanted.values()}
        self._preferred = preferred
        self.obeyed: set[str] = set()
        """Nodes that were lowered since that is wanted of them, by names: these cannot stay."""
        self._met: set[str] = set()

    def of(self, node: Node, done: str = "fp32") -> str:
        """What is wanted of the node, by its name or one of the model's; empty if nothing.
        ``done``: it is so now.
        """
        pattern = self._pattern(node)
        if pattern is None:
            return ""
        if self.wanted[pattern] == done:
            self._met.add(pattern)
        return self.wanted[pattern]

    def _pattern(self, node: Node) -> str | None:
        """The one that counts for a node."""
        names = (node.name, *node.origin)
        fit = [p for p in self.wanted if any(fnmatchcase(n, p) for n in names)]
        return fit[-1] if fit else None

    def gated(self, rule: Rule, stays: Stays = lambda name: "") -> Rule:
        """The rule; one that lowers precision only where that is wanted, or allowed and the node
        not one that stays. One that is not allowed to reassociate only tells where it would.
        """

        def withheld(**bound: Any) -> bool | str:
            verdict = rule.verdict(bound)
            return WITHHELD if verdict is True else verdict

        def when(**bound: Any) -> bool | str:
            root, want = bound["root"], self.of(bound["root"])
            if want != rule.numerics and (want or rule.numerics not in self.allowed):
                return False
            if not want and (why := stays(root.name)):
                return why
            verdict = rule.verdict(bound)
            if verdict is True:
                self.of(root, rule.numerics)
                fixed = want and self._pattern(root) not in self._preferred
                self.obeyed |= {root.name} if fixed else set()
            return verdict

        if rule.numerics == REASSOCIATES and REASSOCIATES not in self.allowed:
            return replace(rule, when=withheld, fits=None)
        return replace(rule, when=when, fits=None) if rule.numerics in LOWER else rule

    def check(self, logger: Logger) -> None:
        """Warns of what is preferred and nothing fulfilled. Raises ConfigError for another such
        wish.
        """
        do = "Take the wish back, or give a name that the model has"
        for pattern in sorted(self.wanted.keys() - self._met):
            why = f"no layer of that name can be computed in {self.wanted[pattern]} on this device"
            if pattern in self._preferred:
                logger.warning(f"{_shown(pattern)}: {why}: it stays as it is. {do}")
                continue
            what = "unfulfilled layer precision"
            raise ConfigError(what, who=_shown(pattern), why=why, do=do)


def _shown(pattern: str) -> str:
    """A pattern, as a name where it fits that alone: ``[*]`` stands for the character itself."""
    return re.sub(r"\[([*?\[])\]", r"\1", pattern)


NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Lost:
    """A node without a kernel, by the names of what was lowered to its anchor and to what is fused
    around that.
    """

    anchor: frozenset[str]
    around: frozenset[str]
    why: str


def descent(trace: Trace, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Of which nodes of these names those come that rules made, or that kept their names."""
    found = {name: frozenset({name}) for name in names}
    for f in trace.firings:
        of = NOTHING.union(*(found.get(r, NOTHING) for r in f.removed))
        found |= {a: of | ({a} & frozenset(names)) for a in f.added}
    return found


class Lowering:
    """What lower precision did to one network: ``trace`` of its rewriting, ``rules``: keys of those
    that lower, or of stages.
    """

    def __init__(self, trace: Trace, rules: Collection[str]) -> None:
        self._trace, self._rules = trace, frozenset(rules)
        self._sources: dict[str, frozenset[str]] = {}
        for f in trace.firings:
            of = (
                [frozenset((f.root,))]
                if f.rule in self._rules
                else [self._sources.get(r, NOTHING) for r in f.removed]
            )
            self._sources.update(dict.fromkeys(f.added, NOTHING.union(*of)))

    @property
    def lowered(self) -> frozenset[str]:
        """Nodes that were lowered, by their names before."""
        return frozenset(f.root for f in self._trace.firings if f.rule in self._rules)

    @property
    def wide(self) -> dict[str, str]:
        """Nodes that a rule might have lowered, and why they stayed as they were."""
        misses = (m for m in self._trace.near_misses if m.rule in self._rules)
        return {m.node: m.reason for m in misses if m.node not in self.lowered}

    def sources(self, names: Iterable[str]) -> frozenset[str]:
        """Names before lowering of the nodes that became these."""
        return NOTHING.union(*(self._sources.get(name, NOTHING) for name in names))

    def lost(self, node: Node, why: str, fixed: Collection[str]) -> Lost | None:
        """A node that has no kernel; None if nothing of it was lowered. ``fixed``: names that
        cannot stay.
        """
        anchor = self.sources([node.anchor.name] if node.anchor else []) - frozenset(fixed)
        every = self.sources(b.name for b in node.body.nodes) - frozenset(fixed)
        return Lost(anchor, every - anchor, why) if every else None


def without_kernel(bids: Bids) -> str:
    """Why only the reference is left to run a node; empty if it is not."""
    alive = [c for c in bids.candidates if c.status != "rejected"]
    if not all(c.tactic.fallback for c in alive):
        return ""
    return no_kernel(_few(reasons(bids)) or "none implements this layer")


def no_kernel(why: str) -> str:
    """The reason of a node that was lowered and cannot be run so."""
    return f"no kernel computes it so: {why}"


def told(wide: Mapping[str, str]) -> str:
    """The most frequent reasons of nodes, and of how many."""
    ranked = Counter(wide.values()).most_common()
    return _few([f"{why} ({n} layer{'s'[: n > 1]})" for why, n in ranked])


def _few(texts: list[str]) -> str:
    more = [f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return punctuated(texts[:SHOWN] + more, "; ")


Timed = tuple[Node, Candidate]
"""A node of an attempt, and what was chosen for it."""


@dataclass(frozen=True)
class Pair:
    """What is lowered, with the roundings that only then are there, and what stands there if it is
    not.
    """

    lowered: tuple[Timed, ...]
    wide: tuple[Timed, ...]

    def joined(self, other: Pair) -> Pair:
        """Of both, each node once."""
        return Pair(
            tuple(dict([*self.lowered, *other.lowered]).items()),
            tuple(dict([*self.wide, *other.wide]).items()),
        )


@dataclass(frozen=True)
class Times:
    """Seconds of both sides of a pair. ``source``: ``measured`` or ``cached`` in turns; ``apart``:
    each by itself.
    """

    lowered: float
    wide: float
    source: str

    @classmethod
    def apart(cls, pair: Pair) -> Times:
        """As the candidates were timed or estimated."""
        return cls(
            sum(c.seconds for _, c in pair.lowered), sum(c.seconds for _, c in pair.wide), "apart"
        )


def pairs(lowered: Choice, wide: Choice, lowering: Lowering, trace: Trace) -> dict[str, Pair]:
    """Anchors that were lowered, by their names before, beside what they are if they stay. Those
    that are one node on one of both sides have one pair. ``trace``: of the wide network.
    """
    plain = _standing(wide, descent(trace, lowering.lowered))
    there = {b.name for n in wide.candidates for b in n.body.nodes}

    def made(n: Node) -> tuple[Timed, ...]:
        before = dict.fromkeys(v.producer for v in n.given if v.producer in lowered.candidates)
        added = [p for p in before if p and not any(b.name in there for b in p.body.nodes)]
        return tuple((x, lowered.candidates[x]) for x in (n, *added))

    anchors = (
        (name, n)
        for n in lowered.candidates
        if n.anchor
        for name in sorted(lowering.sources([n.anchor.name]))
    )
    found = {name: Pair(made(n), (plain[name],)) for name, n in anchors if name in plain}
    return _together(found)


def _together(found: Mapping[str, Pair]) -> dict[str, Pair]:
    """Pairs that share a node with an anchor as one."""
    names: dict[Node, list[str]] = {}
    for name, pair in found.items():
        for n in {pair.lowered[0][0], pair.wide[0][0]}:
            names.setdefault(n, []).append(name)
    out = dict(found)
    for shared in names.values():
        parts = {id(out[name]): out[name] for name in shared}
        if len(parts) > 1:
            whole = reduce(Pair.joined, parts.values())
            out |= {name: whole for name, pair in out.items() if id(pair) in parts}
    return out


def _standing(wide: Choice, descents: Mapping[str, frozenset[str]]) -> dict[str, Timed]:
    """Where nodes of those descents stand in a network: as its anchors, if as any."""
    found: dict[str, Timed] = {}
    every = [(n, c, b) for n, c in wide.candidates.items() for b in n.body.nodes]
    for n, c, b in sorted(every, key=lambda row: row[2] is row[0].anchor):
        found |= dict.fromkeys(descents.get(b.name, NOTHING), (n, c))
    return found


def slower(times: Mapping[str, Times]) -> frozenset[str]:
    """Names of anchors that gain nothing lowered."""
    return frozenset(name for name, t in times.items() if t.lowered > t.wide * (1 - NEAR_TIE))


def corrected(choice: Choice, found: Mapping[str, Pair], times: Mapping[str, Times]) -> float:
    """Predicted seconds of a choice with lowered nodes as long as they were beside those of the
    wide one.
    """
    seconds = choice.seconds
    for name, pair in {id(pair): (name, pair) for name, pair in found.items()}.values():
        known, t = Times.apart(pair), times[name]
        if t.source != "apart" and t.wide:
            seconds += known.wide * t.lowered / t.wide - known.lowered
    return seconds
