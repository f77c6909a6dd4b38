"""The host's own processor: its device, memory, C compiler, launcher, and tactics that write C."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.device import Device
    from tactix.contracts.launcher import Launcher


def devices() -> list[Device]:
    """The processor."""
    from tactix_cpu.device import CpuDevice

    return [CpuDevice()]


def launchers() -> list[Launcher]:
    """What runs machine code."""
    from tactix_cpu.launcher import ElfLauncher

    return [ElfLauncher()]


def allocators() -> list[Allocator]:
    """The host's memory."""
    from tactix_cpu.allocator import ArenaAllocator

    return [ArenaAllocator()]
