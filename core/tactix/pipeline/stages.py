"""The stages of a build, in their order: from what a configuration asks for to what plugins add to
the build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tactix.base.errors import ConfigError
from tactix.config import BuilderConfig
from tactix.contracts.build_stage import BuildPart, BuildStage, Content, Lowered
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import Tactic
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix.plugins.names import OWN
from tactix.plugins.session import Session

Part = BuildPart[BuilderConfig, NetworkDefinition, Plan]
"""A part over the core's own types."""

Staged = BuildStage[Session, BuilderConfig, NetworkDefinition, Plan]
"""A stage over the core's own types: the base of those that run in this builder."""


@dataclass(frozen=True)
class Parts:
    """The parts of one build, from the outermost stage to the innermost."""

    parts: tuple[Part, ...] = ()
    inside: bool = False
    """Whether these are for the bodies of branches and loops."""

    @property
    def of_bodies(self) -> Parts:
        """The same for networks inside of the model's."""
        return replace(self, inside=True)

    @property
    def lowering(self) -> frozenset[str]:
        """What the trace calls the work of those that lower precision."""
        return frozenset(p.lowering for p in self.parts if p.lowering and not self.inside)

    def lower(
        self, network: NetworkDefinition, stays: Callable[[str], str]
    ) -> dict[str, Lowered[NetworkDefinition]]:
        """What each part that lowers precision makes of what those before it made, by what the
        trace calls it.
        """
        made: dict[str, Lowered[NetworkDefinition]] = {}
        for p in self.parts:
            if p.lowering in self.lowering:
                made[p.lowering] = p.lower(network, stays)
                network = made[p.lowering].network
        return made

    def network(self, network: NetworkDefinition) -> NetworkDefinition:
        for p in self.parts:
            network = p.network(network)
        return network

    def rules(self, rules: Sequence[Rule]) -> list[Rule]:
        for p in self.parts:
            rules = p.rules(rules)
        return list(rules)

    def tactics(self, tactics: Sequence[Tactic]) -> list[Tactic]:
        for p in self.parts:
            tactics = p.tactics(tactics)
        return list(tactics)

    @contextmanager
    def racing(self) -> Iterator[None]:
        with ExitStack() as entered:
            for p in self.parts:
                entered.enter_context(p.racing())
            yield

    def constants(self, stored: Content) -> Content:
        for p in reversed(self.parts):
            stored = p.constants(stored)
        return stored

    def plan(self, plan: Plan) -> Plan:
        for p in reversed(self.parts):
            plan = p.plan(plan)
        return plan


def joined(
    session: Session, network: NetworkDefinition, config: BuilderConfig
) -> tuple[BuilderConfig, Parts]:
    """The configuration to build by, and the parts of all stages that it asks for.

    Raises ConfigError for a request that no stage in use serves, and what the stages' ``settings``
    raise.
    """
    if not config.requests:  # most builds ask for nothing, and need no pack's stages
        return config, Parts()
    parts: dict[str, Part] = {}
    while new := [s for s in _asked(session, config.requests) if s.key not in parts]:
        parts[new[0].key] = new[0].join(session, config)
        config = parts[new[0].key].settings(config, network)
        config.check()
    order = {s.key: i for i, s in enumerate(sorted(session.build_stages.values(), key=_place))}
    return config, Parts(tuple(parts[key] for key in sorted(parts, key=order.__getitem__)))


def _asked(session: Session, requests: Mapping[str, str]) -> list[Staged]:
    """The stage that serves each request, the outermost first."""
    stages = session.active_build_stages()
    found: dict[str, Staged] = {}
    for name, asked in requests.items():
        stage = next((s for s in stages if name in s.serves), None)
        if stage is None:
            why, do = session.why_missing(OWN, "tactix_build_stages")
            why = why or "no plugin in use has a build stage for it"
            raise ConfigError(
                f"{asked} cannot be served", why=why, do=do or "Install a plugin that has one"
            )
        found[stage.key] = stage
    return sorted(found.values(), key=_place)


def _place(stage: Staged) -> tuple[int, str]:
    return stage.depth, stage.key


def in_one_piece(plan: Plan, who: str) -> Plan:
    """The plan, for a request that serves no other. Raises ConfigError for one whose steps run in
    pieces.
    """
    if plan.produced:
        told = plan.steps[min(plan.produced)].name
        why = f"only running tells the shapes of {told!r}, or it holds other networks"
        raise ConfigError(f"{who} for this network", why=why, do="Build without it")
    return plan
