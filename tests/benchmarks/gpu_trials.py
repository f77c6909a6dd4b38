"""What it costs a build for a GPU that its candidates are tried in a process of their own, and
whether times taken there are those of the build's process.

    python tests/benchmarks/gpu_trials.py MODEL... [--builds 3] [--precision fp16] [--cold]

Each model is built without timings, in turns with candidates tried there and here, after one build
that is not counted, so that kernels are compiled; ``--cold``: with an empty cache of kernels every
time. Printed for each model: seconds of builds there and here, and the most memory of the GPU that
was in use; how often the process was asked and what that took; and the ratios of candidates' times
there to here, beside those of two builds here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from unittest import mock

import tactix
from tactix.config import BuilderFlag
from tactix_cuda.build_bench import CudaBuildBench
from tactix_cuda.device import the_device
from tactix_isolate.device_process import DeviceProcess

LOOK = 0.05
"""Seconds between two looks at the memory of the device."""


@dataclass
class Asked:
    """Of the process of trials: seconds of each request, by its name."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def counting(self) -> Iterator[None]:
        ask = DeviceProcess.ask

        def timed(process: DeviceProcess, most: float, name: str, *rest: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return ask(process, most, name, *rest, **more)
            finally:
                self.seconds.setdefault(name, []).append(time.perf_counter() - start)

        with mock.patch.object(DeviceProcess, "ask", timed):
            yield


@dataclass
class Built:
    """``times``: of candidates that were measured, by node, tactic and variant. ``peak``: bytes."""

    seconds: float
    peak: int
    times: Mapping[tuple[str, str, str], float]


@contextmanager
def peak_of_memory(found: list[int]) -> Iterator[None]:
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            found.append(the_device().memory_used())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def build(model: str, options: argparse.Namespace, here: bool, asked: Asked) -> Built:
    flags = {BuilderFlag(options.precision)} if options.precision else set()
    config = tactix.BuilderConfig(device="cuda", timing_cache=False, flags=flags)
    used: list[int] = [0]
    stays = mock.patch.object(CudaBuildBench, "begin", return_value=None)
    with tempfile.TemporaryDirectory() as folder, asked.counting(), peak_of_memory(used):
        cold = {"TACTIX_CACHE_DIR": folder} if options.cold else {}
        with mock.patch.dict(os.environ, cold):
            builder = tactix.Builder()
            network = builder.import_model(model)
            start = time.perf_counter()
            if here:
                with stays:
                    plan = builder.build_plan(network, config)
            else:
                plan = builder.build_plan(network, config)
            seconds = time.perf_counter() - start
    rows = plan.ledger["nodes"].items()
    times = {
        (node, c["tactic"], str(c["variant"])): float(c["seconds"])
        for node, row in rows
        for c in row["candidates"]
        if c["status"] == "measured" and c["seconds"]
    }
    return Built(seconds, max(used), times)


def ratios(a: Built, b: Built) -> str:
    found = sorted(a.times[k] / b.times[k] for k in a.times.keys() & b.times.keys())
    if not found:
        return "no candidate in common"
    low, high = found[len(found) // 20], found[-1 - len(found) // 20]
    return f"median {median(found):.3f}, 90 % from {low:.3f} to {high:.3f}, of {len(found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--precision", default="", help="fp16, bf16, tf32, int8")
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    for model in options.models:
        asked, ignored = Asked(), Asked()
        build(model, options, True, ignored)
        pairs = [
            (build(model, options, False, asked), build(model, options, True, ignored))
            for _ in range(options.builds)
        ]
        again = build(model, options, True, ignored)
        there, here = zip(*pairs, strict=True)
        print(model)
        for name, found in (("there", there), ("here", (*here, again))):
            listed = " ".join(f"{b.seconds:.1f}" for b in found)
            print(f"  {name}: median {median(b.seconds for b in found):.1f} s ({listed})", end="")
            print(f", at most {max(b.peak for b in found) >> 20} MiB in use")
        for name, seconds in asked.seconds.items():
            mean = sum(seconds) / len(seconds)
            each = f"{len(seconds) // options.builds} a build, {mean * 1e3:.2f} ms on average"
            print(f"  {name}: {each}, longest {max(seconds):.2f} s")
        print(f"  times there to here: {ratios(there[-1], here[-1])}")
        print(f"  times here to here: {ratios(again, here[-1])}", flush=True)


if __name__ == "__main__":
    main()
