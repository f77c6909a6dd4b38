"""Calls of libraries in a graph of kernels: what a call puts into a stream is recorded, and becomes a child graph.

A library does not say which kernels it starts nor where its arguments are in theirs. So a new address means a new
recording, which replaces the child graph's parameters; graphs that were launched before keep theirs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tactix.words.errors import TactixError

if TYPE_CHECKING:
    from tactix_builtin.cuda.device import CudaDevice
    from tactix_builtin.cuda.launcher import Call, Start


class Recorder:
    """Records what is put into a stream of its own; one recording at a time."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._stream: Any = None
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def graph(self, work: Callable[[int], None]) -> Iterator[Any]:
        """The graph of what ``work(stream)`` enqueues, while the block runs. Raises what ``work`` raises."""
        from tactix_builtin.cuda.stream import CudaStream

        call = self._device.driver.call
        # libraries may load code at the first call: other modes of capture forbid that
        mode = self._device.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self._lock:
            stream = self._stream = self._stream or CudaStream.create(self._device)
            call("cuStreamBeginCapture", stream.native, mode)
            try:
                work(stream.handle)
            except BaseException:
                with contextlib.suppress(TactixError):  # the capture may be broken already
                    call("cuGraphDestroy", call("cuStreamEndCapture", stream.native))
                raise
            made = call("cuStreamEndCapture", stream.native)
        try:
            yield made
        finally:
            call("cuGraphDestroy", made)


class CapturedNode:
    """A library's call at bound shapes; ``slots``: its part of the table of arguments."""

    def __init__(self, start: Start, call: Call, slots: Any, device: CudaDevice) -> None:
        self.start, self._slots, self._device = start, slots, device
        self._bound = call.bind(self._arguments())

    def _arguments(self) -> list[int]:
        return [int(x) for x in self._slots]

    def _enqueue(self, stream: int) -> None:
        self._bound.enqueue(self._arguments(), stream)

    def add(self, graph: Any, after: Sequence[Any]) -> Any:
        """Put it into a graph behind others; gives the driver's node."""
        with self._device.recorder.graph(self._enqueue) as child:
            return self._device.driver.call("cuGraphAddChildGraphNode", graph, after, len(after), child)

    def update(self, executable: Any, handles: Sequence[Any]) -> None:
        """Give nodes that ``add`` made the arguments that the table has now."""
        with self._device.recorder.graph(self._enqueue) as child:
            for handle in handles:
                self._device.driver.call("cuGraphExecChildGraphNodeSetParams", executable, handle, child)

    def launch(self, stream: Any) -> None:
        """Without a graph."""
        self._enqueue(int(stream))
