"""Every built-in operation: what it means, how it is rewritten, and the reference that runs any of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher


def launchers() -> list[Launcher]:
    """What runs references, branches and loops, and stands for sets of kernels."""
    from tactix_ops.control_launcher import ControlLauncher
    from tactix_ops.kernel_sets import KernelSetsLauncher
    from tactix_sdk.numpy_launcher import NumpyLauncher

    return [ControlLauncher(), KernelSetsLauncher(), NumpyLauncher()]
