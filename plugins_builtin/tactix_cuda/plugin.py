"""NVIDIA's GPUs. Imports stay inside the hooks, so that finding plugins is quick."""

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
    from tactix_cuda import devices

    return devices()


@hookimpl
def tactix_allocators() -> list[Allocator]:
    from tactix_cuda import allocators

    return allocators()


@hookimpl
def tactix_launchers() -> list[Launcher]:
    from tactix_cuda import launchers

    return launchers()


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_cuda.tactics import all_tactics

    return all_tactics()


@hookimpl
def tactix_compilers() -> list[Compiler]:
    from tactix_cuda import compilers

    return compilers()
