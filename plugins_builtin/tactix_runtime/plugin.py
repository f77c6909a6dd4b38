"""How plans run in this process, or on the runtime that they bring.

Imports stay inside the hooks, so that finding plugins is quick.
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
    from tactix_runtime import flavours

    return flavours()


@hookimpl
def tactix_build_stages() -> list[Staged]:
    from tactix_runtime.streaming.stage import StreamingStage

    return [StreamingStage()]
