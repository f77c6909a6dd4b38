"""Processors that plans for more than this machine are built for. Only building needs it."""

from __future__ import annotations

from dataclasses import replace

from tactix.base.errors import InvalidArgument
from tactix.contracts.device import DeviceProperties
from tactix_cpu.device import CpuDevice
from tactix_cpu.features import LEVELS


def target(level: str) -> DeviceProperties:
    """A processor that has the features of a level, one of LEVELS, and no others.

    Where this machine has them, it is this machine held back to them: what is built can be measured
    here. Otherwise nothing but the level is known of it. Raises InvalidArgument for a level that
    there is not.
    """
    if level not in LEVELS:
        do = f"There are: {', '.join(LEVELS)}; other devices have targets of their own"
        raise InvalidArgument(f"no level {level!r}", who=CpuDevice.key, do=do)
    arch, bits, features = LEVELS[level]
    here = CpuDevice().properties()
    if here.features >= features:
        return replace(here, features=features, vector_bits=bits, family=True)
    return DeviceProperties(
        "cpu", level, features, bits, here.cores, facts={"arch": arch}, family=True
    )
