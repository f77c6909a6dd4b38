"""The host's own processor. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.device import Device
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.tactic import Tactic


@hookimpl
def tactix_devices() -> list[Device]:
    from tactix_cpu import devices

    return devices()


@hookimpl
def tactix_allocators() -> list[Allocator]:
    from tactix_cpu import allocators

    return allocators()


@hookimpl
def tactix_launchers() -> list[Launcher]:
    from tactix_cpu import launchers

    return launchers()


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_cpu.tactics import all_tactics

    return all_tactics()


@hookimpl
def tactix_compilers() -> list[Compiler]:
    from tactix_cpu.compiler import compilers

    return compilers()
