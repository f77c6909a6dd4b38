"""The build stages of what plans bring: packs, and the lean runtime of this version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.tactic import Tactic
from tactix.pipeline.stages import Part, Staged
from tactix.plan.schema import Plan
from tactix.plugins.session import Session


class EmbedStage(Staged):
    """Puts packs into plans."""

    key = "tactix.embed"
    serves = frozenset({"plugins_to_serialize"})
    depth = 20

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return Embedded(session, tuple(config.plugins_to_serialize))


@dataclass(frozen=True)
class Embedded(Part):
    """A plan with the wheels of packs in it."""

    session: Session
    packs: tuple[str | Path, ...]

    def plan(self, plan: Plan) -> Plan:
        """Raises ConfigError."""
        from tactix_ship.embed import embed

        return embed(plan, self.packs, self.session)


class VersionCompatibleStage(Staged):
    """Makes plans that other versions of tactix, and of vendors' libraries, can run."""

    key = "tactix.version_compatible"
    serves = frozenset({BuilderFlag.VERSION_COMPATIBLE.value})
    depth = 30

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return VersionCompatible(BuilderFlag.EXCLUDE_LEAN_RUNTIME not in config.flags)


@dataclass(frozen=True)
class VersionCompatible(Part):
    """A plan with the lean runtime in it, if ``lean`` says so."""

    lean: bool

    def tactics(self, tactics: Sequence[Tactic]) -> list[Tactic]:
        """Those whose steps need no version of a vendor's library."""
        return [t for t in tactics if not t.vendor]

    def plan(self, plan: Plan) -> Plan:
        """Raises InternalError."""
        if not self.lean:
            return plan
        from tactix_runtime.envelope import with_runtime
        from tactix_ship.lean.wheel import wheel

        return replace(plan, **with_runtime(plan.blobs, plan.meta, wheel()))
