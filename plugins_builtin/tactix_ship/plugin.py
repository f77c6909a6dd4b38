"""The lean runtime, and packs inside of plans.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.contracts.flavour import Flavour
    from tactix.pipeline.stages import Staged
    from tactix.plan.schema import Plan

pack = BasePack("tactix")


@pack.flavour
def lean() -> Flavour[Plan]:
    from tactix_ship.flavour import LeanFlavour

    return LeanFlavour()


@pack.build_stage
def stages() -> list[Staged]:
    from tactix_ship.stages import EmbedStage, VersionCompatibleStage

    return [EmbedStage(), VersionCompatibleStage()]
