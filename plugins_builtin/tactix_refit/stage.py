"""The build stage of refitting, and of stripped plans."""

from __future__ import annotations

from tactix.config import BuilderConfig, BuilderFlag
from tactix.pipeline.stages import Part, Staged
from tactix.plugins.session import Session


class RefitStage(Staged):
    """Traces weights through a build, so that its plan takes other ones."""

    key = "tactix.refit"
    serves = frozenset(
        f.value for f in (BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.STRIP_PLAN)
    )
    depth = 40

    def join(self, session: Session, config: BuilderConfig) -> Part:
        from tactix_refit.build import RefitBuild

        return RefitBuild(
            BuilderFlag.REFIT not in config.flags, BuilderFlag.STRIP_PLAN in config.flags
        )
