"""Other weights for plans. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.pipeline.stages import Staged


@hookimpl
def tactix_build_stages() -> list[Staged]:
    from tactix_refit.stage import RefitStage

    return [RefitStage()]
