"""Other weights for plans.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.pipeline.stages import Staged

pack = BasePack("tactix")


@pack.build_stage
def refit() -> Staged:
    from tactix_refit.stage import RefitStage

    return RefitStage()
