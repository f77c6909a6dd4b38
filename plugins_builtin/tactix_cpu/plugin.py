"""The host's own processor.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_cpu import allocators, devices, launchers

if TYPE_CHECKING:
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")
pack.device(devices)
pack.allocator(allocators)
pack.launcher(launchers)


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_cpu.tactics import all_tactics

    return all_tactics()


@pack.compiler
def compilers() -> list[Compiler]:
    from tactix_cpu import compiler

    return compiler.compilers()
