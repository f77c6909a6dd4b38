"""Where plans run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.device import Device


def devices() -> list[Device]:
    """The built-in devices."""
    from tactix_builtin.devices.cpu import CpuDevice

    return [CpuDevice()]
