#!/usr/bin/env python3
"""Networks on a CUDA device: tactix beside torch with a CUDA graph and torch.compile, one process, in turns.

    python tests/benchmarks/gpu_peers.py [--models resnet50,bert_base] [--batches 1,8,128] [--level 3] [--rounds 5]
        [--compile] [--sources cuda_c,cublaslt] [--precision fp32,tf32,fp16,bf16]

Networks are in float16; with ``--precision`` in float32, built with that precision allowed, beside torch in float32
(its products in TF32 where that is asked for). They are those of gpu_models.py, exported here. Each figure is the
median over rounds of the time of one inference, by CUDA events around 20 of them; outputs are compared with torch in
float32. ``--compile`` adds torch.compile (max-autotune, inside a CUDA graph), which takes minutes for some. Needs
torch, torchvision, onnx.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_models
import torch

import tactix
from tactix.api import configure

REPEATS = 20
Call = Callable[[], Any]


def export(model: Any, x: Any, path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"])


def torch_graph(model: Any, x: Any) -> Call:
    """A replayed graph of the model."""
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)
    return graph.replay


@dataclass
class Own:
    """tactix's side: a function that queues one inference, its outputs, how long building took, the engine."""

    call: Call
    outputs: list[Any]
    seconds: float
    engine: Any


def tactix_call(path: Path, x: Any, options: argparse.Namespace, precision: str) -> Own:
    start = time.perf_counter()
    config = configure(
        device="tactix.cuda@1", level=options.level, timing_cache=False, tactic_sources=options.sources,
        precision=precision or "fp32",
    )  # fmt: skip
    builder = tactix.Builder()
    engine = builder.build(builder.import_model(path), config)
    took = time.perf_counter() - start
    context = engine.create_execution_context()
    context.set_input_shape("x", tuple(x.shape))
    context.set_tensor_address("x", x.data_ptr())
    outputs = []
    for io_ in engine.outputs:
        y = torch.empty(context.get_tensor_shape(io_.name), dtype=getattr(torch, str(io_.dtype.numpy)), device="cuda")
        context.set_tensor_address(io_.name, y.data_ptr())
        outputs.append(y)
    stream = torch.cuda.current_stream().cuda_stream
    return Own(lambda: context.execute_async_v3(stream), outputs, took, engine)


def seconds(call: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPEATS):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / REPEATS


def host_seconds(call: Call) -> float:
    """The caller's own time for queueing one inference: the median of many, each on an idle device."""
    samples = []
    for _ in range(50):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def listed(y: Any) -> list[Any]:
    return list(y) if isinstance(y, tuple) else [y]


def departure(outputs: list[Any], want: list[Any]) -> float:
    """Largest difference, relative to each output's largest magnitude."""
    return max(float((y.float() - w).abs().max() / w.abs().max()) for y, w in zip(outputs, want, strict=True))


def peers_of(model: Any, x: Any, compiled: bool) -> dict[str, Call]:
    """torch's own ways to run it; images channels last."""
    if x.ndim == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    peers = {"torch + CUDA graph": torch_graph(model, x)}
    if compiled:
        fast = torch.compile(model, mode="max-autotune-no-cudagraphs")
        peers["torch.compile"] = torch_graph(fast, x)
    return peers


def measure(name: str, batch: int, precision: str, options: argparse.Namespace, folder: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, x = gpu_models.make(name, batch)
    with torch.no_grad():
        want = listed(model(x))
    if not precision:
        model, x = model.half(), x.half() if x.is_floating_point() else x
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    export(model, x, folder / "model.onnx")
    with torch.no_grad():
        torch_error = departure(listed(model(x)), want)
    with torch.cuda.stream(torch.cuda.Stream()):
        own = tactix_call(folder / "model.onnx", x, options, precision)
        peers = peers_of(model, x, options.compile)
        own.call()
        torch.cuda.synchronize()
        error = departure(own.outputs, want)
        calls = [own.call, *peers.values()]
        samples = zip(*([seconds(c) for c in calls] for _ in range(options.rounds)), strict=True)
        mine, *theirs = (statistics.median(s) * 1e6 for s in samples)
        host = host_seconds(own.call) * 1e6
    times = [f"{t:.0f}" for t in (mine, *theirs)]
    rest = [f"{min(theirs) / mine:.2f}", f"{error:.1e}", f"{torch_error:.1e}", str(len(own.engine.plan.steps))]
    cells = [f"{name} b{batch} {precision}".strip(), *times, *rest, f"{host:.1f}", f"{own.seconds:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", default="resnet50,mobilenet_v2", help=", ".join((*gpu_models.IMAGES, *gpu_models.TEXTS))
    )
    parser.add_argument("--batches", default="1,8,128")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--sources", type=lambda s: set(s.split(",")), help="tactic sources, comma-separated; all")
    parser.add_argument("--precision", default="", help="of float32 networks: fp32, tf32, fp16, bf16")
    options = parser.parse_args()
    dtype = "float32 networks" if options.precision else "float16"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tactix {tactix.__version__}, {dtype}")
    compiled = ["torch.compile us"] if options.compile else []
    columns = ["model", "tactix us", "torch + CUDA graph us", *compiled, "speed-up over the faster", "error",
               "torch's error", "steps", "host us", "build s"]  # fmt: skip
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            for batch in map(int, options.batches.split(",")):
                for precision in options.precision.split(","):
                    measure(name, batch, precision, options, Path(folder))


if __name__ == "__main__":
    main()
