#!/usr/bin/env python3
"""What a build costs: seconds of each phase, processor time and memory; cold, warm, and without
measuring.

    python tests/benchmarks/build_cost.py --models DIR [--only resnet50,bert_base,mlp] [--threads 2] [--level 3]
    python tests/benchmarks/build_cost.py --models DIR --levels 0,1,2,3,4,5

Every build is a fresh process. Cold: neither timings nor objects are cached; warm: the same again;
level 0: cold, all chosen by estimate. Seconds begin when tactix is imported, and hold loading the
plan. Processor seconds hold the compiler's, and tell more than seconds where other work shares the
machine. Memory is the peak of the building process, beside three times the weights and 500 MB.
``--levels``: cold builds at these levels instead, with how many kernels were measured, and the
least processor time of a call (with one thread, its time on an idle machine). Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PHASES = ("import", "fuse", "bid", "compile", "measure", "choose", "assemble")
LEVEL_COLUMNS = (
    "model",
    "level",
    "seconds",
    "processor s",
    "kernels measured",
    "call, processor ms",
)
COLUMNS = (
    "model",
    "build",
    "seconds",
    "processor s",
    *PHASES,
    "rest",
    "peak MB",
    "3 x weights + 500 MB",
)


class Clock:
    """A progress monitor that adds up the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = 0.0

    def phase(self, name: str, total: int) -> None:
        self._start = time.perf_counter()

    def step(self, name: str, done: int, message: str = "") -> None: ...

    def finish(self, name: str) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - self._start

    def cancelled(self) -> bool:
        return False


def least_call(engine: Any, times: int = 30) -> float:
    """Processor seconds of the fastest of some calls at the shapes that the engine is tuned for."""
    import numpy as np

    opt = {name: r[1] for name, r in engine.profiles[0].dims.items()}
    shapes = [
        tuple(d if isinstance(d, int) else opt[str(d)] for d in io.shape) for io in engine.inputs
    ]
    arrays = [np.ones(s, io.dtype.numpy) for s, io in zip(shapes, engine.inputs, strict=True)]
    found = []
    for _ in range(times):
        start = time.process_time()
        engine(*arrays)
        found.append(time.process_time() - start)
    return min(found)


def child(model: Path, level: int, threads: int) -> None:
    """Build once and print the facts as JSON."""
    import numpy  # noqa: F401 - not ours to count

    start = time.perf_counter()
    import tactix

    clock = Clock()
    engine = tactix.build(model, threads=threads, level=level, progress=clock)
    total = time.perf_counter() - start
    own, compilers = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    facts = {
        "seconds": total,
        "processor": sum(u.ru_utime + u.ru_stime for u in (own, compilers)),
        "phases": clock.seconds,
        "peak": own.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "weights": engine.inspect()["memory"]["weights"],
        "measured": len({str(c) for n in engine.plan.ledger["nodes"].values() for c in n["candidates"]
                         if c["status"] == "measured"}),
        "call": least_call(engine),
    }  # fmt: skip
    print(json.dumps(facts))


def build(model: Path, level: int, threads: int, env: Mapping[str, str]) -> dict[str, Any]:
    """The facts of one build in a fresh process. Raises CalledProcessError."""
    command = [
        sys.executable,
        __file__,
        "--child",
        str(model),
        "--level",
        str(level),
        "--threads",
        str(threads),
    ]
    said = subprocess.run(command, env=dict(env), check=True, capture_output=True, text=True).stdout
    facts: dict[str, Any] = json.loads(said.splitlines()[-1])
    return facts


def row(model: str, kind: str, facts: Mapping[str, Any]) -> str:
    phases = [facts["phases"].get(p, 0.0) for p in PHASES]
    times = [facts["seconds"], facts["processor"], *phases, facts["seconds"] - sum(phases)]
    bound = 3 * facts["weights"] / 1e6 + 500
    cells = [
        model,
        kind,
        *(f"{t:.2f}" for t in times),
        f"{facts['peak'] / 1e6:.0f}",
        f"{bound:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def measure(model: Path, level: int, threads: int, env: Mapping[str, str]) -> None:
    """Print the rows of one model as they come."""
    for kinds in (("cold", "warm"), ("level 0",)):
        with tempfile.TemporaryDirectory(prefix="tactix-cache-") as folder:
            for kind in kinds:
                where = {**env, "TACTIX_CACHE_DIR": folder}
                try:
                    facts = build(model, 0 if kind == "level 0" else level, threads, where)
                except subprocess.CalledProcessError as e:
                    words = (e.stderr.strip().splitlines() or ["it said nothing"])[-1]
                    print(
                        f"| {model.stem} | {kind} | failed: {words} |{' |' * (len(COLUMNS) - 3)}",
                        flush=True,
                    )
                    return
                print(row(model.stem, kind, facts), flush=True)


def measure_levels(
    model: Path, levels: Sequence[int], threads: int, env: Mapping[str, str]
) -> None:
    """Print a row for a cold build of each level."""
    for level in levels:
        with tempfile.TemporaryDirectory(prefix="tactix-cache-") as folder:
            f = build(model, level, threads, {**env, "TACTIX_CACHE_DIR": folder})
        times = (
            f"{f['seconds']:.2f} | {f['processor']:.2f} | {f['measured']} | {f['call'] * 1e3:.4g}"
        )
        print(f"| {model.stem} | {level} | {times} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("TACTIX_MODELS", "models"))
    parser.add_argument("--models", type=Path, default=default, help="folder of NAME.onnx")
    parser.add_argument("--only", default="resnet50,bert_base,mlp", help="comma-separated models")
    parser.add_argument(
        "--threads", type=int, default=2, help="that the plan is built for (default: 2)"
    )
    parser.add_argument("--level", type=int, default=3, help="optimization level (default: 3)")
    parser.add_argument("--levels", default="", help="comma-separated levels to compare")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.level, args.threads)
        return
    files = [args.models / f"{name}.onnx" for name in args.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="tactix-bytecode-") as bytecode:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = bytecode
        with tempfile.TemporaryDirectory(
            prefix="tactix-cache-"
        ) as folder:  # as after an installation: bytecode is there
            build(
                min(files, key=lambda f: f.stat().st_size),
                1,
                1,
                {**env, "TACTIX_CACHE_DIR": folder},
            )
        columns = LEVEL_COLUMNS if args.levels else COLUMNS
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
        for f in files:
            if args.levels:
                measure_levels(f, [int(n) for n in args.levels.split(",")], args.threads, env)
            else:
                measure(f, args.level, args.threads, env)


if __name__ == "__main__":
    main()
