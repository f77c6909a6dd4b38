"""Calls of libraries become kernels of the graph, memsets too; what is no line of these stays a
graph of its own.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fake_driver import FakeKernel, Work, fake_device

from tactix_cuda.capture import UNCOLLECTED, CapturedNode
from tactix_cuda.driver import CudaFailure
from tactix_cuda.graph import CudaGraph
from tactix_cuda.launcher import Start


def fill(grid: Any, to: int, size: int, value: int, width: int) -> None:
    for i in range(min(size, grid[0] * 256)):
        ctypes.c_uint8.from_address(to + i).value = value >> i % width * 8 & 255


class Library:
    """Counts what is in some memory, which a call sets first; ``kinds``: of the nodes that it
    makes.
    """

    def __init__(self, api: Any, kinds: Sequence[str]) -> None:
        self.api, self.kinds, self.seen = api, kinds, []
        self.memory = (ctypes.c_uint32 * 300)()

    def bind(self, arguments: Sequence[int]) -> Library:
        return self

    def enqueue(self, arguments: Sequence[int], stream: int) -> None:
        memory = ctypes.addressof(self.memory)
        for kind in self.kinds:
            memset = SimpleNamespace(
                dst=memory, value=0x01020304, elementSize=4, width=299, height=1
            )
            run = (
                (lambda x=arguments[0]: self.seen.append((x, *self.memory[298:])))
                if kind == "KERNEL"
                else lambda: None
            )
            self.api.enqueue(stream, Work(kind, run, kind, memset))


def captured(kinds: Sequence[str]) -> tuple[Any, Any, CapturedNode, CudaGraph, list[int]]:
    device, api = fake_device({"tx_fill": FakeKernel(4, fill)})
    library, slots = Library(api, kinds), [7]
    node = CapturedNode(Start("a step", library, 0, 1), library, slots, device)
    return api, library, node, CudaGraph([node], [[]], device, copies=2), slots


@pytest.mark.parametrize(
    ("kinds", "child"),
    [(["KERNEL"], False), (["MEMSET", "KERNEL"], False), (["HOST", "KERNEL"], True)],
)
def test_a_new_recording_replaces_what_was_there(kinds: list[str], child: bool) -> None:
    api, library, node, graph, slots = captured(kinds)
    graph.launch(0)
    slots[0] = 8
    graph.update(node)
    graph.launch(0)
    set_by = 0x01020304 if "MEMSET" in kinds else 0
    assert library.seen == [(7, set_by, 0)] * 2 + [(8, set_by, 0)] * 2
    assert ("cuGraphAddChildGraphNode" in api.log) == child
    assert ("cuGraphExecChildGraphNodeSetParams" in api.log) == child


def test_a_memset_is_the_kernel_that_does_it() -> None:
    api, *_, graph, _ = captured(["MEMSET", "KERNEL"])
    graph.launch(0)
    assert [r.symbol for r in api.ran] == ["tx_fill", "KERNEL"] * 2
    assert api.ran[0].grid == (-(-299 * 4 // 256), 1, 1)
    assert "cuGraphKernelNodeCopyAttributes" in api.log


def test_other_kernels_than_before_are_an_error() -> None:
    _, library, node, graph, _ = captured(["KERNEL"])
    library.kinds = ["MEMSET", "KERNEL"]
    with pytest.raises(CudaFailure, match="other kernels"):
        graph.update(node)


def test_the_device_is_waited_for_between_recordings() -> None:
    device, api = fake_device()
    began, done = threading.Event(), threading.Event()

    def wait() -> None:
        began.wait()
        device.synchronize()
        done.set()

    other = threading.Thread(target=wait)
    other.start()

    def work(stream: int) -> None:
        began.set()
        assert not done.wait(0.1)

    with device.recorder.graph(work):
        other.join()
    assert done.is_set()
    assert api.log.index("cuStreamEndCapture") < api.log.index("cuCtxSynchronize")


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_in_a_recording(enabled: bool) -> None:
    """What is finalised may wait for the device, and the driver refuses that."""
    device, _ = fake_device({})
    before = gc.get_threshold()
    finalised = []

    class Holds:
        pass

    def wait() -> None:
        device.synchronize()
        finalised.append(1)

    def work(stream: int) -> None:
        assert stream
        for _ in range(10):
            held = Holds()
            held.itself = held  # type: ignore[attr-defined]
            weakref.finalize(held, wait).atexit = False
        del held
        [[] for _ in range(1000)]

    try:
        gc.enable() if enabled else gc.disable()
        gc.set_threshold(100)
        with device.recorder.graph(work):
            assert gc.isenabled() == enabled
    finally:
        gc.set_threshold(*before)
        gc.enable()
    gc.collect()
    assert len(finalised) == 10


def test_recordings_that_overlap_keep_the_collector_off() -> None:
    """As those of two devices do."""
    assert gc.isenabled()
    with UNCOLLECTED:
        other = threading.Thread(target=lambda: UNCOLLECTED.__enter__())
        other.start()
        other.join()
    assert not gc.isenabled()  # the second one is under way
    UNCOLLECTED.__exit__()
    assert gc.isenabled()
