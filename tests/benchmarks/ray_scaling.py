#!/usr/bin/env python3
"""What a second worker brings on a Ray cluster of this machine's cores, serving and building.

    python tests/benchmarks/ray_scaling.py serve resnet50.plan [--replicas 1,2] [--seconds 8]
        [--rounds 3] [--threads 1]
    python tests/benchmarks/ray_scaling.py build efficientnet_b0.onnx [--workers 1,2] [--rounds 2]
        [--threads 1] [--level 3]

``serve``: answers a second of so many replicas, each on cores or, of a plan for CUDA, on a GPU of
its own, which are asked as fast as they answer for one sample that lies in the object store;
deployed in turns. Printed is the median over the rounds, and that of each replica beside one alone.

``build``: seconds of a build with empty caches, without the start of Ray: alone on as many cores as
a worker has, alone on all that this machine has, and over workers with cores of their own; in
turns, each in a new process. Compilers of a worker use its cores alone. Then it is compared with
the plan that one machine makes of the merged timings: exits with 1 where they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tactix
from tactix.base.cores import usable_cores
from tactix.plan import container
from tactix.plan.schema import Plan

QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
OUTSTANDING = 3
"""Requests for each replica that wait or run: none is ever idle."""


def numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]


# -- serving --------------------------------------------------------------------------------------


def serving(args: argparse.Namespace) -> int:
    import ray
    from ray import serve

    from tactix_serve import ray as plans_on_ray

    feeds = sample(args.plan)
    ray.init(num_cpus=max(args.replicas) * args.threads, **QUIET)
    given = {name: ray.put(x) for name, x in feeds.items()}
    rates: dict[int, list[float]] = {n: [] for n in args.replicas}
    for _ in range(args.rounds):
        for n in args.replicas:
            options = {"num_replicas": n, "threads": args.threads}
            handle = plans_on_ray.run(args.plan, name="measured", **options)
            rates[n].append(answers_a_second(handle, given, n, args.seconds))
            serve.delete("measured")
    serve.shutdown()
    ray.shutdown()
    one = median(rates[min(rates)]) / min(rates)
    print("| replicas | answers a second | of each, beside one alone |\n|---|---|---|")
    for n, found in rates.items():
        print(f"| {n} | {median(found):.1f} | {median(found) / n / one:.2f} |")
    return 0


def sample(path: Path) -> dict[str, Any]:
    """One random sample at the sizes that the plan is tuned for."""
    rng = np.random.default_rng(0)
    with tactix.load(path) as engine:
        sizes = {name: dims[1] for p in engine.profiles[:1] for name, dims in p.dims.items()}
        shapes = {io: [sizes[str(d)] if not isinstance(d, int) else d for d in io.shape]
                  for io in engine.inputs}  # fmt: skip
        return {
            io.name: (rng.standard_normal(shape) if io.dtype.is_float else np.ones(shape)).astype(
                io.dtype.numpy
            )
            for io, shape in shapes.items()
        }


def answers_a_second(handle: Any, given: Any, replicas: int, seconds: float) -> float:
    """After two seconds of warming up, in which Ray starts processes in reserve, too."""
    asked = deque(handle.remote(given) for _ in range(OUTSTANDING * replicas))

    def ask(until: float) -> int:
        answered = 0
        while time.perf_counter() < until:
            asked.popleft().result()
            asked.append(handle.remote(given))
            answered += 1
        return answered

    ask(time.perf_counter() + 2.0)
    start = time.perf_counter()
    answered = ask(start + seconds)
    rate = answered / (time.perf_counter() - start)
    for answer in asked:
        answer.result()
    return rate


# -- builds ---------------------------------------------------------------------------------------


def building(args: argparse.Namespace) -> int:
    cores = usable_cores()
    ways = {f"alone, {args.threads} of {cores} cores": (0, args.threads)}
    ways[f"alone, all {cores} cores"] = (0, cores)
    ways |= {f"{n} workers of {args.threads}": (n, cores) for n in args.workers}
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way, (workers, used) in ways.items():
            row = built_apart(args, workers, used)
            print(f"{way}: {row['seconds']:.1f} s", file=sys.stderr, flush=True)
            found[way].append(row)
    first = median(row["seconds"] for row in found[next(iter(found))])
    print("| build | seconds | times as fast as the first | same plan |\n|---|---|---|---|")
    for way, rows in found.items():
        seconds = median(row["seconds"] for row in rows)
        same = "yes" if all(row["same"] for row in rows) else "NO"
        print(f"| {way} | {seconds:.1f} | {first / seconds:.2f} | {same} |")
        for told in dict.fromkeys(text for row in rows for text in row["told"]):
            print(f"  {told}", file=sys.stderr)
    return int(not all(row["same"] for rows in found.values() for row in rows))


def built_apart(args: argparse.Namespace, workers: int, cores: int) -> dict[str, Any]:
    """A build in a process with caches and cores of its own: ``seconds``, ``same``, ``told``."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "once", str(args.model), "--workers", str(workers)]
        command += ["--threads", str(args.threads), "--level", str(args.level)]
        command += ["--cores", str(cores)]
        environment = {**os.environ, "TACTIX_CACHE_DIR": cache}
        said = subprocess.check_output(command, env=environment, text=True)
    return json.loads(said.splitlines()[-1])  # type: ignore[no-any-return]


def once(args: argparse.Namespace) -> int:
    """One build in this process, told as JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    if not args.workers[0]:
        print(json.dumps(timed(args, lambda options: tactix.build(args.model, **options).plan)))
        return 0
    import ray

    from tactix_cluster.ray_workers import ray_workers

    room = max(usable_cores(), args.workers[0] * args.threads)
    ray.init("local", num_cpus=room, **QUIET)
    with ray_workers("local", args.workers[0]) as workers:
        print(
            json.dumps(timed(args, lambda o: tactix.build(args.model, workers=workers, **o).plan))
        )
    ray.shutdown()
    return 0


def timed(args: argparse.Namespace, build: Callable[[dict[str, Any]], Plan]) -> dict[str, Any]:
    logger = Kept()
    cache = Path(os.environ["TACTIX_CACHE_DIR"]) / "merged.json"
    options = {"threads": args.threads, "level": args.level, "timing_cache": cache}
    start = time.perf_counter()
    plan = build({**options, "logger": logger})
    seconds = time.perf_counter() - start
    again = tactix.build(args.model, frozen=True, **options).plan
    return {"seconds": seconds, "same": choices(plan) == choices(again), "told": logger.lines}


def choices(plan: Plan) -> list[tuple[Any, ...]]:
    """What each step is, and the bytes of the constants and the code that it runs on."""
    rows = [(s.name, s.info.get("tactic"), s.info.get("variant")) for s in plan.steps]
    bare = replace(plan, ledger={}, steps=tuple(replace(s, info={}) for s in plan.steps))
    return [*rows, (container.digest(bare),)]


class Kept(tactix.Logger):
    """Keeps warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_subparsers(required=True)
    serve = ways.add_parser("serve")
    serve.add_argument("plan", type=Path)
    serve.add_argument("--replicas", type=numbers, default=[1, 2])
    serve.add_argument("--seconds", type=float, default=8.0)
    serve.add_argument("--rounds", type=int, default=3)
    serve.set_defaults(run=serving)
    for name, run in (("build", building), ("once", once)):
        build = ways.add_parser(name)
        build.add_argument("model", type=Path)
        build.add_argument("--workers", type=numbers, default=[1, 2])
        build.add_argument("--rounds", type=int, default=2)
        build.add_argument("--level", type=int, default=3)
        build.add_argument("--cores", type=int, default=0)
        build.set_defaults(run=run)
    for way in ways.choices.values():
        way.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    return int(args.run(args))


if __name__ == "__main__":
    raise SystemExit(main())
