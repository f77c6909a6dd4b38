"""Settling: every node of a fused network gets a candidate, whoever fails on the way.

Tactics bid and race. A group whose kernels all lost, or that none bid for, takes another form that
rules know and that has kernels, or is split, and its parts race; a chain is split, too, whose
halves are faster, and where rules know another form of a node that may be as fast, that races
beside it. What is left then is a fallback's: in the end the reference's. Only where that is not
allowed, or cannot do it either, the build fails.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tactix.base.dims import sym, symbol_name, symbols
from tactix.base.errors import ShapeError, punctuated
from tactix.config import BuilderFlag, Locked, MemoryPoolType
from tactix.contracts.graph import Node
from tactix.contracts.rule import RIVAL, Rule
from tactix.contracts.tactic import Tactic
from tactix.fuse.rivals import Rival, rival
from tactix.fuse.split import apart, can_split, split
from tactix.fuse.trace import Outrun, SplitGroup, Trace
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.delegate import delegation
from tactix.pipeline.placement import settled
from tactix.pipeline.state import BuildState
from tactix.select.choose import NEAR_TIE, Choice, Chooser
from tactix.select.contests import Sides
from tactix.select.enumerate import (
    Bids,
    Candidate,
    Terms,
    bid,
    estimate,
    fall_back,
    likeness,
    no_tactic,
    reasons,
)
from tactix.select.measure import Measurer
from tactix.select.precision import PERMITTED, ROUNDS

FASTER_APART = "its halves are faster"
HOPELESS = 2.0
"""How many times the estimate of a node that of another form may be, which is not tried else: it
costs as many compilations. Estimates of kernels of one source are that good.
"""
TINY = 1e-9
"""An end of measuring that has passed: 0 says that the device is not here."""


@dataclass
class Settler:
    """One network's race. ``bids``: of the nodes so far; ``rules``: by which nodes have other
    forms. ``_kept``: chains that raced their halves; ``_met``: nodes that met their rivals, or are
    rivals.
    """

    fused: NetworkDefinition
    trace: Trace
    state: BuildState
    bids: dict[Node, Bids] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    _kept: set[Node] = field(default_factory=set, init=False)
    _met: set[Node] = field(default_factory=set, init=False)

    @property
    def lost(self) -> list[Node]:
        """Nodes that nothing is left for."""
        return [n for n in self.fused.nodes if not self.bids[n].standing]

    def race(self) -> None:
        """Let all tactics bid and measure them, groups that lose all kernels in parts. Some nodes
        may be lost then.

        Raises LockError, ToolchainError, TimingCacheError.
        """
        if isinstance(locked := self.state.config.frozen, Locked):
            self._follow(locked)
            return
        self._measure(self._bid())
        while self._transform() or self._split() or self._split_slow() or self._outrun():
            self._measure(self._bid())

    def fall_back(self) -> None:
        """Ask fallbacks for what is lost, one after the other. Raises NoTacticError where none can
        do it.
        """
        while lost := self.lost:
            asked = {n: self._one_more(n) for n in lost}
            self._measure(asked)
            self.bids.update(asked)
        for n in self.fused.nodes:
            self._tell(n, self.bids[n])

    def _tell(self, n: Node, b: Bids) -> None:
        """Warn, once in a build, of a node that a fallback is left with since all others failed."""
        failed = [c for c in b.candidates if c.status == "rejected" and not c.tactic.fallback]
        if failed and all(c.tactic.fallback for c in b.standing):
            first = min(b.standing, key=lambda c: c.order).tactic
            told = f"{n.name} ({n.kind}) is left to {first.key}: {b.failures}"
            do = "Report the failures to whoever made these kernels"
            self.state.logger.warning(punctuated((told, do)))

    def choice(self) -> Choice:
        """What is fastest for the whole network."""
        return self._chosen({n: self._options(n) for n in self.fused.nodes})

    def _options(self, n: Node) -> Sequence[Candidate]:
        """A node's candidates; of those of a node of any size that rounds as its layer permits,
        these alone: they are timed at one size, where reading weights may take as long for all,
        and multiply several times as many rows in the same time.
        """
        found = self.bids[n].candidates
        rounding = [c for c in self.bids[n].standing if c.tactic.numerics in PERMITTED]
        sizes = (d for v in n.given for d in v.spec.shape)
        return rounding if rounding and any(symbols(d) for d in sizes) else found

    def _chosen(self, options: Mapping[Node, Sequence[Candidate]]) -> Choice:
        costs, env = self.state.device.costs, self.state.context.opt
        found = Chooser(self.fused.nodes, options, self.fused.outputs, env, costs).run()
        return settled(self.fused, found, options, env, costs)

    def drop_uncompilable(self, choice: Choice) -> bool:
        """Reject what was chosen by estimate, or by cached timings, and does not compile; whether
        there was any.
        """
        chosen = list({id(c): c for c in choice.candidates.values()}.values())
        self.state.bench.compile(self.state.toolchain, chosen, self.state.context.device)
        return any(c.status == "rejected" for c in chosen)

    # -- bids -------------------------------------------------------------------------------------

    @property
    def _terms(self) -> Terms:
        config = self.state.config
        return Terms(
            config.builder_optimization_level,
            config.memory_pool_limits.get(MemoryPoolType.WORKSPACE),
            self.state.toolchain.lacks,
            self.state.bench.strangers,
            BuilderFlag.NO_FALLBACK not in config.flags,
            BuilderFlag.DEBUG in config.flags,
            self.state.logger.warning,
        )

    def _bid(self) -> dict[Node, Bids]:
        """Bids of every node that has none."""
        nodes = [n for n in self.fused.nodes if n not in self.bids]
        new = self._bids_for(nodes, self._produced(self.fused.nodes))
        self.bids |= new
        return new

    def _bids_for(self, nodes: Sequence[Node], produced: Collection[Node]) -> dict[Node, Bids]:
        """Nodes with one signature share them."""
        monitor, terms = self.state.config.progress_monitor, self._terms
        monitor.phase("bid", len(nodes))
        start = time.monotonic()
        new: dict[Node, Bids] = {}
        shared: dict[Any, Bids] = {}
        able = functools.cache(self._able_of)
        for i, n in enumerate(nodes):
            exact = bool(self.state.precisions.of(n))
            tactics = able(exact, n in produced)
            key = n if n in produced else (exact, self._likeness(n, tactics))
            found = shared.get(key) or bid(n, tactics, self.state.context, terms)
            found.produced = n in produced
            if found.candidates and not any(c.tactic.fallback for c in found.candidates):
                shared[key] = found  # but not the reference's, which names its node
            new[n] = self._selected(n, found)
            monitor.step("bid", i + 1, n.name)
        monitor.finish("bid")
        self.state.pace.bid = max(self.state.pace.bid, time.monotonic() - start)
        return new

    def _likeness(self, n: Node, tactics: Sequence[Tactic]) -> Any:
        """Raises ShapeError for a node that cannot run at the sizes that are tuned for."""
        opt = self.state.context.opt
        try:
            return likeness(n, tactics, self.state.context)
        except ShapeError as e:
            open_sizes = {s for v in n.given for d in v.spec.shape for s in symbols(d)}
            sizes = ", ".join(f"{s}={opt[s]}" for s in sorted(open_sizes & opt.keys()))
            what = f"cannot run at the sizes to tune for ({sizes})"
            do = "Give shapes of the inputs that the model takes"
            raise ShapeError(what, who=f"layer {n.name!r}", why=e.what, do=do) from e

    def _selected(self, n: Node, found: Bids) -> Bids:
        """What the program's selector leaves of a node's bids."""
        selector = self.state.config.selector
        if selector is None or isinstance(self.state.config.frozen, Locked):
            return found
        own = [replace(c) for c in found.candidates]
        return replace(found, candidates=list(selector.select(n, own)) or own)

    def _able(self, n: Node, produced: bool) -> list[Tactic]:
        """Tactics that the node may have, as far as its shapes and its precision tell."""
        return self._able_of(bool(self.state.precisions.of(n)), produced)

    def _able_of(self, exact: bool, produced: bool) -> list[Tactic]:
        """Those of nodes whose precision is ``exact``, or whose shapes only running tells."""
        return [
            t
            for t in self.state.tactics
            if (t.produces or t.tells if produced else not t.tells)
            and not (exact and t.numerics in ROUNDS)
        ]

    def _produced(self, nodes: Sequence[Node]) -> set[Node]:
        """Nodes whose shapes only running tells, with bodies, or values that are no numbers."""
        known = {d for v in self.fused.inputs for d in v.spec.shape} | {*map(sym, self.fused.told)}
        out = set()
        for n in nodes:
            told = any(d not in known for v in n.outputs for d in v.spec.shape if symbol_name(d))
            known.update(d for v in n.outputs for d in v.spec.shape)
            if told or n.layer.bodies(n.attrs) or holds_objects(n):
                out.add(n)
        return out

    def _one_more(self, n: Node) -> Bids:
        """The bids of a node that has lost all, with a fallback's. Raises NoTacticError if there is
        none.

        What nobody has tried is better than no plan.
        """
        b = self.bids[n]
        more = fall_back(b, n, self._able(n, b.produced), self.state.context, self._terms)
        if len(more.candidates) > len(b.candidates):
            return more
        untried = [c for c in more.candidates if c.untried]
        if not untried:
            raise no_tactic(more, n, self.state.context.device)
        for c in untried:
            estimate(c)
        return more

    # -- measuring --------------------------------------------------------------------------------

    @property
    def measurer(self) -> Measurer:
        """What times candidates, until the budget is spent."""
        state, config = self.state, self.state.config
        return Measurer(
            state.bench,
            state.toolchain,
            state.cache,
            state.context.device,
            state.context.opt,
            state.context.threads,
            config.frozen is True,
            config.builder_optimization_level,
            max(state.measured_until, TINY) if state.here else 0.0,
            config.progress_monitor,
            self.state.logger.warning,
            BuilderFlag.DEBUG in config.flags,
            self._foreseen,
            state.compiling,
            delegation(state),
        )

    def _foreseen(self) -> list[Candidate]:
        """What would be chosen if nothing more were measured; nothing while a node has no bid."""
        measurer = self.measurer
        now = {id(b): measurer.by_now(b) for b in self.bids.values()}
        found = {n: now[id(self.bids[n])] for n in self.fused.nodes}
        if not all(b.standing for b in found.values()):
            return []
        return list(self._chosen({n: b.candidates for n, b in found.items()}).candidates.values())

    def _measure(self, bids: Mapping[Node, Bids]) -> None:
        unique: dict[tuple[str, ...], Bids] = {}
        for b in bids.values():
            same = unique.setdefault((b.signature, *(c.title for c in b.candidates)), b)
            same.count += same is not b
        self.measurer.run(list(unique.values()))
        for b in bids.values():
            same = unique[b.signature, *(c.title for c in b.candidates)]
            for a, c in zip(same.candidates, b.candidates, strict=True):
                c.seconds, c.spread, c.error, c.status, c.reason = (
                    a.seconds,
                    a.spread,
                    a.error,
                    a.status,
                    a.reason,
                )
                c.untried = a.untried

    # -- groups -----------------------------------------------------------------------------------

    def _split(self) -> bool:
        """Halve the groups that no kernel is left for, or was ever there; whether there was any."""
        lost = [n for n in self.fused.nodes if can_split(n) and self._has_lost(n)]
        self._take_apart(
            (n, self.bids[n].failures or punctuated(reasons(self.bids[n]), "; ")) for n in lost
        )
        return bool(lost)

    def _split_slow(self) -> bool:
        """Halve the chains that are slower than their halves, which race once, while there is time;
        whether there was any.
        """
        chains = [n for n in self.fused.nodes if n.body.is_chain and n not in self._kept]
        self._kept.update(chains)
        if self.state.is_spent:
            return False
        halves = {n: apart(n) for n in chains if not self.bids[n].produced}
        if not halves:
            return False
        beside = self._bids_for([h for pair in halves.values() for h in pair], ())
        self._measure(beside)
        slow = self._outrun_by({n: [beside[h] for h in pair] for n, pair in halves.items()})
        self._take_apart((n, FASTER_APART) for n in slow)
        return bool(slow)

    def _outrun_by(self, others: Mapping[Node, Sequence[Bids]]) -> list[Node]:
        """The nodes that are slower than what else there is for each."""
        sides = (self._sides(n, halves) for n, halves in others.items())
        self.measurer.delegate([s for s in sides if s is not None], linked=True)
        return [n for n, halves in others.items() if self._is_outrun(n, halves)]

    def _sides(self, n: Node, halves: Sequence[Bids]) -> Sides | None:
        """The fastest of a chain and of its halves, if they can race each other in one process."""
        every = [self.bids[n], *halves]
        if not all(b.standing for b in every):
            return None
        whole, *parts = ((b, min(b.standing, key=lambda c: c.order)) for b in every)
        own = all(self.state.bench.of(c) is self.state.bench for _, c in (whole, *parts))
        return ((whole,), tuple(parts)) if own else None

    def _is_outrun(self, n: Node, halves: Sequence[Bids]) -> bool:
        """Whether the halves are faster than the chain: one after the other, where that can be
        timed, as threads then fetch what others have made. Of several threads a near tie is the
        chain's, which moves less: how fast they fetch differs more from run to run than that.
        """
        every = [self.bids[n], *halves]
        if not all(b.standing for b in every):
            return not self.bids[n].standing
        sides = self._sides(n, halves)
        times = self.measurer.duel(*sides, linked=True) if sides is not None else None
        if times is not None:
            tie = NEAR_TIE if self.state.context.threads > 1 else 0.0
            return times.wide < times.lowered * (1 - tie)
        whole, *parts = ((b, min(b.standing, key=lambda c: c.order)) for b in every)
        guessed, seconds = _total(parts)
        if guessed and self.state.is_spent:  # its kernels would have to be compiled now
            return False
        return (guessed, seconds) < _total([whole])

    def _has_lost(self, n: Node) -> bool:
        """Whether all kernels of a group are rejected, or none bid while there are some that know a
        layer of it.
        """
        kernels = [c for c in self.bids[n].candidates if not c.is_reference]
        return (
            all(c.status == "rejected" for c in kernels) if kernels else self._is_known_in_parts(n)
        )

    def _is_known_in_parts(self, n: Node) -> bool:
        """Whether a tactic that is no fallback implements one of a group's layers."""
        kinds = {"pointwise" if b.layer.is_pointwise else b.layer.key for b in n.body.nodes}
        here = (
            t
            for t in self._able(n, self.bids[n].produced)
            if t.device == self.state.context.device.kind
        )
        return any(kinds.intersection(t.implements) for t in here if not t.fallback)

    def _take_apart(self, groups: Iterable[tuple[Node, str]]) -> None:
        for n, why in groups:
            halves = tuple(h.name for h in split(self.fused, n))
            self.trace.splits.append(SplitGroup(n.name, halves, why, why == FASTER_APART))
            self.bids.pop(n, None)
            self.state.logger.info(f"{n.name} is split into {' and '.join(halves)}: {why}")

    # -- rivals -----------------------------------------------------------------------------------

    def _transform(self) -> bool:
        """Put other forms in the place of the groups that no kernel is left for, while these are
        whole: parts would have no more than the form of the part that rules know; whether there was
        any.
        """
        lost = [n for n in self.fused.nodes if n not in self._met and self._has_lost(n)]
        forms = self._forms(n for n in lost if not self.bids[n].produced)
        if not forms:
            return False
        beside = self._bids_for([part for form in forms for part in form.nodes], ())
        able = [form for form in forms if _runs(form, beside)]
        for form in able:
            self._take(form, "it had no kernel")
        return bool(able)

    def _outrun(self) -> bool:
        """Put other forms in the place of the nodes that are slower than these, of which each races
        once, of nodes that share bids one for all, while there is time; whether there was any.
        """
        new = [n for n in self.fused.nodes if n not in self._met]
        self._met.update(new)
        if self.state.is_spent:
            return False
        alike: dict[int, list[Node]] = {}
        for n in new:
            alike.setdefault(id(self.bids[n]), []).append(n)
        forms = self._forms(first for first, *_ in alike.values() if not self.bids[first].produced)
        if not forms:
            return False
        beside = self._bids_for([part for form in forms for part in form.nodes], ())
        able = [form for form in forms if self._may_win(form, beside)]
        self._measure({part: beside[part] for form in able for part in form.nodes})
        found = {f.node: f for f in able}
        slow = self._outrun_by({n: [beside[p] for p in f.nodes] for n, f in found.items()})
        faster = [found[n] for n in slow]
        same = [n for form in faster for n in alike[id(self.bids[form.node])]]
        for form in self._forms(same):
            self._take(form, "that is faster")
        return bool(faster)

    def _forms(self, nodes: Iterable[Node]) -> list[Rival]:
        """Those of the nodes for which rules know another."""
        if not any(r.phase == RIVAL for r in self.rules):
            return []
        found = (rival(self.fused, n, self.rules) for n in nodes)
        return [form for form in found if form is not None]

    def _may_win(self, form: Rival, beside: Mapping[Node, Bids]) -> bool:
        """Whether all its nodes have kernels, and estimates do not tell that it is far slower."""
        if not _runs(form, beside):
            return False
        own = _guess(self.bids[form.node])
        others = [_guess(beside[part]) for part in form.nodes]
        if own is None:
            return True
        return sum(x or 0.0 for x in others) < HOPELESS * own

    def _take(self, form: Rival, why: str) -> None:
        node = form.node
        parts = form.take_its_place(self.fused)
        names = tuple(part.name for part in parts)
        self.trace.firings += form.trace.firings
        self.trace.outrun.append(Outrun(node.name, names, form.rules))
        self.bids.pop(node, None)
        self._met.update(parts)
        told = f"{node.name} became {' and '.join(names)} by {', '.join(form.rules)}"
        self.state.logger.info(f"{told}: {why}")

    def _follow(self, locked: Locked) -> None:
        while groups := [n for n in self.fused.nodes if locked.splits(n.name) and can_split(n)]:
            self._take_apart((n, "the lock says so") for n in groups)
        for form in self._forms([n for n in self.fused.nodes if locked.outruns(n.name)]):
            self._take(form, "the lock says so")
        self._bid()
        for n in self.fused.nodes:
            while not locked.has(n.name, self.bids[n]):
                b = self.bids[n]
                self.bids[n] = fall_back(
                    b, n, self._able(n, b.produced), self.state.context, self._terms
                )
                if len(self.bids[n].candidates) == len(b.candidates):
                    break
        locked.settle(self.bids)


def _runs(form: Rival, beside: Mapping[Node, Bids]) -> bool:
    """Whether all its nodes have kernels."""
    return not any(all(c.is_reference for c in beside[part].standing) for part in form.nodes)


def _guess(bids: Bids) -> float | None:
    """The least that candidates are estimated to take; None where some tell nothing."""
    known = [c.estimate for c in bids.candidates if not c.is_reference]
    told = [x for x in known if x is not None]
    return min(told) if told and len(told) == len(known) else None


def _total(stands: Sequence[tuple[Bids, Candidate]]) -> tuple[bool, float]:
    """Seconds of nodes one after the other, behind whether some are estimated."""
    guessed = any(c.status == "estimated" for _, c in stands)
    return guessed, sum(c.seconds for _, c in stands)


def holds_objects(node: Node) -> bool:
    """Whether it reads or makes what lies in no buffer: text, sequences, optionals."""
    return any(v.spec.dtype.on_host for v in (*node.given, *node.outputs))
