#!/usr/bin/env python3
"""Profiles beside runs: whether the steps of a profile take together what a run takes.

    python tests/benchmarks/profile_sums.py --models DIR [--only resnet50,mlp] [--threads 1,2]
        [--runs 5] [--plans DIR] [--device cuda] [--within 5]

For each NAME.onnx in DIR a plan is built without measuring (level 0), or taken from --plans, where
it is kept. Then three kinds of runs of it are made in turns, eight of each: calls on addresses
(`execute_v2`), rows of native runs with nothing of Python between, and calls with timestamps. The
table has the median of each, and of the sum of the steps. Prints Markdown. The exit code is 1 if
the sum of a model's steps is not within so many percent of its native run.

With --device cuda the native rows are timed between two events of the stream, and so are profiles;
the host's threads are none of a GPU's, so --threads is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs
from rounds import words

import tactix
from tactix_inspect.profiling import SpanCollector

ROW_SECONDS, BURST = 1e-4, 8
"""A row of native runs takes about as long, and at least a run; so many calls of a kind follow each
other, as their data are in caches then.
"""
GPU_ROW = 20
"""Runs of a GPU in a row, as in its profiles."""
WARM = 64


@dataclass(frozen=True)
class Sums:
    """Medians in seconds: of a call, of a native run in a row, of a call with timestamps, and of
    the sum of its steps.
    """

    call: float
    native: float
    stamped: float
    steps: float


class Subject:
    """A plan at inputs of a model, in a context of its own."""

    def __init__(self, engine: tactix.Engine, feed: dict[str, Any]) -> None:
        self.context, self._device = engine.create_execution_context(), engine.device
        given = [np.require(feed[io.name], requirements="C") for io in engine.plan.inputs]
        kept = [*given, *self.context.infer(given)]
        if self._device.host_memory:
            addresses = [x.ctypes.data for x in kept]
            self._run = lambda: self.context.execute_v2(addresses)
        else:
            self._run = lambda: self.context.infer(given)
        self._kept = kept

    def call(self) -> float:
        begin = time.perf_counter()
        self._run()
        return time.perf_counter() - begin

    def row(self, count: int) -> float:
        """Seconds of one of so many native runs, on the device's own timer."""
        active = self.context._active
        assert active is not None
        return self._device.measure(active[0].runnable, count) / count


def measure(engine: tactix.Engine, feed: dict[str, Any], runs: int) -> Sums:
    """In turns."""
    plain, row, stamped = (Subject(engine, feed) for _ in range(3))
    once = min(plain.call() for _ in range(WARM))
    count = max(1, int(ROW_SECONDS / once)) if engine.device.host_memory else GPU_ROW
    for _ in range(WARM):
        row.call()
    collector = SpanCollector()
    stamped.context.profiler = collector
    stamped.call()
    collector.taken()
    calls, rows, took, steps = (list[float]() for _ in range(4))
    for _ in range(runs):
        calls += [plain.call() for _ in range(BURST)]
        rows += [row.row(count) for _ in range(BURST)]
        later = []
        for _ in range(BURST):
            begin = time.perf_counter()
            stamped.call()
            took.append(collector.end - begin)
            later.append(collector.taken())
        steps += [sum(s.span.seconds for s in spans()) for spans in later]
    return Sums(*map(statistics.median, (calls, rows, took, steps)))


def plan_of(model: Path, folder: Path | None, device: str) -> tactix.Plan:
    """Built without measuring, unless the folder has it."""
    kept = folder / f"{model.stem}.plan" if folder else None
    if kept is None or not kept.exists():
        made = tactix.build(model, level=0, device=device)
        if kept is None:
            return made.plan
        made.save(kept)
    return tactix.load(kept).plan


def line(name: str, threads: int, s: Sums) -> str:
    times = " | ".join(f"{1e6 * t:.4g}" for t in (s.call, s.stamped, s.native, s.steps))
    return f"| {name} | {threads} | {times} | {s.steps / s.native:.3f} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--only", type=words, default=[])
    parser.add_argument("--threads", type=words, default=["1", "2"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--within", type=float, default=5.0)
    args = parser.parse_args(argv)
    print("| model | threads | call us | profiled call us | run us | steps us | steps / run |")
    print("|---|---|---|---|---|---|---|", flush=True)
    apart = 0
    for model in sorted(args.models.glob("*.onnx"), key=lambda p: p.stat().st_size):
        if args.only and model.stem not in args.only:
            continue
        plan, feed = plan_of(model, args.plans, args.device), make_inputs(model, 1)
        for threads in map(int, args.threads if args.device == "cpu" else ["1"]):
            runtime = tactix.Runtime(max_threads=threads, device=args.device)
            found = measure(runtime.load(plan), feed, args.runs)
            print(line(model.stem, threads, found), flush=True)
            apart += abs(found.steps / found.native - 1) > args.within / 100
    if apart:
        print(f"\n{apart} are more than {args.within:g} % apart")
    return int(apart > 0)


if __name__ == "__main__":
    raise SystemExit(main())
