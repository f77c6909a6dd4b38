#!/usr/bin/env python3
"""Weight streaming on the CPU: time of a run and resident bytes of the plan's file, by budget.

    python tests/benchmarks/streaming.py MODEL.onnx [MODEL.onnx ...] [--threads N] [--rounds N]

Each model is built with WEIGHT_STREAMING, by estimates. Resident bytes are those of the file's map,
header and code included, whenever a group of steps has run. Outputs are compared with those without
a budget. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from resident import resident

import tactix
from tactix_runtime.streaming.pages import Pages
from tactix_tools import arrays

PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Of the weights; 0 stands for the smallest budget."""


def peak(engine: tactix.Engine, feeds: dict[str, Any], path: Path) -> int:
    """The most that is resident during a run."""
    seen, drop = [0], Pages.drop

    def noted(self: Pages, blobs: Any) -> None:
        seen.append(resident(path))
        drop(self, blobs)

    Pages.drop = noted  # type: ignore[method-assign]
    try:
        engine(feeds)
    finally:
        Pages.drop = drop  # type: ignore[method-assign]
    return max(*seen, resident(path))


def rows(model: Path, folder: Path, threads: int, rounds: int) -> None:
    path = folder / f"{model.stem}.plan"
    flags = {tactix.BuilderFlag.WEIGHT_STREAMING}
    tactix.build(model, flags=flags, threads=threads, level=0).save(path)
    engine: Any = tactix.load(path, max_threads=threads)
    feeds = arrays.random(
        engine.plan, {s: 64 if s.startswith("seq") else 1 for s in engine.plan.symbols}
    )
    want = engine.create_execution_context().run(feeds)
    size, low = engine.streamable_weights_size, engine.minimum_weight_streaming_budget
    for part in PARTS:
        engine.weight_streaming_budget_v2 = budget = max(low, int(part * size))
        engine(feeds)
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            engine(feeds)
            times.append(time.perf_counter() - start)
        most = peak(engine, feeds, path)
        got = engine.create_execution_context().run(feeds)
        same = all(np.array_equal(got[k], want[k]) for k in want)
        cells = (
            f"{budget / 1e6:.1f}",
            f"{most / 1e6:.1f}",
            f"{statistics.median(times) * 1e3:.1f}",
            str(same).lower(),
        )
        print(f"| {model.stem} | {size / 1e6:.1f} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print("| model | weights MB | budget MB | resident MB | run ms | same outputs |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            rows(model, Path(folder), options.threads, options.rounds)


if __name__ == "__main__":
    main()
