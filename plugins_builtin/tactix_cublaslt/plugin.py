"""Products by cuBLASLt. Heavy imports stay inside functions, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_cublaslt import launchers

if TYPE_CHECKING:
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")
pack.launcher(launchers)


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_cublaslt import tactic

    return tactic.tactics()
