#!/usr/bin/env python3
"""One plan on one GPU and on all of the host, in turns: how many inferences a second.

    python tests/benchmarks/gpu_replicas.py [--models resnet50:1/128,bert_base:1/128] [--level 2] [--contexts 3]
        [--rounds 2] [--seconds 1] [--limit 160] [--plans FOLDER]

Networks are those of gpu_models.py in float16, exported and built here, a process for each GPU, or
read from FOLDER, where built ones are kept. Each row is one way to run a plan of a fixed batch:

- host: ``engine.run`` from arrays of the host into arrays of the host, by ``--contexts`` threads a
  GPU;
- requests: ``engine.run_async`` of one event loop, that many requests at once for each GPU;
- resident: ``execute_async_v3`` on addresses, one thread a GPU, which queues 20 and waits.

"burst" is the best of some rounds of a fifth of a second, "sustained" the median of rounds of
``--seconds``; one GPU and all take turns. Results are compared with those of the first GPU, to the
bit. ``--limit``: seconds after which no other network is begun; processes that build have half of
it. Needs torch, torchvision, onnx. Exits with 1 where all GPUs together do less, sustained, than
0.95 times their number, or a network was left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.run.replicated_engine import ReplicatedEngine
from tactix_cuda.device import CudaDevice, the_device
from tactix_cuda.memory import PoolAllocator

QUEUED = 20
"""Runs that are queued before a wait, where arrays are resident."""
BURST = 0.2
"""Seconds."""
START = time.perf_counter()

Load = Callable[[float], float]
"""Inferences a second, over so many seconds."""


@dataclass(frozen=True)
class Job:
    """A network at a batch."""

    name: str
    batch: int

    @property
    def label(self) -> str:
        return f"{self.name}:{self.batch}"

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.b{self.batch}.plan"


def build(job: Job, level: int, folder: Path) -> None:
    """Export a network and write its plan."""
    import gpu_models
    import torch
    from gpu_peers import export, halved

    start = time.perf_counter()
    model, x = halved(*gpu_models.make(job.name, job.batch), torch.float16)
    onnx_file = folder / f"{job.name}.b{job.batch}.onnx"
    export(job.name, model, x, onnx_file)
    del model
    torch.cuda.empty_cache()
    exported = time.perf_counter()
    engine = tactix.build(
        onnx_file, device="tactix.cuda@1", level=level, timing_cache=False, precision="fp16"
    )
    engine.save(job.path(folder))
    engine.close()
    took = time.perf_counter() - exported
    print(f"{job.label}: exported in {exported - start:.1f} s, built in {took:.1f} s", flush=True)


def build_all(jobs: Sequence[Job], options: argparse.Namespace, folder: Path, gpus: int) -> None:
    """Plans that are not there, by a process for each GPU."""
    todo = [job for job in jobs if not job.path(folder).exists()]
    shown = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    running = []
    for i in range(min(gpus, len(todo))):
        models = ",".join(job.label for job in todo[i::gpus])
        command = [sys.executable, __file__, "--build", "--models", models]
        command += ["--level", str(options.level), "--plans", str(folder)]
        env = os.environ | {"CUDA_VISIBLE_DEVICES": shown[i] if len(shown) == gpus else str(i)}
        running.append(subprocess.Popen(command, env=env))
    for process in running:
        left = START + options.limit / 2 - time.perf_counter()
        try:
            process.wait(max(1.0, left))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def feeds_of(engine: Any, seed: int) -> dict[str, Any]:
    rng, out = np.random.default_rng(seed), {}
    for io in engine.inputs:
        made = (
            rng.standard_normal(io.shape) if io.dtype.is_float else rng.integers(0, 999, io.shape)
        )
        out[io.name] = made.astype(io.dtype.numpy)
    return out


def in_threads(works: Sequence[Callable[[], int]], seconds: float) -> float:
    """Inferences a second of functions that run some each time they are called, each in a thread."""
    counts, gate, over = [0] * len(works), threading.Barrier(len(works) + 1), threading.Event()

    def serve(i: int) -> None:
        gate.wait()
        while not over.is_set():
            counts[i] += works[i]()

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def host(engine: ReplicatedEngine, contexts: int) -> Load:
    """``engine.run`` by threads, each with arrays of its own."""

    def work(i: int) -> Callable[[], int]:
        feeds = feeds_of(engine, i)
        out = {io.name: np.empty(io.shape, io.dtype.numpy) for io in engine.outputs}

        def once() -> int:
            engine.run(feeds, out)
            return 1

        return once

    works = [work(i) for i in range(contexts * len(engine.devices))]
    return lambda seconds: in_threads(works, seconds)


def requests(engine: ReplicatedEngine, contexts: int) -> Load:
    """``engine.run_async`` of one loop; one more at once than there are contexts, so that none is
    idle.
    """
    many = contexts * len(engine.devices) + 1
    given = [feeds_of(engine, i) for i in range(many)]

    async def ask(seconds: float) -> float:
        count, start = 0, time.perf_counter()

        async def client(feeds: dict[str, Any]) -> None:
            nonlocal count
            while time.perf_counter() - start < seconds:
                await engine.run_async(feeds, wait=True)
                count += 1

        await asyncio.gather(*map(client, given))
        return count / (time.perf_counter() - start)

    return lambda seconds: asyncio.run(ask(seconds))


def resident(engine: ReplicatedEngine, contexts: int) -> Load:
    """Addresses on the devices, one context and stream each."""

    def work(device: CudaDevice) -> Callable[[], int]:
        context = engine.create_execution_context(device.label)
        memory, stream = PoolAllocator(device), device.create_stream()
        feeds = feeds_of(engine, 0)
        for io in (*engine.inputs, *engine.outputs):
            size = int(np.prod(io.shape)) * io.dtype.itemsize
            context.set_tensor_address(io.name, address := memory.allocate(size))
            if io.name in feeds:
                device.copy_in(address, feeds[io.name])

        def some() -> int:
            for _ in range(QUEUED):
                context.execute_async_v3(stream)
            stream.synchronize()
            return QUEUED

        return some

    works = [work(d) for d in engine.devices if isinstance(d, CudaDevice)]
    return lambda seconds: in_threads(works, seconds)


WAYS = {"host": host, "requests": requests, "resident": resident}


def same_results(one: Any, every: ReplicatedEngine) -> None:
    """Raises AssertionError where a replica departs by a bit."""
    feeds = feeds_of(one, 7)
    want = one.run(feeds)
    for engine in every.engines:
        for name, y in engine.run(feeds).items():
            np.testing.assert_array_equal(np.asarray(y), np.asarray(want[name]), err_msg=name)


def measured(job: Job, path: Path, options: argparse.Namespace) -> bool:
    """Print the rows of a network; whether all gain as they should."""
    enough = True
    with (
        tactix.load(path, devices=["cuda:0"], on_untrusted="allow") as one,
        tactix.load(path, devices="all", on_untrusted="allow") as every,
    ):
        for engine in (one, every):
            engine.set_pool(contexts=options.contexts, max_queue=1024)
            engine.warm_up()
        same_results(one, every)
        for way, make in WAYS.items():
            loads = [make(engine, options.contexts) for engine in (one, every)]
            for load in loads:
                load(BURST)  # contexts are made, and clocks rise
            found = {
                BURST: [[load(BURST) for load in loads] for _ in range(options.rounds + 2)],
                options.seconds: [
                    [load(options.seconds) for load in loads] for _ in range(options.rounds)
                ],
            }
            best, steady = (list(zip(*rounds, strict=True)) for rounds in found.values())
            figures = [max(x) * job.batch for x in best]
            figures += [statistics.median(x) * job.batch for x in steady]
            ratios = [figures[1] / figures[0], figures[3] / figures[2]]
            enough &= ratios[1] >= 0.95 * len(every.devices)
            cells = [f"{job.name} b{job.batch}", way, *(f"{x:.0f}" for x in figures[:2])]
            cells += [f"{ratios[0]:.2f}", *(f"{x:.0f}" for x in figures[2:]), f"{ratios[1]:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return enough


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="resnet50:1/128,bert_base:1/128")
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--contexts", type=int, default=3, help="runs at once, of each GPU")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=160.0)
    parser.add_argument("--plans", type=Path, help="a folder of plans, which are kept there")
    parser.add_argument("--build", action="store_true", help="build alone, on the first GPU")
    options = parser.parse_args()
    jobs = [
        Job(name, int(batch))
        for part in options.models.split(",")
        for name, _, batches in (part.partition(":"),)
        for batch in batches.split("/")
    ]
    if options.build:
        for job in jobs:
            build(job, options.level, options.plans)
        return 0
    device = the_device()
    if why := device.available():
        raise SystemExit(why)
    devices = device.siblings()
    names = ", ".join(f"{d.label} {d.properties().name}" for d in devices)
    driver = device.driver.call("cuDriverGetVersion")
    versions = f"Python {sys.version.split()[0]}, tactix {tactix.__version__}"
    print(f"{names}; driver for CUDA {driver // 1000}.{driver % 1000 // 10}, {versions}")
    with tempfile.TemporaryDirectory() as made:
        folder = options.plans or Path(made)
        folder.mkdir(exist_ok=True)
        build_all(jobs, options, folder, len(devices))
        whole = table(jobs, options, folder, len(devices))
    print(f"\n{time.perf_counter() - START:.0f} s in all")
    return 0 if whole else 1


def table(jobs: Sequence[Job], options: argparse.Namespace, folder: Path, gpus: int) -> bool:
    """Print it; whether it is whole, and all gain as they should."""
    print(f"\n{options.contexts} contexts a GPU; inferences a second (batch times runs)\n")
    columns = ["network", "way", "burst, 1 GPU", f"{gpus} GPUs", "ratio"]
    columns += ["sustained, 1 GPU", f"{gpus} GPUs", "ratio"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    whole = True
    for job in jobs:
        path, late = job.path(folder), time.perf_counter() - START > options.limit
        if late or not path.exists():
            print(f"{job.label}: {'no time is left' if late else 'it was not built'}")
            whole = False
            continue
        whole &= measured(job, path, options)
    return whole


if __name__ == "__main__":
    raise SystemExit(main())
