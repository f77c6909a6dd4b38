#!/usr/bin/env python3
"""Plans of our own kernels, run by the lean runtime where nothing but numpy and cuda-python is
found, beside the best.

    python tests/benchmarks/gpu_alone.py [resnet50:1] [resnet50:8] [bert_base:1] ...

For each MODEL:BATCH of gpu_models.py, in float16: a plan of all tactic sources, and one of kernels
of our own alone, built with the same timings. The latter runs in a process whose interpreter finds
numpy, cuda-python and the lean runtime; the packages that it imported, and NVIDIA's libraries that
it loaded, are printed. Both are timed there and here in the same way. Outputs are compared with
torch in float32. Needs torch, torchvision, onnx.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "builtin" / "cuda"))

import alone
import gpu_models
import torch
from gpu_peers import export
from gpu_times import departure, listed

import tactix
from tactix.plan import container
from tactix.run.runtime import Runtime

OWN = {"cuda_c", "view"}
SIZES = (1, 16)


def build(model: Path, cache: Path, sources: set[str] | None) -> tactix.Plan:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        device="tactix.cuda@1", timing_cache=cache, tactic_sources=sources
    )
    return builder.build_plan(builder.import_model(model), config)


def reference(model: Any, given: dict[str, Any]) -> list[Any]:
    """torch's outputs in float32, for the numbers that the plans get."""
    x = torch.from_numpy(given["x"]).cuda()
    with torch.no_grad():
        return listed(model(x.float() if x.is_floating_point() else x))


def measure(name: str, batch: int, site: Path, folder: Path) -> str:
    """The row of a model."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, _ = gpu_models.make(name, batch)
    path, cache, own = (
        folder / "model.onnx",
        folder / f"{name}{batch}.json",
        folder / f"{name}{batch}.plan",
    )
    best = Runtime().load(build(export_half(name, batch, path), cache, None))
    given = alone.feeds(best, SIZES)
    want = reference(model, given)
    container.save(build(path, cache, OWN), own)
    found = alone.launch("lean", [own], site)
    with np.load(f"{own}.{'x'.join(map(str, SIZES))}.npz") as outputs:
        error = departure([torch.from_numpy(y).cuda() for y in outputs.values()], want)
    there, here = found[str(own)]["x".join(map(str, SIZES))]["inference"], alone.timed(best, given)
    cells = (f"{name} b{batch}", f"{there * 1e6:.0f}", f"{here * 1e6:.0f}", f"{there / here:.2f}", f"{error:.1e}",
             f"{found[str(own)]['seconds'] * 1e3:.0f}", ", ".join(found["packages"]),
             ", ".join(found["libraries"]) or "none")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def export_half(name: str, batch: int, path: Path) -> Path:
    model, x = gpu_models.make(name, batch)
    export(model.half(), x.half() if x.is_floating_point() else x, path)
    return path


def main() -> None:
    heads = (
        "model",
        "own kernels alone us",
        "all sources us",
        "ratio",
        "error",
        "load ms",
        "packages",
        "libraries",
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    with tempfile.TemporaryDirectory() as made:
        site = Path(made, "site")
        site.mkdir()
        alone.site(site)
        for job in sys.argv[1:] or ["resnet50:1", "resnet50:8", "bert_base:1", "bert_base:8"]:
            name, batch = job.split(":")
            print(measure(name, int(batch), site, Path(made)), flush=True)


if __name__ == "__main__":
    main()
