#!/usr/bin/env python3
"""Convolution networks in float16 on a CUDA device: tactix beside torch with a CUDA graph, one process, in turns.

    python tests/benchmarks/gpu_peers.py [--models resnet50,mobilenet_v2] [--batches 1,8,128] [--level 3] [--rounds 5]

Models are torchvision's with random weights, exported here. Each figure is the median over rounds of the time of one
inference, by CUDA events around 20 of them; outputs are compared with torch in float32. Needs torch, torchvision, onnx.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torchvision

import tactix

REPEATS = 20


def export(model: Any, x: Any, path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"])


def torch_graph(model: Any, x: Any) -> Any:
    """A replayed graph of the model, channels last."""
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)
    return graph.replay


def tactix_call(path: Path, x: Any, level: int) -> tuple[Any, Any, float, int]:
    """A function that queues one inference, its output, seconds of building, and how many steps there are."""
    start = time.perf_counter()
    config = tactix.BuilderConfig(
        device="tactix.cuda@1", builder_optimization_level=level, timing_cache=False,
    )  # fmt: skip
    builder = tactix.Builder()
    engine = builder.build(builder.import_model(path), config)
    took = time.perf_counter() - start
    context = engine.create_execution_context()
    y = torch.empty((len(x), 1000), dtype=x.dtype, device="cuda")
    context.set_input_shape("x", tuple(x.shape))
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address(engine.outputs[0].name, y.data_ptr())
    stream = torch.cuda.current_stream().cuda_stream
    return lambda: context.execute_async_v3(stream), y, took, len(engine.plan.steps)


def seconds(call: Any) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(REPEATS):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / REPEATS


def measure(name: str, batch: int, level: int, rounds: int, folder: Path) -> str:
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).train().cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    with torch.no_grad():
        for _ in range(20):  # so that batch norms fit what they see, and outputs keep their scale
            model(torch.randn(16, 3, 224, 224, device="cuda"))
        want = model.eval()(x)
    model, x = model.half(), x.half()
    export(model, x, folder / "model.onnx")
    peer = torch_graph(model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))
    with torch.cuda.stream(torch.cuda.Stream()):
        own, y, took, steps = tactix_call(folder / "model.onnx", x, level)
        own()
        torch.cuda.synchronize()
        with torch.no_grad():
            errors = [float((z.float() - want).abs().max() / want.abs().max()) for z in (y, model(x))]
        samples = [(seconds(own), seconds(peer)) for _ in range(rounds)]
    mine, theirs = (statistics.median(s) * 1e6 for s in zip(*samples, strict=True))
    row = f"| {name} b{batch} | {mine:.0f} | {theirs:.0f} | {theirs / mine:.2f} | {errors[0]:.1e} | {errors[1]:.1e}"
    row += f" | {steps} | {took:.1f} |"
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v2")
    parser.add_argument("--batches", default="1,8,128")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tactix {tactix.__version__}, float16")
    columns = ["model", "tactix us", "torch + CUDA graph us", "speed-up", "error", "torch's error", "steps", "build s"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            for batch in map(int, options.batches.split(",")):
                measure(name, batch, options.level, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
