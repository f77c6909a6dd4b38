"""Whether this process sees a GPU, and whether NVIDIA's kernel compiler is installed."""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import ModuleType

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


def real_nvrtc() -> ModuleType | None:
    """cuda-python's NVRTC, which needs no GPU, if it is installed and works."""
    try:
        found = importlib.import_module("cuda.bindings.nvrtc")
        found.nvrtcVersion()
    except (ImportError, RuntimeError, OSError, AttributeError):
        return None
    return found
