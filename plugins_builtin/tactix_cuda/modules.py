"""Machine code on the device: a cubin is loaded once as long as something has kernels of it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tactix.base.errors import ExecutionError, TactixError
from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import LinkContext
from tactix_cuda.driver import NEWER_PTX, NOT_FOUND, WRONG_BINARY, CudaFailure

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

FREE_SHARED = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without asking."""


def kernel_name(code: Binary, symbol: str = "") -> str:
    """What the code's entry, or its further kernel ``TX_NAME(symbol)``, is called in it."""
    return f"{code.symbol}_{symbol}" if symbol else code.symbol


class Module:
    """A cubin on the device, unloaded with this object."""

    def __init__(self, device: CudaDevice, blob: bytes) -> None:
        device.activate()
        self.native = device.driver.call("cuModuleLoadData", blob)
        weakref.finalize(self, _unload, device, self.native).atexit = False


def _unload(device: CudaDevice, native: Any) -> None:
    """Once nothing runs that may be code of it."""
    # after a fatal error there is nothing left to unload
    with contextlib.suppress(TactixError), device.visited():
        device.synchronize()
        device.driver.call("cuModuleUnload", native)


class CudaKernel:
    """A kernel on the device, whose module it keeps. ``native``: the driver's handle."""

    def __init__(self, device: CudaDevice, module: Module, native: Any) -> None:
        self.device, self.native = device, native
        self._module = module
        self._shared = FREE_SHARED
        self._lock = threading.Lock()

    def allow_shared(self, size: int) -> None:
        """Let launches have so many bytes of dynamic shared memory. Raises CudaFailure if the
        device has less.
        """
        with self._lock:  # contexts of several threads ask for different sizes
            if size > self._shared:
                attributes = self.device.driver.api.CUfunction_attribute
                most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.device.driver.call("cuFuncSetAttribute", self.native, most, size)
                self._shared = size


class Modules:
    """What is loaded on a device. Engines keep their kernels, so that their contexts find them."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._modules: weakref.WeakValueDictionary[str, Module] = weakref.WeakValueDictionary()
        self._kernels: weakref.WeakValueDictionary[tuple[str, str], CudaKernel] = (
            weakref.WeakValueDictionary()
        )
        self._kept: weakref.WeakKeyDictionary[LinkContext, set[CudaKernel]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.RLock()

    def kernel(self, code: Binary, symbol: str = "") -> CudaKernel:
        """The code's entry, or its further kernel ``TX_NAME(symbol)``. Raises ExecutionError."""
        name = kernel_name(code, symbol)
        key = (code.digest, name)
        with self._lock:
            found = self._kernels.get(key)
            if found is None:
                found = self._kernels[key] = self._find(self._module(code), name)
            return found

    def keep(self, owner: LinkContext, kernels: Iterable[CudaKernel]) -> None:
        """As long as the owner lives."""
        with self._lock:
            self._kept.setdefault(owner, set()).update(kernels)

    def _module(self, code: Binary) -> Module:
        found = self._modules.get(code.digest)
        if found is None:
            try:
                found = self._modules[code.digest] = Module(self._device, bytes(code.blob))
            except CudaFailure as e:
                if e.status in WRONG_BINARY:
                    here = self._device.properties()
                    capability = int(here.facts["capability"]) / 10
                    do = f"Build the plan for {here.name}, of compute capability {capability}"
                    do = (
                        "Update the driver, or build with an older NVRTC"
                        if e.status == NEWER_PTX
                        else do
                    )
                    raise ExecutionError(
                        "machine code for another device", why=e.why, do=do
                    ) from None
                raise
        return found

    def _find(self, module: Module, name: str) -> CudaKernel:
        try:
            native = self._device.driver.call("cuModuleGetFunction", module.native, name.encode())
            return CudaKernel(self._device, module, native)
        except CudaFailure as e:
            if e.status == NOT_FOUND:
                raise ExecutionError(f"its machine code has no kernel {name!r}") from None
            raise
