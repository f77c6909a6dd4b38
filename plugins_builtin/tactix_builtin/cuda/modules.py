"""Machine code on the device: a cubin is loaded once per process and content."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tactix.contracts.artifact import Binary
from tactix.words.errors import ExecutionError
from tactix_builtin.cuda.driver import NOT_FOUND, WRONG_BINARY, CudaFailure

if TYPE_CHECKING:
    from tactix_builtin.cuda.device import CudaDevice

FREE_SHARED = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without asking."""


class Kernel:
    """A kernel on the device. ``native``: the driver's handle."""

    def __init__(self, device: CudaDevice, native: Any) -> None:
        self.device, self.native = device, native
        self._shared = FREE_SHARED

    def allow_shared(self, size: int) -> None:
        """Let launches have so many bytes of dynamic shared memory. Raises CudaFailure if the device has less."""
        if size > self._shared:
            attribute = self.device.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.device.driver.call("cuFuncSetAttribute", self.native, attribute, size)
            self._shared = size


class Modules:
    """All that is loaded on a device."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._lock = threading.RLock()

    def kernel(self, code: Binary, symbol: str = "") -> Kernel:
        """The entry of the code, or its further kernel ``TX_NAME(symbol)``. Raises ExecutionError."""
        name = f"{code.symbol}_{symbol}" if symbol else code.symbol
        key = (code.digest, name)
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._find(self._module(code), name)
            return self._kernels[key]

    def _module(self, code: Binary) -> Any:
        if code.digest not in self._modules:
            self._device.activate()
            try:
                self._modules[code.digest] = self._device.driver.call("cuModuleLoadData", bytes(code.blob))
            except CudaFailure as e:
                if e.status in WRONG_BINARY:
                    here = self._device.properties()
                    do = f"Build the plan for {here.name}, of compute capability {here.facts['capability'] / 10}"
                    raise ExecutionError("machine code for another device", why=e.why, do=do) from None
                raise
        return self._modules[code.digest]

    def _find(self, module: Any, name: str) -> Kernel:
        try:
            return Kernel(self._device, self._device.driver.call("cuModuleGetFunction", module, name.encode()))
        except CudaFailure as e:
            if e.status == NOT_FOUND:
                raise ExecutionError(f"its machine code has no kernel {name!r}") from None
            raise
