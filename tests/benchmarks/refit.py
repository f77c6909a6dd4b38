#!/usr/bin/env python3
"""Refit: the time it takes, beside that of a copy of the weights that the plan stores.

    python tests/benchmarks/refit.py MODEL.onnx [MODEL.onnx ...] [--threads N] [--rounds N]

Each model is built with REFIT and tuned. All weights are set (checked, not copied) and refitted on the live engine, in
turns with a copy of what the plan stores by as many threads; all memory was touched before. Medians, in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.builder import Builder
from tactix_builtin.refit.refitter import Refitter


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prepared(model: Path, threads: int) -> tuple[Refitter, dict[str, np.ndarray]]:
    """A refitter of a new engine, and its weights."""
    engine = tactix.build(model, flags={tactix.BuilderFlag.REFIT}, threads=threads)
    refitter = Refitter(engine, threads)
    found = {v.name: np.array(v.const) for v in Builder().import_model(model).constants}
    return refitter, {name: found[name] for name in refitter.get_all_weights()}


def set_all(refitter: Refitter, weights: dict[str, np.ndarray]) -> None:
    for name, array in weights.items():
        refitter.set_named_weights(name, array)


def row(model: Path, threads: int, rounds: int) -> str:
    refitter, weights = prepared(model, threads)
    blobs = {b.blob: refitter.plan.blobs[b.blob] for b in refitter.plan.buffers if b.blob}
    sources = [np.frombuffer(content, np.uint8).copy() for content in blobs.values()]
    targets = [np.zeros_like(a) for a in sources]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds + 2):
            given = seconds(lambda: set_all(refitter, weights))
            times.append((given, seconds(refitter.refit), seconds(lambda: list(pool.map(np.copyto, targets, sources)))))
    given, refit, copy = (statistics.median(t) for t in zip(*times[2:], strict=True))
    size = sum(a.nbytes for a in sources)
    cells = (
        f"{size / 1e6:.0f}",
        f"{copy * 1e3:.1f}",
        f"{refit * 1e3:.1f}",
        f"{refit / copy:.2f}",
        f"{given * 1e3:.1f}",
    )
    return f"| {model.stem} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print("| model | stored MB | copy ms | refit ms | times a copy | set and check ms |")
    print("|---|---|---|---|---|---|")
    for model in options.models:
        print(row(model, options.threads, options.rounds), flush=True)


if __name__ == "__main__":
    main()
