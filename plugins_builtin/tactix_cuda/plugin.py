"""NVIDIA's GPUs. Heavy imports stay inside functions, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_cuda import allocators, compilers, devices, launchers

if TYPE_CHECKING:
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")
pack.device(devices)
pack.allocator(allocators)
pack.launcher(launchers)
pack.compiler(compilers)


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_cuda.tactics import all_tactics

    return all_tactics()
