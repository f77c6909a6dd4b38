#!/usr/bin/env python3
"""Refit: the time it takes, beside that of a copy of the weights that the plan stores.

    python tests/benchmarks/refit.py MODEL.onnx [MODEL.onnx ...] [--threads N] [--rounds N] [--device tactix.cuda@1]
        [--precision fp16] [--level 3]

Each model is built with REFIT and tuned. All weights are set (checked, not copied) and refitted on
the live engine, in turns with a copy of what the plan stores: by as many threads, between memory
that was touched before; to a device of another memory from arrays (*copy*) and from memory that the
device reads by itself (*pinned*). Medians, in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.api import configure
from tactix.builder import Builder
from tactix.run.blob_memory import BlobMemory
from tactix.run.memory import Memory
from tactix_refit.refitter import Refitter

Array = Any
Copies = Sequence[Callable[[], Any]]


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prepared(
    model: Path, options: argparse.Namespace
) -> tuple[tactix.Engine, Refitter, dict[str, Array]]:
    """A new engine, a refitter of it, and its weights."""
    given = {"device": options.device} if options.device else {"threads": options.threads}
    config = configure(
        precision=options.precision, level=options.level, flags={tactix.BuilderFlag.REFIT}, **given
    )
    builder = Builder()
    engine = builder.build(builder.import_model(model), config)
    refitter = Refitter(engine, options.threads)
    found = {v.name: np.array(v.const) for v in builder.import_model(model).constants}
    return engine, refitter, {name: found[name] for name in refitter.get_all_weights()}


def set_all(refitter: Refitter, weights: dict[str, Array]) -> None:
    for name, array in weights.items():
        refitter.set_named_weights(name, array)


def copies(engine: tactix.Engine, sources: Sequence[Array], pool: ThreadPoolExecutor) -> Copies:
    """Copies of these arrays to where they would be read: in turns with refitting; the last is the
    fastest there is.
    """
    device: Any = engine.device
    if device.host_memory:
        targets = [np.zeros_like(a) for a in sources]
        return [lambda: list(pool.map(np.copyto, targets, sources))]
    held = np.concatenate(sources)
    memory, room = (
        Memory.allocate(engine._program.allocator, held.nbytes),
        BlobMemory(device.pinned, {"": held.nbytes}),
    )
    fast = room.array("")
    fast[:] = held
    return [
        lambda: device.copy_in(memory.address, held),
        lambda: device.copy_in(memory.address, fast),
    ]


def row(model: Path, options: argparse.Namespace) -> str:
    engine, refitter, weights = prepared(model, options)
    blobs = {b.blob: refitter.plan.blobs[b.blob] for b in refitter.plan.buffers if b.blob}
    sources = [np.frombuffer(content, np.uint8).copy() for content in blobs.values()]
    times = []
    with ThreadPoolExecutor(options.threads) as pool:
        copied = copies(engine, sources, pool)
        for _ in range(options.rounds + 3):
            given = seconds(lambda: set_all(refitter, weights))
            times.append((given, seconds(refitter.refit), *map(seconds, copied)))
    given, refit, *copy = (1e3 * statistics.median(t) for t in zip(*times[3:], strict=True))
    size = sum(a.nbytes for a in sources) / 1e6
    pinned = f"{copy[1]:.1f}" if len(copy) > 1 else "-"
    cells = (
        engine.device.kind,
        f"{size:.0f}",
        f"{copy[0]:.1f}",
        pinned,
        f"{refit:.1f}",
        f"{refit / copy[0]:.2f}",
    )
    return f"| {model.stem} | {' | '.join(cells)} | {given:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--level", type=int, default=3)
    options = parser.parse_args()
    print(
        "| model | device | stored MB | copy ms | pinned ms | refit ms | times a copy | set and check ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for model in options.models:
        print(row(model, options), flush=True)


if __name__ == "__main__":
    main()
