#!/usr/bin/env python3
"""What a plan for a level of processors costs: its time beside that of a plan for this very
machine.

    python tests/benchmarks/compat_penalty.py --models DIR [--only resnet50,mlp,bert_base] [--threads 1] [--level 2]

Each model is built for every level that this processor has, and for the processor as it is; all of
these plans then run in turns on the same inputs, and a ratio is the median over rounds of a level's
time over the native one's. The levels' answers are held to 1e-4 of the largest magnitude beside the
native ones. For levels that it does not have (another architecture, where there is a compiler for
it) plans are only built, by estimates. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs

import tactix
from tactix.contracts.artifact import Binary
from tactix_cpu.device import CpuDevice
from tactix_cpu.features import LEVELS

NATIVE = "native"
BUDGET = 1e-4


def code_bytes(plan: tactix.Plan) -> int:
    """Bytes of machine code."""
    codes = {
        s.artifact.code.digest: s.artifact.code
        for s in plan.steps
        if isinstance(s.artifact.code, Binary)
    }
    return sum(len(c.blob) for c in codes.values())


def plan_for(
    model: Path, target: str, shapes: Mapping[str, Any], args: argparse.Namespace
) -> tactix.Plan:
    """Measured where it runs here, else by estimates."""
    config = tactix.BuilderConfig(
        builder_optimization_level=args.level,
        threads=args.threads,
        target="" if target == NATIVE else target,
    )
    profile = tactix.OptimizationProfile()
    for name, shape in shapes.items():
        profile.set_shape(name, shape, shape, shape)
    config.add_optimization_profile(profile)
    builder = tactix.Builder()
    return builder.build_plan(builder.import_model(model), config)


def in_turns(calls: Mapping[str, Any], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Seconds of one call, several samples for each."""
    once = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once[name] = time.perf_counter() - start
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            count = max(1, int(seconds / once[name]))
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count)
    return times


def departure(got: Any, want: Any) -> float:
    """The largest difference of any output, relative to its largest magnitude."""
    pairs = [(got[k], want[k]) for k in want] if isinstance(want, dict) else [(got, want)]
    return max(float(np.abs(g - w).max() / max(1e-30, np.abs(w).max())) for g, w in pairs)


def rows_of(model: Path, here: Sequence[str], args: argparse.Namespace) -> list[str]:
    """One row for each level that runs here, the native plan last."""
    feed = make_inputs(model, 1)
    shapes = {name: x.shape for name, x in feed.items()}
    plans = {level: plan_for(model, level, shapes, args) for level in (*here, NATIVE)}
    runtime = tactix.Runtime(max_threads=args.threads)
    engines = {level: runtime.load(plan) for level, plan in plans.items()}
    answers = {level: e(feed) for level, e in engines.items()}
    times = in_turns(
        {level: lambda e=e: e(feed) for level, e in engines.items()}, args.seconds, args.rounds
    )
    rows = []
    for level, samples in times.items():
        error = departure(answers[level], answers[NATIVE])
        assert error <= BUDGET, f"{model.stem} for {level} departs by {error}"
        ratio = statistics.median(s / n for s, n in zip(samples, times[NATIVE], strict=True))
        ms, code = statistics.median(samples) * 1e3, code_bytes(plans[level]) / 1024
        rows.append(
            f"| {model.stem} | {level} | {ms:.4g} | {ratio:.2f} | {code:.0f} | {error:.1e} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", default="resnet50,mlp,bert_base")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    found = CpuDevice().properties().features
    here = [level for level, (_, _, features) in LEVELS.items() if features <= found]
    models = [args.models / f"{name}.onnx" for name in args.only.split(",")]
    print(
        "| model | built for | ms | beside native | KiB of code | departure from native |\n|---|---|---|---|---|---|"
    )
    for model in models:
        print("\n".join(rows_of(model, here, args)), flush=True)
    for level in (level for level in LEVELS if level not in here):
        for model in models:
            shapes = {name: x.shape for name, x in make_inputs(model, 1).items()}
            plan = plan_for(model, level, shapes, args)
            print(
                f"| {model.stem} | {level} | - | - | {code_bytes(plan) / 1024:.0f} | - |",
                flush=True,
            )


if __name__ == "__main__":
    main()
