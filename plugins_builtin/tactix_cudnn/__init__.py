"""Convolutions and attention by cuDNN's graph API, which is looked for when a network is built or a
plan loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.launcher import Launcher

LAUNCHER = "tactix.cuda.cudnn@1"
FUNCTION = "cudnnBackendExecute"
"""The symbol of the launch, which is a call of the library."""


def launchers() -> list[Launcher]:
    """What calls the library between kernels."""
    from tactix_cudnn.launcher import CudnnLauncher

    return [CudnnLauncher()]


def compilers() -> list[Compiler]:
    """What makes plans of cuDNN."""
    from tactix_cudnn.compiler import CudnnCompiler

    return [CudnnCompiler()]
