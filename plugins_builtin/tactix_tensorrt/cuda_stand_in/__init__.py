"""A stand-in for the CUDA runtime on machines without a GPU: "device" memory is host memory.

Programs that are written for a GPU allocate, copy and synchronise with cuda-python, pycuda or
libcudart through ctypes; here those names lead to one table of host memory, and every copy and free
is checked against it. Kernels are refused. Nothing is put in unless ``install()`` is called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tactix_tensorrt.cuda_stand_in.modules import MODULES

if TYPE_CHECKING:
    from tactix_tensorrt.cuda_stand_in.folder import StandInFolder

__all__ = ["for_children", "install", "uninstall", "write_folder"]


def install(force: bool = False) -> tuple[str, ...]:
    """Let CUDA's modules and libcudart lead to the stand-in where engines are built for the
    processor: there is no GPU, or TACTIX_TENSORRT_DEVICE says so. ``force``: elsewhere, too.

    Gives the names of the modules that lead there now: none where engines are for a GPU. NVIDIA's
    kernel compiler stays if it is installed, as it needs no GPU. Raises ConfigError for another
    device in that variable.
    """
    return MODULES.put_in(force)


def uninstall() -> None:
    """What was importable before is so again; memory that was allocated stays."""
    MODULES.take_out()


def for_children() -> None:
    """Let Python processes that this one starts call ``install()`` when they start."""
    from tactix_tensorrt.cuda_stand_in import folder

    os.environ.update(folder.StandInFolder(folder.AT_START, None).environment())


def write_folder(path: str | os.PathLike[str]) -> StandInFolder:
    """Write a folder through which subprocesses get the stand-in: see
    ``StandInFolder.environment``. Raises OSError, CompilerError.
    """
    from tactix_tensorrt.cuda_stand_in import folder

    return folder.write_folder(path)
