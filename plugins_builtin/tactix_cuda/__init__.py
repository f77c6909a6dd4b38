"""CUDA: the device, its memory, the compiler of its kernels, the launcher that runs them, and
tactics for it.

Importing any of these modules imports neither cuda-python nor a driver: that happens when a device
is first asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.device import Device
    from tactix.contracts.launcher import Launcher


def devices() -> list[Device]:
    """The CUDA device of this process: the first that the driver shows (``CUDA_VISIBLE_DEVICES``
    chooses).
    """
    from tactix_cuda.device import the_device

    return [the_device()]


def launchers() -> list[Launcher]:
    """What runs cubins, and what runs steps on the host beside them."""
    from tactix_cuda.host_launcher import HostLauncher
    from tactix_cuda.launcher import CubinLauncher

    return [CubinLauncher(), HostLauncher()]


def allocators() -> list[Allocator]:
    """The driver's pool, pieces that are used again, pycuda's pool; the first by key is the
    default.
    """
    from tactix_cuda.device import the_device
    from tactix_cuda.external_allocators import PycudaAllocator
    from tactix_cuda.memory import PoolAllocator, RecyclingAllocator

    return [kind(the_device()) for kind in (PoolAllocator, RecyclingAllocator, PycudaAllocator)]


def compilers() -> list[Compiler]:
    """NVRTC."""
    from tactix_cuda.nvrtc import NvrtcCompiler

    return [NvrtcCompiler()]
