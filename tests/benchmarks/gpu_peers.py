#!/usr/bin/env python3
"""Networks on a CUDA device: tactix beside torch with a CUDA graph, torch.compile and XLA, in
turns.

    python tests/benchmarks/gpu_peers.py [--models resnet50,bert_base:1/8] [--batches 1,8,128] [--level 3] [--rounds 5]
        [--compile MODELS] [--mode default] [--xla MODELS] [--limit 240] [--sources cuda_c,cublaslt]
        [--precision fp32,tf32,fp16,bf16,int8,fp8] [--plans FOLDER]

Networks are in float16; with ``--precision`` they are exported in float32 and built with that
precision allowed, beside torch in it (its products in TF32 where that is asked for). Those of
``int8`` and ``fp8`` are written by ``tactix quantize`` from two random inputs and built with
float16 allowed, beside torch in float16. Networks are those of gpu_models.py and gpu_unseen_models.py, exported
here; those of XLA are of gpu_jax.py. Each figure is the median over rounds of the time of one
inference, by CUDA events around 20 of them (XLA's by the clock); "sustained" is that of one second
after another; outputs are compared with float32. ``--compile`` and ``--xla`` name the models that
torch.compile (max-autotune, or without a search with ``--mode default``; inside a CUDA graph) and
XLA run too, each in a process of its own, which has ``--limit`` seconds to build its network before
anything is timed. Needs torch, torchvision, onnx; XLA needs jax.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_models
import onnx
import torch
from gpu_times import Call, departure, listed, seconds, sustained_seconds, torch_graph
from peer_process import PeerFailed, Served

import tactix
from tactix.api import configure

RIVALS = Path(__file__).with_name("gpu_rivals.py")
QUIET = {"TORCHINDUCTOR_COMPILE_THREADS": "4"}
ANSWER = 30.0
"""Seconds for one round of a peer's."""
Key = tuple[str, int]
"""A model and its batch."""


def export(name: str, model: Any, x: Any, path: Path, any_batch: bool = False) -> None:
    if name not in (*gpu_models.IMAGES, *gpu_models.TEXTS):
        import gpu_unseen_models

        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            gpu_unseen_models.export(name, model, x, path)
        return
    torch.backends.mha.set_fastpath_enabled(
        False
    )  # attention in one operator of torch's own, which ONNX has not
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        torch.no_grad(),
    ):
        torch.onnx.export(
            model,
            (x,),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}} if any_batch else None,
        )
    torch.backends.mha.set_fastpath_enabled(True)


HALF = {
    "": torch.float16,
    "fp16": torch.float16,
    "int8": torch.float16,
    "fp8": torch.float16,
    "bf16": torch.bfloat16,
}
"""What torch computes in, where that is not float32."""
QUANTIZED = ("int8", "fp8")


def halved(model: Any, x: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """The same in 16 bits; token ids stay integers."""
    return model.to(dtype), x.to(dtype) if x.is_floating_point() else x


def quantize(path: Path, x: Any, precision: str) -> Path:
    """The model of any batch in 8 bits, symmetric, with the batch of ``x``, as a file beside it.

    Scales are of batches of 1, since those of 128 take minutes. Raises CalledProcessError.
    """
    to, shape = path.with_suffix(f".{precision}.onnx"), "x".join(map(str, (1, *x.shape[1:])))
    options = ["--random", "2", "--int-below", "1000", "--shapes", f"x:{shape}"]
    options += ["--symmetric"] if precision == "int8" else ["--precision", precision]
    command = [sys.executable, "-m", "tactix", "quantize", str(path), *options, "-o", str(to)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    model = onnx.load(to)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = x.shape[0]
    for y in model.graph.output:
        y.type.tensor_type.ClearField("shape")
    onnx.save(model, to)
    return to


@dataclass
class Own:
    """tactix's side: a function that queues one inference, its outputs, how long building took, the
    engine.
    """

    call: Call
    outputs: list[Any]
    seconds: float
    engine: Any


def tactix_call(path: Path, x: Any, options: argparse.Namespace, precision: str, label: str) -> Own:
    start = time.perf_counter()
    config = configure(
        device="tactix.cuda@1",
        level=options.level,
        timing_cache=False,
        tactic_sources=options.sources,
        precision="fp16" if precision in QUANTIZED else precision or "fp32",
    )
    builder = tactix.Builder()
    engine = builder.build(builder.import_model(path), config)
    took = time.perf_counter() - start
    if options.plans:
        engine.save(options.plans / f"{label}.plan")
    context = engine.create_execution_context()
    context.set_input_shape("x", tuple(x.shape))
    context.set_tensor_address("x", x.data_ptr())
    outputs = []
    for io_ in engine.outputs:
        y = torch.empty(
            context.get_tensor_shape(io_.name),
            dtype=getattr(torch, str(io_.dtype.numpy)),
            device="cuda",
        )
        context.set_tensor_address(io_.name, y.data_ptr())
        outputs.append(y)
    stream = torch.cuda.current_stream().cuda_stream
    return Own(lambda: context.execute_async_v3(stream), outputs, took, engine)


def counts(engine: Any) -> tuple[int, int, int]:
    """Steps of the plan, those that only move numbers, and those on the host."""
    tactics = [str(step.info.get("tactic", "")) for step in engine.plan.steps]
    moves = sum("_move" in tactic or "_reformat" in tactic for tactic in tactics)
    return len(tactics), moves, sum("_host" in tactic for tactic in tactics)


def host_seconds(call: Call) -> float:
    """The caller's own time for queueing one inference: the median of many, each on an idle device."""
    samples = []
    for _ in range(50):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


@dataclass
class Rival:
    """A peer in a process of its own; ``trouble``: why it is out, once it is."""

    name: str
    process: Served
    facts: dict[str, Any]
    trouble: str = ""

    def seconds(self) -> float:
        """Of one inference; nan when it is out."""
        if not self.trouble:
            try:
                return float(self.process.ask("round"))
            except PeerFailed as e:
                self.trouble = str(e)
        return float("nan")


def start(jobs: list[Key], options: argparse.Namespace, folder: Path) -> dict[Key, list[Rival]]:
    """All other processes, when each has built its network or is out."""
    out: dict[Key, list[Rival]] = {job: [] for job in jobs}
    for name, batch in jobs:
        for peer, models in (("xla", options.xla), ("torch.compile", options.compile)):
            if name in models:
                lock = str(folder / (peer if peer == "xla" else name))
                command = [str(RIVALS), peer, name, str(batch), "--lock", lock]
                process = Served([*command, "--mode", options.mode], ANSWER, QUIET)
                out[name, batch].append(Rival(peer, process, {}))
    end = time.monotonic() + options.limit
    for rival in (r for rivals in out.values() for r in rivals):
        try:
            rival.facts = rival.process.answer(max(0.1, end - time.monotonic()))
        except PeerFailed as e:
            rival.trouble = str(e)
    return out


def measure(
    job: Key, precision: str, rivals: list[Rival], options: argparse.Namespace, folder: Path
) -> Iterator[str]:
    """The cells of a row."""
    name, batch = job
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, x = gpu_models.make(name, batch)
    with torch.no_grad():
        want = listed(model(x))
    if not precision:
        model, x = halved(model, x, HALF[precision])
    path, given = folder / "model.onnx", x
    export(name, model, x, path, any_batch=precision in QUANTIZED)
    if precision in QUANTIZED:
        path = quantize(path, x, precision)
    if precision in HALF:
        model, x = halved(model, x, HALF[precision])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if x.ndim == 4:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    with torch.no_grad():
        torch_error = departure(listed(model(x)), want)
    with torch.cuda.stream(torch.cuda.Stream()):
        own, eager = (
            tactix_call(
                path,
                given,
                options,
                precision,
                ".".join(filter(None, (name, f"b{batch}", precision))),
            ),
            torch_graph(model, x),
        )
        own.call()
        torch.cuda.synchronize()
        error = departure(own.outputs, want)
        rows = [
            (seconds(own.call), seconds(eager), *(r.seconds() for r in rivals))
            for _ in range(options.rounds)
        ]
        host = host_seconds(own.call) * 1e6
        sustained = [sustained_seconds(call) * 1e6 for call in (own.call, eager)]
    mine, *theirs = (statistics.median(s) * 1e6 for s in zip(*rows, strict=True))
    times = {
        "torch + CUDA graph": theirs[0],
        **{r.name: t for r, t in zip(rivals, theirs[1:], strict=True)},
    }
    yield f"{name} b{batch} {precision}".strip()
    yield f"{mine:.0f}"
    yield from (f"{times[peer]:.0f}" if times.get(peer, 0) > 0 else "" for peer in options.peers)
    yield f"{min(t for t in times.values() if t > 0) / mine:.2f}"
    yield from (
        f"{error:.1e}",
        f"{torch_error:.1e}",
        *(f"{t:.0f}" for t in sustained),
        *map(str, counts(own.engine)),
        f"{host:.1f}",
        f"{own.seconds:.1f}",
    )


def jobs_of(options: argparse.Namespace) -> list[Key]:
    found = []
    for model in options.models.split(","):
        name, _, batches = model.partition(":")
        found += [
            (name, int(b)) for b in (batches.split("/") if batches else options.batches.split(","))
        ]
    return found


def table(options: argparse.Namespace, folder: Path) -> bool:
    """Prints it; whether every row could be measured."""
    jobs, whole = jobs_of(options), True
    rivals = start(jobs, options, folder)
    heads = ["model", "tactix us", *(f"{p} us" for p in options.peers), "speed-up over the fastest", "error",
             "torch's error", "sustained us", "torch sustained us", "steps", "moves", "on the host",
             "host us", "build s"]  # fmt: skip
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for job in jobs:
        for precision in options.precision.split(","):
            try:
                print(
                    f"| {' | '.join(measure(job, precision, rivals[job], options, folder))} |",
                    flush=True,
                )
            except Exception as e:
                print(f"{job[0]} b{job[1]}: {type(e).__name__}: {str(e)[:300]}", flush=True)
                whole = False
    for (name, batch), found in rivals.items():
        for r in found:
            print(f"{r.name}, {name} b{batch}: {r.trouble or r.facts}")
            r.process.close()
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models = ", ".join((*gpu_models.IMAGES, *gpu_models.TEXTS, "those of gpu_unseen_models.py"))
    parser.add_argument(
        "--models",
        default="resnet50,mobilenet_v2",
        help=f"{models}; NAME:1/8 has batches of its own",
    )
    parser.add_argument("--batches", default="1,8,128")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--compile", type=lambda s: s.split(","), default=[], help="models for torch.compile, too"
    )
    parser.add_argument(
        "--mode", default="max-autotune", help="of torch.compile: max-autotune or default"
    )
    parser.add_argument(
        "--xla",
        type=lambda s: s.split(","),
        default=[],
        help="models for XLA, too: resnet50, bert_*",
    )
    parser.add_argument(
        "--limit", type=float, default=240, help="seconds in which these have built all they run"
    )
    parser.add_argument(
        "--sources", type=lambda s: set(s.split(",")), help="tactic sources, comma-separated; all"
    )
    parser.add_argument("--plans", type=Path, help="a folder for the plans")
    parser.add_argument(
        "--precision", default="", help="of float32 networks: fp32, tf32, fp16, bf16, int8, fp8"
    )
    options = parser.parse_args()
    others = (("torch.compile", options.compile), ("xla", options.xla))
    options.peers = ["torch + CUDA graph", *(peer for peer, models in others if models)]
    dtype = "float32 networks" if options.precision else "float16"
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tactix {tactix.__version__}, {dtype}"
    )
    with tempfile.TemporaryDirectory() as folder:
        return 0 if table(options, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
