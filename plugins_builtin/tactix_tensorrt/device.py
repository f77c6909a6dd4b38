"""What engines are built for: a GPU if there is one, else the processor behind the same API."""

from __future__ import annotations

import ctypes
import functools
import os

from tactix.base.errors import ConfigError

VARIABLE = "TACTIX_TENSORRT_DEVICE"


def chosen() -> str:
    """``cuda`` or ``cpu``: TACTIX_TENSORRT_DEVICE, or what is there. Raises ConfigError."""
    name = os.environ.get(VARIABLE, "")
    if name not in ("", "cpu", "cuda"):
        raise ConfigError(f"{VARIABLE} is {name!r}", do="Set it to cpu or cuda, or leave it out")
    return name or ("cuda" if _has_gpu() else "cpu")


@functools.cache
def _has_gpu() -> bool:
    """Whether the driver knows of a device; asked without loading any binding of CUDA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )
