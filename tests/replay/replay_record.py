"""Walks builds: of every node all bids, of every build the fused network and the plan that
estimates choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import replay_texts as texts
from replay_networks import Network
from replay_targets import Target, quiet

import tactix
from tactix.base.errors import TactixError
from tactix.builder import Builder, planned
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition
from tactix.pipeline import prepare as preparing
from tactix.pipeline import select as selecting
from tactix.pipeline.finish import finish
from tactix.pipeline.mixtures import Attempt
from tactix.pipeline.prepare import prepare
from tactix.plan.schema import Plan
from tactix.select.compile import Toolchain
from tactix.select.enumerate import Bids, Terms, bid, signature

SMALL = 64
"""Elements of a constant that tactics may look into; of larger ones nodes of one signature are
taken to be alike.
"""


SEPARATOR = " | "


@dataclass(frozen=True, order=True)
class Key:
    """What a text is of. ``node``: of what the attempt (how often this build was fused before) made
    of the network.
    """

    network: str
    target: str
    precision: str
    node: str
    tactic: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return SEPARATOR.join(
            filter(
                None,
                (self.network, self.target, self.precision, self.node, self.tactic, self.variant),
            )
        )


Sink = Callable[[Key, str], None]
"""Takes each text as it is made; a prelude under the key SHARED."""
SHARED = Key("preludes", "", "", "")
"""Of texts that many kernels have in common."""


class Uncompiled(Compiler):
    """Gives the digest of the text for machine code: plans are whole, and nothing is compiled."""

    def __init__(self, language: str) -> None:
        self.key, self.language, self.launcher = f"replay.{language}@1", language, ""

    def available(self) -> str:
        return ""

    def identity(self) -> str:
        return "none"

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        return [Binary(texts.digest(texts.of_source(s)).encode(), "entry") for s in sources]


class Watched(Builder):
    """A builder that compiles nothing and shows every attempt before it is made a plan of."""

    def __init__(self, session: tactix.Session, seen: Callable[[Attempt], None]) -> None:
        super().__init__(quiet(), session)
        self._seen = seen

    def build_plan(
        self, network: NetworkDefinition, config: tactix.BuilderConfig | None = None
    ) -> Plan:
        asked = config or tactix.BuilderConfig()
        nothing = Toolchain(Uncompiled(c.language) for c in self.session.active_compilers())
        with mock.patch.object(preparing, "_toolchain", return_value=nothing):
            prepared = prepare(self.session, network, asked, self.logger, self._load)
        attempt = selecting._attempt

        def shown(*arguments: Any) -> Attempt:
            made = attempt(*arguments)
            self._seen(made)
            return made

        with (
            closing(prepared.state.bench),
            mock.patch.object(selecting, "_attempt", side_effect=shown),
        ):
            plan = planned(prepared.network, prepared.state)
        return finish(plan, prepared.state)


@dataclass
class Record:
    """``identifiers``: by kind, how often a key occurs: of tactics, launchers, rules, layers."""

    session: tactix.Session
    sink: Sink
    identifiers: dict[str, Counter[str]] = field(default_factory=dict)
    _asked: dict[Any, set[str]] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)

    def network(self, network: Network, targets: Iterable[Target]) -> None:
        """Everything of one network. What cannot be built leaves a text, too: the error's."""
        try:
            net = network.load(Builder(quiet(), self.session))
        except TactixError as e:
            self.sink(
                Key(network.name, "", "", "import"), texts.neutral(f"{type(e).__name__}: {e}")
            )
            return
        for target in targets:
            self._asked.clear()
            for precision in network.precisions(target):
                self._build(
                    Key(network.name, target.name, precision, ""), net, target, Terms(network.level)
                )

    def _build(self, key: Key, net: NetworkDefinition, target: Target, terms: Terms) -> None:
        flags = set() if key.precision in ("fp32", "int8") else {tactix.BuilderFlag(key.precision)}
        config = tactix.BuilderConfig(
            flags=flags,
            builder_optimization_level=0,
            timing_cache=False,
            threads=1,
            device=target.key,
            target=target.level,
            sign=False,
        )
        attempts = 0

        def seen(attempt: Any) -> None:
            nonlocal attempts
            self._attempt(replace(key, node=f"{attempts} "), attempt, terms)
            attempts += 1

        try:
            plan = Watched(self.session, seen).build_plan(net, config)
        except TactixError as e:
            self.sink(replace(key, node="plan"), texts.neutral(f"{type(e).__name__}: {e}"))
            return
        self._count("launcher", (s.artifact.launcher for p in plan.nested() for s in p.steps))
        self.sink(replace(key, node="plan"), texts.of_plan(plan))

    def _attempt(self, key: Key, attempt: Any, terms: Terms) -> None:
        net, state = attempt.network, attempt.state
        self._count("rule", attempt.trace.counts)
        self._count("layer", (b.layer.key for n in net.nodes for b in n.body.nodes))
        self.sink(replace(key, node=f"{key.node}network"), texts.of_network(net))
        for n in net.nodes:
            asked = self._asked.setdefault(_alike(n, state.context.opt), set())
            able = [t for t in state.tactics if t.produces or not attempt.bids[n].produced]
            if new := [t for t in able if t.key not in asked]:
                self._bids(
                    replace(key, node=f"{key.node}{n.name}"), bid(n, new, state.context, terms)
                )
                asked.update(t.key for t in new)

    def _bids(self, key: Key, bids: Bids) -> None:
        for c in bids.candidates:
            self._count("tactic", [c.tactic.key])
            for prelude in texts.preludes(c.artifact):
                self._prelude(prelude)
            variant = f"{c.variant.id} {c.variant}"
            self.sink(
                replace(key, tactic=texts.neutral(c.tactic.key), variant=variant),
                texts.of_candidate(c, bids.node),
            )
        refused = "\n".join(f"{who}: {why}" for who, why in bids.rejections)
        self.sink(replace(key, tactic="who does not bid"), texts.neutral(refused))

    def _prelude(self, text: str) -> None:
        if text not in self._shared:
            self._shared.add(text)
            self.sink(replace(SHARED, node=texts.digest(text)), text)

    def _count(self, kind: str, keys: Iterable[str]) -> None:
        self.identifiers.setdefault(kind, Counter()).update(keys)


def _alike(n: Node, opt: Any) -> Any:
    """What nodes have in common whose bids are asked for once in a build for a device."""
    return (
        signature(n, opt),
        *_contents(n),
        *((n.given.index(v), str(v.spec.value)) for v in n.given),
    )


def _contents(n: Node) -> Iterator[bytes]:
    for v in n.given:
        if v.const is not None and v.const.size <= SMALL:
            yield repr(v.const.tolist()).encode()
