"""Plugins that are written for TensorRT, in plans.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.layer import Layer
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")


@pack.layer
def layers() -> list[Layer]:
    from tactix_tensorrt.plugin_steps.layer import PluginLayer

    return [PluginLayer()]


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_tensorrt.plugin_steps.kernel_tactic import KernelTactic
    from tactix_tensorrt.plugin_steps.tactic import CudaPluginTactic, PluginTactic

    return [PluginTactic(), CudaPluginTactic(), KernelTactic()]


@pack.launcher
def launchers() -> list[Launcher]:
    from tactix_tensorrt.plugin_steps.launcher import CudaPluginLauncher, PluginLauncher

    return [PluginLauncher(), CudaPluginLauncher()]
