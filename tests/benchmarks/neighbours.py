#!/usr/bin/env python3
"""tactix beside ONNX Runtime and OpenVINO where other processes want the same cores.

    python tests/benchmarks/neighbours.py MODEL.onnx ... [--threads 2] [--neighbours 0,1] [--rounds 20]
        [--seconds 0.3] [--engines tactix,onnxruntime,openvino] [--level 3]

A neighbour is a busy process that is pinned to the last core in use; with several, each has the core before. Each
engine runs in a process of its own; rounds are interleaved, and each begins with another engine and another
number of neighbours. A round gives its median call: the median and the 90th percentile of these over all
rounds are printed as a Markdown table, and the median over rounds of tactix's time to the other's.
Exits 1 where an engine fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from peer_engines import ENGINES, TITLES, installed
from peer_inputs import make_inputs
from peer_process import Peer, PeerFailed
from rounds import in_turn, words

SETTLING = 0.1
"""Seconds until the scheduler has put threads beside a new neighbour: some of its periods of a few
milliseconds.
"""
Times = dict[tuple[str, int], list[float]]
"""Seconds of each round's median call, by engine and number of neighbours."""


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Busy processes, each pinned to a core, from the last one backwards."""
    cores = sorted(os.sched_getaffinity(0))
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for i in range(count):
            busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            os.sched_setaffinity(busy[-1].pid, {cores[-1 - i % len(cores)]})
        if count:
            time.sleep(SETTLING)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measured(model: Path, args: argparse.Namespace) -> Times:
    """Raises PeerFailed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        inputs = Path(folder, "in.npz")
        np.savez(inputs, **make_inputs(model, 1))  # type: ignore[arg-type]
        peers = {}
        for engine in args.engines:
            outputs = Path(folder, f"{engine}.npz")
            peers[engine] = Peer(
                engine,
                model.absolute(),
                args.threads,
                args.timeout,
                inputs=inputs,
                outputs=outputs,
                level=args.level,
            )
            stack.callback(peers[engine].close)
        times: Times = {(e, n): [] for e in peers for n in args.neighbours}
        for turn in range(args.rounds):
            for n in in_turn(args.neighbours, turn):
                with neighbours(n):
                    for engine in in_turn(args.engines, turn):
                        times[engine, n].append(peers[engine].round(args.seconds))
    return times


def rows(model: Path, times: Times) -> Iterator[str]:
    for (engine, n), own in times.items():
        ours = times["tactix", n]
        ratio = statistics.median(a / b for a, b in zip(ours, own, strict=True))
        p90 = statistics.quantiles(own, n=10)[-1]
        cells = (
            model.stem,
            str(n),
            TITLES[engine],
            f"{statistics.median(own) * 1e3:.2f}",
            f"{p90 * 1e3:.2f}",
        )
        yield f"| {' | '.join(cells)} | {ratio:.2f} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("models", type=Path, nargs="+")
    add("--threads", type=int, default=2, help="default: 2")
    add("--neighbours", type=lambda t: [int(w) for w in words(t)], default=[0, 1])
    add("--engines", type=words, default=list(ENGINES), help="default: those installed")
    add("--rounds", type=int, default=20, help="at least 2 (default: 20)")
    add("--seconds", type=float, default=0.3, help="of one round, at least 3 calls (default: 0.3)")
    add("--level", type=int, default=3, help="optimization level of a tactix build")
    add("--timeout", type=float, default=900, help="seconds for one answer (default: 900)")
    args = parser.parse_args()
    args.engines = [e for e in args.engines if installed(e)]
    if args.rounds < 2 or "tactix" not in args.engines or not args.neighbours:
        parser.error("it takes 2 rounds, tactix among the engines, and a number of neighbours")
    return args


def main() -> int:
    args, failed = arguments(), False
    print(
        "| model | neighbours | engine | median ms | p90 ms | tactix to it |\n|---|---|---|---|---|---|"
    )
    for model in args.models:
        try:
            found = measured(model, args)
        except PeerFailed as e:
            failed = True
            print(f"| {model.stem} | | {e} | | | |", flush=True)
        else:
            print("\n".join(rows(model, found)), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
