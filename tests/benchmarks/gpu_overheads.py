#!/usr/bin/env python3
"""What stands around the kernels on a GPU: one call from Python, loading a plan, and what engines
leave behind.

    python tests/benchmarks/gpu_overheads.py

Calls are medians; those that only queue work are timed in bursts, which a wait ends outside the
time. Prints Markdown.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice, the_device

MODEL = Path(__file__).parents[1] / "models" / "mlp.onnx"
BURST, ROUNDS = 200, 15
LAYERS, WIDTH = 48, 1024
"""Products of the network that is loaded: 192 MiB of weights."""
CYCLES = 50

Row = tuple[str, float, str]


def burst(call: Callable[[], object], device: CudaDevice) -> float:
    """Median seconds of a call that queues work."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(BURST):
            call()
        found.append((time.perf_counter() - start) / BURST)
        device.driver.call("cuCtxSynchronize")
    return statistics.median(found[1:])


def build(network: Any, builder: tactix.Builder, device: CudaDevice) -> Any:
    config = tactix.BuilderConfig(
        device=device.key,
        timing_cache=False,
        builder_optimization_level=0,
        tactic_sources={"cuda_c"},
    )
    return builder.build_plan(network, config)


def calls(device: CudaDevice) -> Iterator[Row]:
    """Of a small network, batch 1."""
    builder = tactix.Builder()
    engine = Runtime().load(build(builder.import_model(MODEL), builder, device))
    (io,) = engine.inputs
    x = np.zeros([d if isinstance(d, int) else 1 for d in io.shape], io.dtype.numpy)
    context = engine.create_execution_context()
    yield "engine(numpy array), with the wait", burst(lambda: engine(x), device) * 1e6, "us"
    stream, place = device.create_stream(), {}
    context.set_input_shape(io.name, x.shape)
    for name in (io.name, *(o.name for o in engine.outputs)):
        place[name] = builder.session.allocators["tactix.cuda.pool@1"].allocate(1 << 20)
        context.set_tensor_address(name, place[name])
    yield (
        "execute_async_v3(stream)",
        burst(lambda: context.execute_async_v3(stream), device) * 1e6,
        "us",
    )
    handle = stream.handle
    yield (
        "execute_async_v3(handle)",
        burst(lambda: context.execute_async_v3(handle), device) * 1e6,
        "us",
    )
    try:
        import torch
    except ImportError:
        return
    t = torch.zeros(x.shape, device="cuda")
    yield "engine(torch tensor)", burst(lambda: engine(t), device) * 1e6, "us"
    take = torch.from_dlpack
    yield (
        "torch.from_dlpack(engine(torch tensor))",
        burst(lambda: take(engine(t)), device) * 1e6,
        "us",
    )


def loading(device: CudaDevice, folder: Path) -> Iterator[Row]:
    """Of a network with large weights, in a process that has a context on the device already."""
    builder, rng = tactix.Builder(), np.random.default_rng(0)
    net = builder.create_network("products")
    x = net.add_input("x", "f32", (1, WIDTH))
    for _ in range(LAYERS):
        weights = net.add_constant(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32))
        (x,) = net.add_layer("tactix.MatMul", [x, weights])
    net.mark_output(x, "y")
    tactix.plan.container.save(build(net, builder, device), folder / "plan")
    given, load, first = np.zeros((1, WIDTH), np.float32), [], []
    for _ in range(5):
        start = time.perf_counter()
        engine = Runtime().deserialize(folder / "plan")
        middle = time.perf_counter()
        engine(given)
        load.append(middle - start)
        first.append(time.perf_counter() - middle)
    yield (
        f"load a plan of {LAYERS * WIDTH * WIDTH * 4 >> 20} MiB",
        statistics.median(load) * 1e3,
        "ms",
    )
    yield "its first answer", statistics.median(first) * 1e3, "ms"


def free(device: CudaDevice) -> int:
    gc.collect()
    device.driver.call("cuCtxSynchronize")
    return int(device.driver.call("cuMemGetInfo")[0])


def leaving(device: CudaDevice, folder: Path) -> Row:
    """Device memory that is gone after engines were loaded, run and dropped; the first ones warm
    the pool up.
    """
    given, before = np.zeros((1, WIDTH), np.float32), 0
    for i in range(CYCLES + 2):
        if i == 2:
            before = free(device)
        Runtime().deserialize(folder / "plan")(given)
    return f"device memory gone after {CYCLES} engines", (before - free(device)) / 2**20, "MiB"


def main() -> None:
    device = the_device()
    if why := device.available():
        raise SystemExit(why)
    device.activate()
    print("| what | median |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rows = (*calls(device), *loading(device, Path(folder)), leaving(device, Path(folder)))
    for what, value, unit in rows:
        print(f"| {what} | {value:.2f} {unit} |")


if __name__ == "__main__":
    main()
