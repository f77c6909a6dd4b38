"""Builds by locks. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.pipeline.stages import Staged


@hookimpl
def tactix_build_stages() -> list[Staged]:
    from tactix_lock.stage import LockStage

    return [LockStage()]
