"""What runs the steps of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher


def launchers() -> list[Launcher]:
    """The built-in launchers."""
    from tactix_builtin.launchers.elf import ElfLauncher
    from tactix_ops.control_launcher import ControlLauncher
    from tactix_sdk.numpy_launcher import NumpyLauncher

    return [ControlLauncher(), ElfLauncher(), NumpyLauncher()]
