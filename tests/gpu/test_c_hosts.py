"""Plans as C libraries over the driver that is here: to the bit what the engine in Python computes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import c_libraries
import numpy as np
import pytest
from c_libraries import CContext
from gpu_networks import MODELS, feed, outputs

import tactix
from tactix.config import BuilderFlag
from tactix.contracts.allocator import Allocator
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import RecyclingAllocator

pytestmark = [pytest.mark.gpu, pytest.mark.compiler]


class OnDevice:
    """Arrays in memory of the device, bound to a context of a library."""

    def __init__(self, device: CudaDevice, memory: Allocator, context: CContext) -> None:
        self.device, self.memory, self.context = device, memory, context

    def bind(self, kind: str, index: int, array: Any) -> int:
        """``kind``: input or output. Gives the address, where a copy of the array is."""
        address = self.memory.allocate(max(1, array.nbytes))
        self.device.copy_in(address, array)
        place = ctypes.c_void_p(address)
        self.context.call(f"bind_device_{kind}", index, place, array.nbytes)
        return address


@pytest.mark.parametrize(
    ("name", "flags"), [("lenet", set()), ("encoder", set()), ("encoder", {BuilderFlag.FP16})]
)
def test_a_library_computes_what_python_computes(
    name: str, flags: set[BuilderFlag], device: CudaDevice, tmp_path: Path
) -> None:
    """At several shapes, three runs each: launches, the graph, and the graph again; on memory of
    the host and of the device.
    """
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        device=device.key,
        flags=flags,
        tactic_sources={"cuda_c", "view"},
        timing_cache=False,
        builder_optimization_level=0,
    )
    plan = builder.build_plan(builder.import_model(MODELS / f"{name}.onnx"), config)
    engine = tactix.Runtime(on_untrusted="allow").load(plan)
    library = c_libraries.made(plan, tmp_path)
    host, there = library.create(), library.create()
    for batch, length in ((1, 16), (3, 7), (1, 16)):
        feeds = feed(engine, batch, length)
        wanted = outputs(engine, feeds)
        for _ in range(3):
            found = host.infer(plan, feeds)
            for io, y in zip(plan.outputs, found, strict=True):
                assert y.tobytes() == wanted[io.name].tobytes(), io.name
        _check_on_device(plan, feeds, wanted, OnDevice(device, RecyclingAllocator(device), there))


def _check_on_device(plan: Any, feeds: Any, wanted: Any, on: OnDevice) -> None:
    context, stream = on.context, on.device.create_stream()
    context.call("set_stream", ctypes.c_void_p(stream.handle))
    for i, io in enumerate(plan.inputs):
        x = np.ascontiguousarray(feeds[io.name], io.dtype.numpy)
        context.shape(i, x.shape)
        on.bind("input", i, x)
    places = [
        on.bind("output", i, np.zeros_like(wanted[io.name])) for i, io in enumerate(plan.outputs)
    ]
    for _ in range(3):
        context.call("enqueue")
    context.call("wait")
    for io, place in zip(plan.outputs, places, strict=True):
        y = np.empty_like(wanted[io.name])
        on.device.copy_out(y, place)
        assert y.tobytes() == wanted[io.name].tobytes(), io.name
    context.call("set_stream", None)
