"""Convolutions and attention by cuDNN. Imports stay inside the hooks, so that finding plugins is
quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.tactic import Tactic


@hookimpl
def tactix_launchers() -> list[Launcher]:
    from tactix_cudnn import launchers

    return launchers()


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_cudnn.tactic import tactics

    return tactics()


@hookimpl
def tactix_compilers() -> list[Compiler]:
    from tactix_cudnn import compilers

    return compilers()
