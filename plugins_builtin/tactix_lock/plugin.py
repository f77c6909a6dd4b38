"""Builds by locks. Heavy imports stay inside functions, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.pipeline.stages import Staged

pack = BasePack("tactix")


@pack.build_stage
def lock() -> Staged:
    from tactix_lock.stage import LockStage

    return LockStage()
