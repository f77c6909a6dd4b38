"""Memory in which a plugin sees arrays for one run: the host's, or a GPU's."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self

from tactix.base.errors import ExecutionError

if TYPE_CHECKING:
    from tactix_tensorrt.api.values import Array

ALIGNMENT = 256
"""Bytes, of what TensorRT gives plugins."""


class Place(Protocol):
    """Used in ``with``; what it holds is gone behind it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def hold(self, array: Array) -> int:
        """The address of a copy."""

    def fetch(self, address: int, array: Array) -> None:
        """Fill an array with what lies there, once all runs are over."""


class OnHost:
    """Memory of the process, which is the device's to what stands in for CUDA."""

    def __init__(self) -> None:
        self._held: list[Array] = []
        self._lent = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lent.close()
        self._held.clear()

    def hold(self, array: Array) -> int:
        import numpy as np

        from tactix_tensorrt.cuda_stand_in.machine import MACHINE

        raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
        self._held.append(raw)
        address = -(-raw.ctypes.data // ALIGNMENT) * ALIGNMENT
        given = np.ascontiguousarray(array)
        ctypes.memmove(address, given.ctypes.data, array.nbytes)
        self._lent.enter_context(MACHINE.memory.lent({address: array.nbytes}))
        return address

    def fetch(self, address: int, array: Array) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


class OnDevice:
    """A GPU's memory, by the driver, in the thread's context or else in the first device's."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._after = ExitStack()

    def _call(self, name: str, *args: object) -> None:
        if status := getattr(self._driver, name)(*args):
            raise ExecutionError(f"{name} failed", why=f"status {status}")

    def __enter__(self) -> Self:
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if not context:
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self._after.callback(self._call, "cuDevicePrimaryCtxRelease_v2", 0)
            self._call("cuCtxPushCurrent_v2", context)
            self._after.callback(self._call, "cuCtxPopCurrent_v2", ctypes.byref(context))
        return self

    def __exit__(self, *_: object) -> None:
        self._after.close()

    def hold(self, array: Array) -> int:
        import numpy as np

        place, given = ctypes.c_uint64(), np.ascontiguousarray(array)
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(1, array.nbytes)))
        self._after.callback(self._call, "cuMemFree_v2", place)
        source, size = ctypes.c_void_p(given.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyHtoD_v2", place, source, size)
        return place.value

    def fetch(self, address: int, array: Array) -> None:
        self._call("cuCtxSynchronize")
        target, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), size)
