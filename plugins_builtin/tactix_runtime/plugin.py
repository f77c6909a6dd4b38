"""How plans run in this process, or on the runtime that they bring.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_runtime import flavours

if TYPE_CHECKING:
    from tactix.pipeline.stages import Staged

pack = BasePack("tactix")
pack.flavour(flavours)


@pack.build_stage
def states() -> Staged:
    from tactix_runtime.states.stage import StatesStage

    return StatesStage()


@pack.build_stage
def streaming() -> Staged:
    from tactix_runtime.streaming.stage import StreamingStage

    return StreamingStage()
