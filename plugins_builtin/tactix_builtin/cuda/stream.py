"""Streams and events of a CUDA device."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tactix.contracts.device import Stream
from tactix.words.errors import InvalidArgument, TactixError

if TYPE_CHECKING:
    from tactix_builtin.cuda.device import CudaDevice

NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: it does not wait for the default stream, nor that for it."""


class CudaStream:
    """A stream by its handle, which may be another library's; 0 is the default stream."""

    def __init__(self, device: CudaDevice, handle: int) -> None:
        self.device, self.handle = device, handle
        self.native = device.driver.api.CUstream(handle)

    @classmethod
    def create(cls, device: CudaDevice) -> CudaStream:
        """A stream of its own, destroyed with this object."""
        device.activate()
        stream = cls(device, int(device.driver.call("cuStreamCreate", NON_BLOCKING)))
        _destroy_with(stream, device, "cuStreamDestroy", stream.native)
        return stream

    def submit(self, work: Callable[[], None]) -> None:
        """Call ``work`` now, on this thread; what it launches and copies goes into this stream."""
        own = self.device.local
        before, own.stream = own.stream, self
        try:
            work()
        finally:
            own.stream = before

    def synchronize(self) -> None:
        self.device.activate()
        self.device.driver.call("cuStreamSynchronize", self.native)


class CudaEvent:
    """A mark in a stream, with the time at which it was reached on the device's clock."""

    def __init__(self, device: CudaDevice) -> None:
        device.activate()
        self.device = device
        self.native = device.driver.call("cuEventCreate", 0)
        _destroy_with(self, device, "cuEventDestroy", self.native)

    def record(self, stream: Stream) -> None:
        """Raises InvalidArgument for a stream of another device."""
        if not isinstance(stream, CudaStream):
            raise InvalidArgument(f"a CUDA event cannot be recorded in a {type(stream).__name__}")
        self.device.activate()
        self.device.driver.call("cuEventRecord", self.native, stream.native)

    def synchronize(self) -> None:
        self.device.activate()
        self.device.driver.call("cuEventSynchronize", self.native)

    def elapsed(self, earlier: Any) -> float:
        """Seconds since the earlier event, to about half a microsecond; waits for both."""
        earlier.synchronize()
        self.synchronize()
        return float(self.device.driver.call("cuEventElapsedTime", earlier.native, self.native)) * 1e-3


def _destroy_with(owner: Any, device: CudaDevice, call: str, native: Any) -> None:
    def destroy() -> None:
        with contextlib.suppress(TactixError):  # after a fatal error there is nothing left to destroy
            device.activate()
            device.driver.call(call, native)

    weakref.finalize(owner, destroy).atexit = False
