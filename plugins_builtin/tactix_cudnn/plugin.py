"""Convolutions and attention by cuDNN.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_cudnn import compilers, launchers

if TYPE_CHECKING:
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")
pack.launcher(launchers)
pack.compiler(compilers)


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_cudnn import tactic

    return tactic.tactics()
