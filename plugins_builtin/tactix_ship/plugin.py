"""The lean runtime, and packs inside of plans. Imports stay inside the hooks, so that finding
plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.flavour import Flavour
    from tactix.pipeline.stages import Staged
    from tactix.plan.schema import Plan


@hookimpl
def tactix_flavours() -> list[Flavour[Plan]]:
    from tactix_ship.flavour import LeanFlavour

    return [LeanFlavour()]


@hookimpl
def tactix_build_stages() -> list[Staged]:
    from tactix_ship.stages import EmbedStage, VersionCompatibleStage

    return [EmbedStage(), VersionCompatibleStage()]
