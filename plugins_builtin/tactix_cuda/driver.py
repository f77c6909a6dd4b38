"""CUDA's driver API through cuda.bindings: every call is checked, a failure is a typed error."""

from __future__ import annotations

from typing import Any

from tactix.base.errors import AllocationError, DeviceLost, ExecutionError, TactixError

OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY, as the next ones a CUresult of the driver API."""
NEWER_PTX = 222
"""CUDA_ERROR_UNSUPPORTED_PTX_VERSION: made by an NVRTC that is newer than the driver."""
WRONG_BINARY = frozenset({200, 209, 218, NEWER_PTX})
"""CUDA_ERROR_INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION."""
NOT_FOUND = 500
"""CUDA_ERROR_NOT_FOUND: the module has no function of that name."""
FATAL = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720})
"""Errors of a running kernel, or of the chip: after one of them the process can use the device no
more.
"""


def places_of(arguments: Any) -> Any:
    """Where the arguments of a launch are, as the driver takes them: the addresses of the elements
    of an array of int64, which must outlive what comes.
    """
    import numpy as np

    return arguments.ctypes.data + 8 * np.arange(len(arguments), dtype=np.int64)


class CudaFailure(ExecutionError):
    """A driver call that did not succeed. ``status``: CUDA's number for the reason."""

    def __init__(self, what: str, *, status: int, why: str) -> None:
        do = (
            "The device is lost to this process: "
            "start it again with CUDA_LAUNCH_BLOCKING=1 to learn the step"
        )
        super().__init__(what, why=why, do=do if status in FATAL else "")
        self.status = status


class CudaDeviceLost(CudaFailure, DeviceLost):
    """After one of FATAL."""


class Driver:
    """``api``: the module ``cuda.bindings.driver``, which is imported if none is given. Raises
    ImportError; RuntimeError, as the binding does without a driver, for a module that says that it
    stands in for one.
    """

    def __init__(self, api: Any = None) -> None:
        if api is None:
            from cuda.bindings import driver

            if stands_in := getattr(driver, "STANDS_IN", ""):
                raise RuntimeError(f"cuda.bindings.driver is {stands_in}")
            api = driver
        self.api = api

    def call(self, name: str, *args: Any) -> Any:
        """What the function gives besides its status. Raises AllocationError, CudaFailure."""
        status, *out = getattr(self.api, name)(*args)
        if int(status):
            raise self.failure(name, status)
        return out[0] if len(out) == 1 else tuple(out)

    def failure(self, name: str, status: Any) -> TactixError:
        """The error for a status, with CUDA's name for it and its text."""
        why = f"{self._said('cuGetErrorName', status)}: {self._said('cuGetErrorString', status)}"
        if int(status) == OUT_OF_MEMORY:
            return AllocationError(f"{name} failed", why=why)
        kind = CudaDeviceLost if int(status) in FATAL else CudaFailure
        return kind(f"{name} failed", status=int(status), why=why)

    def _said(self, name: str, status: Any) -> str:
        failed, text = getattr(self.api, name)(status)
        return f"status {int(status)}" if int(failed) or not text else str(text, "ascii", "replace")
