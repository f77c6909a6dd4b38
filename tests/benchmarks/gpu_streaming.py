#!/usr/bin/env python3
"""Weight streaming on a GPU: time of a run and device memory, by budget, beside what copying the
weights must take.

    python tests/benchmarks/gpu_streaming.py [--width 2048] [--layers 64] [--rows 16,4096,16384] [--rounds 5]

A network of products in float16, of ``width`` to four times that and back, with relu and residual:
2.1 GB of weights.
``run``: one of several that are queued at once, by events; ``alone``: one from its call to the end
of the wait for it.
``floor``: bytes that pass in a run over the rate of copies from pinned memory, or the run with all
weights at hand where that takes longer. Outputs are compared, bit by bit, with those of an engine
that does not stream. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import tactix
from tactix.run.memory import Memory
from tactix.run.runtime import Runtime
from tactix_cuda.device import CudaDevice, the_device
from tactix_cuda.memory import PoolAllocator

PARTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
"""Of the weights; 0 stands for the smallest budget."""
COPIED = 512 << 20
BURST, BUSY = 4, 0.03


def build(options: argparse.Namespace, device: CudaDevice) -> tactix.Plan:
    builder, rng = tactix.Builder(), np.random.default_rng(0)
    net, width = builder.create_network("products"), options.width
    x = net.add_input("x", "f16", ("n", width))
    shapes = (width, 4 * width), (4 * width, width)
    base = [
        (rng.standard_normal(s, dtype=np.float32) / np.float32(s[0] ** 0.5)).astype(np.float16)
        for s in shapes
    ]
    for k in range(options.layers // 2):
        up, down = (net.add_constant(np.roll(b, 31 * k + 1, axis=0)) for b in base)
        (y,) = net.add_layer("tactix.MatMul", [x, up])
        (y,) = net.add_layer("tactix.Relu", [y])
        (y,) = net.add_layer("tactix.MatMul", [y, down])
        (x,) = net.add_layer(
            "tactix.LayerNormalization", [net.add_layer("tactix.Add", [x, y])[0], _ones(net, width)]
        )
    net.mark_output(x, "y")
    rows = sorted(options.rows)
    profile = tactix.OptimizationProfile().set_shape(
        "x", (1, width), (rows[0], width), (rows[-1], width)
    )
    config = tactix.BuilderConfig(
        device=device.key,
        timing_cache=False,
        flags={tactix.BuilderFlag.WEIGHT_STREAMING},
        profiles=[profile],
        builder_optimization_level=options.level,
    )
    return builder.build_plan(net, config)


def _ones(net: Any, width: int) -> Any:
    return net.add_constant(np.ones(width, np.float16))


def rate(device: CudaDevice, beside: Callable[[], object] = lambda: None) -> float:
    """Bytes per second from pinned memory: the median of several copies, each while what is queued
    before it runs.
    """
    stream, (begin, end) = device.create_stream(), (device.create_event() for _ in range(2))
    source = Memory.allocate(device.pinned, COPIED)
    place = Memory.allocate(PoolAllocator(device), COPIED)
    found = []
    for _ in range(7):
        beside()
        begin.record(stream)
        device.driver.call(
            "cuMemcpyHtoDAsync",
            device.driver.api.CUdeviceptr(place.address),
            source.address,
            COPIED,
            stream.native,
        )
        end.record(stream)
        found.append(COPIED / end.elapsed(begin))
        device.driver.call("cuCtxSynchronize")
    return statistics.median(found[1:])


def free(device: CudaDevice) -> int:
    gc.collect()
    device.driver.call("cuCtxSynchronize")
    return int(device.driver.call("cuMemGetInfo")[0])


class Placed:
    """A context over arrays in device memory."""

    def __init__(self, engine: Any, x: Any) -> None:
        self.device, self.context = engine.device, engine.create_execution_context()
        self.stream, self.y = self.device.create_stream(), np.empty_like(x)
        self.held = [Memory.allocate(PoolAllocator(the_device()), x.nbytes) for _ in range(2)]
        self.device.copy_in(self.held[0].address, x)
        self.context.set_input_shape("x", x.shape)
        for name, memory in zip("xy", self.held, strict=True):
            self.context.set_tensor_address(name, memory.address)

    def burst(self) -> float:
        begin, end = (self.device.create_event() for _ in range(2))
        begin.record(self.stream)
        for _ in range(BURST):
            self.context.execute_async_v3(self.stream)
        end.record(self.stream)
        return float(end.elapsed(begin)) / BURST

    def keep_busy(self, run: float) -> None:
        """Queue runs, of so many seconds, for a time in which COPIED is over."""
        for _ in range(1 + int(BUSY / run)):
            self.context.execute_async_v3(self.stream)

    def alone(self) -> float:
        start = time.perf_counter()
        self.context.execute_async_v3(self.stream)
        self.stream.synchronize()
        return time.perf_counter() - start

    def result(self) -> Any:
        self.device.copy_out(self.y, self.held[1].address)
        return self.y.copy()


def times(engine: Any, x: Any, rounds: int) -> tuple[float, float, Any]:
    """Seconds of a run among others and of one alone, and the output."""
    placed = Placed(engine, x)
    placed.alone()
    found = [(placed.burst(), placed.alone()) for _ in range(rounds)]
    out = placed.result()
    placed.context.close()
    run, alone = (statistics.median(column) for column in zip(*found, strict=True))
    return run, alone, out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument(
        "--rows", type=lambda text: [int(n) for n in text.split(",")], default=[16, 4096, 16384]
    )
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = the_device()
    start = time.perf_counter()
    plan, rng = build(options, device), np.random.default_rng(1)
    print(f"built in {time.perf_counter() - start:.1f} s", flush=True)
    given = {
        n: rng.standard_normal((n, options.width), dtype=np.float32).astype(np.float16)
        for n in options.rows
    }
    copied = rate(device)
    whole: Any = Runtime().load(
        replace(plan, meta={k: v for k, v in plan.meta.items() if k != "weight_streaming"})
    )
    base = {n: times(whole, x, options.rounds) for n, x in given.items()}
    busy = {
        n: rate(device, partial(Placed(whole, x).keep_busy, base[n][0])) for n, x in given.items()
    }
    del whole
    beside = ", ".join(f"{n}: {r / 1e9:.1f}" for n, r in busy.items())
    print(f"copies from pinned memory {copied / 1e9:.1f} GB/s; beside runs, by rows, {beside}\n")
    columns = "rows | budget MB | device MB | window MB | streamed MB | run ms | alone ms | floor ms | run/floor | same"
    print(f"| {columns} |\n|{'---|' * 10}")
    engine: Any = Runtime().load(plan)
    for n, (run, alone, want) in base.items():
        print(
            f"| {n} | no streaming | | | 0 | {run * 1e3:.2f} | {alone * 1e3:.2f} | | | |",
            flush=True,
        )
        for part in PARTS:
            print(
                f"| {n} | {row(engine, part, given[n], (run, want), copied, options.rounds)} |",
                flush=True,
            )


def row(
    engine: Any, part: float, x: Any, base: tuple[float, Any], copied: float, rounds: int
) -> str:
    """The cells of one budget. ``base``: seconds and output without streaming."""
    budget = max(engine.minimum_weight_streaming_budget, int(part * engine.streamable_weights_size))
    gc.collect()  # contexts that have run
    engine.weight_streaming_budget_v2 = budget
    before = free(engine.device)
    engine.create_execution_context().close()
    taken = before - free(engine.device)
    run, alone, got = times(engine, x, rounds)
    streamed = engine.inspect()["memory"]["streamed"]
    floor = max(streamed / copied, base[0])
    cells = [
        f"{b / 1e6:.0f}"
        for b in (budget, taken, engine.weight_streaming_scratch_memory_size, streamed)
    ]
    cells += [f"{t * 1e3:.2f}" for t in (run, alone, floor)]
    return " | ".join([*cells, f"{run / floor:.2f}", str(np.array_equal(got, base[1])).lower()])


if __name__ == "__main__":
    main()
