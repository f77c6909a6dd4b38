"""The acme-dla pack: an accelerator of few layers, emulated on the CPU.

Building takes what the accelerator and the host beside it can run, and how models get narrow;
running takes the device, its memory, and what runs its steps and those of the host.
"""

from __future__ import annotations

from tactix_sdk import Allocator, Device, Launcher, Pack, Rule, Tactic

pack = Pack("acme_dla")


@pack.tactic
def bids() -> list[Tactic]:
    from acme_dla.tactics import AcceleratorTactic, HostTactic

    return [AcceleratorTactic(), HostTactic()]


@pack.rule
def stored_fp16() -> Rule:
    from acme_dla.tactics import stored_fp16

    return stored_fp16()


@pack.device
def accelerator() -> Device:
    from acme_dla.device import Accelerator

    return Accelerator()


@pack.allocator
def memory() -> Allocator:
    from acme_dla.device import SharedMemory

    return SharedMemory()


@pack.launcher
def launchers() -> list[Launcher]:
    from acme_dla.device import HostLauncher, SubgraphLauncher

    return [SubgraphLauncher(), HostLauncher()]
