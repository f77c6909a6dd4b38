"""Matrix products and 1x1 convolutions by cuBLASLt, which is looked for when a network is built or
a plan loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher

LAUNCHER = "tactix.cuda.cublaslt@1"
FUNCTION = "cublasLtMatmul"
"""The symbol of the launch that is a call of the library."""


def launchers() -> list[Launcher]:
    """What calls the library between kernels."""
    from tactix_cublaslt.launcher import CublasLtLauncher

    return [CublasLtLauncher()]
