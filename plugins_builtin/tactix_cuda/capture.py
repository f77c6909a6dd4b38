"""Calls of libraries in a graph of kernels: what a call puts into a stream is recorded, and becomes
a node.

A library does not say which kernels it starts nor where its arguments are in theirs. So a new
address means a new recording, which replaces the node's parameters; graphs that were launched
before keep theirs.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tactix.base.errors import TactixError
from tactix_cuda.driver import CudaFailure
from tactix_cuda.fill import filling

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice
    from tactix_cuda.launcher import LibraryCall, Start

CHANGED = 910
"""CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE."""


class Uncollected:
    """``with``: without the garbage collector, as what it finalises may wait for the device, which
    a recording forbids. Recordings of several devices overlap: the last one that ends has it go on.
    """

    def __init__(self) -> None:
        self._lock, self._count, self._enabled = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._count:
                self._enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._enabled:
                gc.enable()


UNCOLLECTED = Uncollected()


class CapturedKernel(NamedTuple):
    """A kernel: what the driver takes for its node, the node with its attributes, the memory of its
    arguments.
    """

    params: Any
    like: Any
    keep_alive: Any


class Recorder:
    """Records what is put into a stream of its own; one recording at a time, with ``lock``."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._stream: Any = None
        self.lock = threading.RLock()

    @contextlib.contextmanager
    def graph(self, work: Callable[[int], None]) -> Iterator[Any]:
        """The graph of what ``work(stream)`` enqueues, while the block runs. Raises what ``work``
        raises.
        """
        from tactix_cuda.stream import CudaStream

        call = self._device.driver.call
        # libraries may load code at the first call: other modes of capture forbid that
        mode = self._device.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with self.lock, UNCOLLECTED:
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

    def line(self, graph: Any) -> list[CapturedKernel]:
        """The kernels of a recorded graph in which each node follows one other; empty for any other
        graph.

        Memsets become kernels: the driver launches a graph of kernels at once, but takes 2 us of
        the caller's time for each memset in it (docs/cuda.md, "Tactic sources, and NVIDIA's
        libraries").
        """
        api, call = self._device.driver.api, self._device.driver.call
        _, count = call("cuGraphGetNodes", graph)
        nodes: list[Any] = []
        following = self._nodes("cuGraphGetRootNodes", graph)
        while len(following) == 1:
            nodes += following
            following = self._nodes("cuGraphNodeGetDependentNodes", nodes[-1])
        if len(nodes) != count:
            return []
        out: list[CapturedKernel] = []
        for node in nodes:
            kind = call("cuGraphNodeGetType", node)
            if kind == api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
                out.append(CapturedKernel(call("cuGraphKernelNodeGetParams", node), node, None))
            elif kind == api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET:
                memset = call("cuGraphMemsetNodeGetParams", node)
                params, keep_alive = (
                    filling(self._device, memset) if memset.height == 1 else (None, None)
                )
                out += [CapturedKernel(params, None, keep_alive)] if keep_alive else []
        return out if len(out) == count else []

    def _nodes(self, name: str, of: Any) -> list[Any]:
        *_, count = self._device.driver.call(name, of)
        return list(self._device.driver.call(name, of, count)[0]) if count else []


class Placed(NamedTuple):
    """The driver's nodes that something has become, one after the other."""

    nodes: list[Any]
    is_kernel: bool


class CapturedNode:
    """A library's call at bound shapes; ``slots``: its part of the table of arguments."""

    def __init__(self, start: Start, call: LibraryCall, slots: Any, device: CudaDevice) -> None:
        self.start, self._slots, self._device = start, slots, device
        self._bound = call.bind(self._arguments())

    def _arguments(self) -> list[int]:
        return [int(x) for x in self._slots]

    def _enqueue(self, stream: int) -> None:
        self._bound.enqueue(self._arguments(), stream)

    def add(self, graph: Any, after: Sequence[Any]) -> Placed:
        """Put it into a graph behind others: kernels one after the other, else the recorded graph
        as a child.
        """
        call, recorder = self._device.driver.call, self._device.recorder
        with recorder.graph(self._enqueue) as child:
            line = recorder.line(child)
            if not line:
                return Placed(
                    [call("cuGraphAddChildGraphNode", graph, after, len(after), child)],
                    is_kernel=False,
                )
            made: list[Any] = []
            for params, like, _ in line:
                before = made[-1:] or after
                made.append(call("cuGraphAddKernelNode", graph, before, len(before), params))
                if like is not None:
                    call("cuGraphKernelNodeCopyAttributes", made[-1], like)
            return Placed(made, is_kernel=True)

    def update(self, executable: Any, places: Sequence[Placed]) -> None:
        """Give what ``add`` made the arguments that the table has now. Raises CudaFailure."""
        call, recorder = self._device.driver.call, self._device.recorder
        with recorder.graph(self._enqueue) as child:
            line = recorder.line(child)
            for place in places:
                if not place.is_kernel:
                    call("cuGraphExecChildGraphNodeSetParams", executable, place.nodes[0], child)
                elif len(line) != len(place.nodes):
                    raise CudaFailure(
                        "a library's call has other kernels now",
                        status=CHANGED,
                        why="its addresses changed",
                    )
                for node, kernel in zip(place.nodes, line, strict=False) if place.is_kernel else ():
                    call("cuGraphExecKernelNodeSetParams", executable, node, kernel.params)

    def launch(self, stream: Any) -> None:
        """Without a graph."""
        self._enqueue(int(stream))
