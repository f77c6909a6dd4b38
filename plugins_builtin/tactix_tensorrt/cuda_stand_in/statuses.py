"""Status numbers of CUDA that the stand-in gives: equal in the runtime and the driver API."""

from __future__ import annotations

STANDS_IN = "tactix's stand-in: host memory"
"""Marks the faces' modules: tactix's own device does not take them for a GPU."""

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_PITCH = 12
INVALID_DIRECTION = 21
NO_DEVICE = 100
INVALID_DEVICE = 101
NO_KERNEL_IMAGE = 209
INVALID_HANDLE = 400
NOT_SUPPORTED = 801

TEXTS = {
    SUCCESS: "no error",
    INVALID_VALUE: "invalid argument",
    OUT_OF_MEMORY: "out of memory",
    3: "initialization error",
    4: "driver shutting down",
    INVALID_PITCH: "invalid pitch argument",
    INVALID_DIRECTION: "invalid copy direction for memcpy",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    NO_DEVICE: "no CUDA-capable device is detected",
    INVALID_DEVICE: "invalid device ordinal",
    NO_KERNEL_IMAGE: "no kernel image is available for execution on the device",
    INVALID_HANDLE: "invalid resource handle",
    500: "named symbol not found",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    719: "unspecified launch failure",
    800: "operation not permitted",
    NOT_SUPPORTED: "operation not supported",
    900: "operation not permitted when stream is capturing",
    999: "unknown error",
}
"""CUDA's texts for them, and for those that programs compare with."""

UNKNOWN_CODE = "unrecognized error code"
"""CUDA's text for other numbers."""


class CudaRefusal(Exception):
    """A call that CUDA would not carry out either. ``status``: CUDA's number for the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


def no_gpu(what: str, status: int = NO_KERNEL_IMAGE) -> CudaRefusal:
    """The refusal of what only a GPU can do."""
    return CudaRefusal(
        status,
        f"{what} needs a GPU, and here host memory stands in for one; run the program on a machine "
        "with a GPU, or give this work to the engine as a layer or a plugin with a host path",
    )
