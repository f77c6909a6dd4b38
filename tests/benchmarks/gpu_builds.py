#!/usr/bin/env python3
"""What building networks in float16 costs on a CUDA device, by phase; and what choosing predicted
against what is.

    python tests/benchmarks/gpu_builds.py [resnet50:1] [resnet50:128] ...

For each MODEL:BATCH of gpu_models.py: a cold build (neither timings nor compiled kernels are kept),
the same build from the timing cache, loading the plan file, the whole plans that were timed beside
each other, and the microseconds of one inference beside the sum of the chosen kernels' own times.
Needs torch, torchvision, onnx.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gpu_models
import torch
from gpu_peers import export, seconds

import tactix
from tactix.base.progress import SilentProgress
from tactix.plan import container
from tactix.run.runtime import Runtime


class Phases(SilentProgress):
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def phase(self, name: str, total: int) -> None:
        self._begun[name] = time.perf_counter()

    def finish(self, name: str) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - self._begun[name]

    def __str__(self) -> str:
        return ", ".join(f"{name} {s:.2f}" for name, s in self.seconds.items())


def build(path: Path, cache: Path) -> tactix.Plan:
    phases, start = Phases(), time.perf_counter()
    built = tactix.Builder()
    network = built.import_model(path)
    config = tactix.BuilderConfig(
        device="tactix.cuda@1", timing_cache=cache, progress_monitor=phases
    )
    plan = built.build_plan(network, config)
    hits = plan.ledger["timing_cache"]
    print(f"  build {time.perf_counter() - start:.1f} s ({phases}); timings {hits}", flush=True)
    return plan


def inference(engine: tactix.Engine, x: Any) -> float:
    """Seconds of one run."""
    context, outputs = engine.create_execution_context(), []
    context.set_input_shape("x", tuple(x.shape))
    context.set_tensor_address("x", x.data_ptr())
    for io in engine.outputs:
        y = torch.empty(
            context.get_tensor_shape(io.name),
            dtype=getattr(torch, str(io.dtype.numpy)),
            device="cuda",
        )
        context.set_tensor_address(io.name, y.data_ptr())
        outputs.append(y)
    with torch.cuda.stream(torch.cuda.Stream()):
        stream = torch.cuda.current_stream().cuda_stream
        context.execute_async_v3(stream)
        return statistics.median(
            seconds(lambda: context.execute_async_v3(stream)) for _ in range(5)
        )


def measure(name: str, batch: int, folder: Path) -> None:
    model, x = gpu_models.make(name, batch)
    x = x.half() if x.is_floating_point() else x
    export(model.half(), x, folder / "model.onnx")
    print(f"{name} b{batch}", flush=True)
    plan = build(folder / "model.onnx", folder / "timings.json")
    rows = [c for n in plan.ledger["nodes"].values() for c in n["candidates"]]
    print(f"  candidates {dict(Counter(c['status'] for c in rows))}, steps {len(plan.steps)}")
    for reason in sorted({c["reason"][:150] for c in rows if "reason" in c})[:5]:
        print(f"  rejected: {reason}")
    build(folder / "model.onnx", folder / "timings.json")
    container.save(plan, folder / "plan")
    start = time.perf_counter()
    engine = Runtime().deserialize(folder / "plan")
    loaded, took = time.perf_counter() - start, inference(engine, x)
    for f in plan.ledger.get("whole_plans", []):
        times = (
            f"{f['predicted_seconds'] * 1e6:.1f} us predicted, {(f['seconds'] or 0) * 1e6:.1f} us"
        )
        print(
            f"  launches charged {f['charge']:g} times: {times}{', taken' if f['chosen'] else ''}"
        )
    alone, launches = (
        sum(s.info["seconds"] for s in plan.steps),
        sum(len(s.artifact.launches) for s in plan.steps),
    )
    gap = (took - alone) / launches
    print(
        f"  load {loaded:.2f} s; one inference {took * 1e6:.1f} us; {launches} launches, alone {alone * 1e6:.1f} us "
        f"together: {gap * 1e6:.2f} us more for each",
        flush=True,
    )


def main() -> None:
    for job in sys.argv[1:] or ["resnet50:1", "resnet50:8", "resnet50:128"]:
        name, batch = job.split(":")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TACTIX_CACHE_DIR"] = folder
            measure(name, int(batch), Path(folder))


if __name__ == "__main__":
    main()
