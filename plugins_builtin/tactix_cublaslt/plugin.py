"""Products by cuBLASLt. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.tactic import Tactic


@hookimpl
def tactix_launchers() -> list[Launcher]:
    from tactix_cublaslt import launchers

    return launchers()


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_cublaslt.tactic import tactics

    return tactics()
