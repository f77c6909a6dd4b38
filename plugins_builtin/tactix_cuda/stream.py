"""Streams and events of a CUDA device."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tactix.base.errors import InvalidArgument, TactixError
from tactix.contracts.device import Stream

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: it does not wait for the default stream, nor that for it. Order between
streams is made by events alone (``follow``), or what a caller has in the default stream would hold
up all others.
"""
SLEEPING = 1 | 2
"""CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING: a thread that waits for the event sleeps until
the device's interrupt comes; without it the driver asks the device again and again, which takes a
core.
"""
LEGACY = 1
"""CU_STREAM_LEGACY, another handle of the default stream, where 0 would mean no stream."""

_HANDLES = ("handle", "cuda_stream", "ptr")
_CURRENT: dict[str, Callable[[Any, int], int]] = {
    "torch": lambda torch, ordinal: torch.cuda.current_stream(ordinal).cuda_stream,
    "cupy": lambda cupy, ordinal: cupy.cuda.get_current_stream().ptr,
}
"""The caller's stream by the package that an array is of. Neither DLPack nor the CUDA array
interface tells it.
"""


def handle_of(given: Any) -> int:
    """A stream's handle: of an integer, an object with ``__cuda_stream__``, or a stream of torch,
    cupy or tactix.

    The default stream has many names and is 0. Raises InvalidArgument.
    """
    found = given
    if not isinstance(given, int):
        told = getattr(given, "__cuda_stream__", None)
        if told is not None:
            found = (told() if callable(told) else told)[1]
        else:
            found = next((getattr(given, name) for name in _HANDLES if hasattr(given, name)), None)
    if not isinstance(found, int) or found < 0:
        do = (
            "Give a handle, or an object with __cuda_stream__, "
            "as torch, cupy and cuda.core have them"
        )
        raise InvalidArgument(f"{given!r} is no CUDA stream", do=do)
    return 0 if found == LEGACY else found


def callers_stream(array: Any, ordinal: int) -> int | None:
    """The stream that the caller works in now, told by the package of an array; None where that has
    no such notion.
    """
    name = type(array).__module__.partition(".")[0]
    ask = _CURRENT.get(name)
    return None if ask is None else handle_of(ask(sys.modules[name], ordinal))


class CudaStream:
    """A stream by its handle, which may be another library's; 0 is the default stream. ``owner``:
    kept alive.
    """

    def __init__(self, device: CudaDevice, handle: int, owner: Any = None) -> None:
        self.device, self.handle, self.owner = device, handle, owner
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

    def follow(self, other: CudaStream) -> None:
        """What comes next waits for what the other stream has now."""
        if other.handle != self.handle:
            event = CudaEvent(self.device)
            event.record(other)
            self.wait(event)

    def wait(self, event: CudaEvent) -> None:
        """What comes next waits for what the event marks now."""
        self.device.driver.call("cuStreamWaitEvent", self.native, event.native, 0)


class CudaEvent:
    """A mark in a stream, with the time at which it was reached on the device's clock."""

    def __init__(self, device: CudaDevice, flags: int = 0) -> None:
        device.activate()
        self.device = device
        self.native = device.driver.call("cuEventCreate", flags)
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
        return (
            float(self.device.driver.call("cuEventElapsedTime", earlier.native, self.native)) * 1e-3
        )


def _destroy_with(owner: Any, device: CudaDevice, call: str, native: Any) -> None:
    def destroy() -> None:
        # after a fatal error there is nothing left to destroy
        with contextlib.suppress(TactixError), device.visited():
            device.driver.call(call, native)

    weakref.finalize(owner, destroy).atexit = False
