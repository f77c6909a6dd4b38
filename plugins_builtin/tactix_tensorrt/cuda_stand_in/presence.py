"""Whether this process sees a GPU, and whether NVIDIA's kernel compiler is here."""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec

_DRIVERS = {"win32": "nvcuda.dll"}


def has_gpu() -> bool:
    """Whether NVIDIA's driver is here and shows a device to this process."""
    try:
        driver = ctypes.CDLL(_DRIVERS.get(sys.platform, "libcuda.so.1"))
    except OSError:
        return False
    count = ctypes.c_int(0)
    found = not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count))
    return found and count.value > 0


def has_nvrtc() -> bool:
    """Whether cuda-python's NVRTC, which needs no GPU, is installed."""
    try:
        return find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:  # of what it is in
        return False
