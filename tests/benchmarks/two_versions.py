#!/usr/bin/env python3
"""Two versions of tactix on the same models, in turns: today's, and another one's Python.

    python tests/benchmarks/two_versions.py OTHER/bin/python --models DIR [--only resnet50,mlp]
        [--precision fp32,bf16] [--threads 1] [--level 3] [--rounds 7] [--seconds 0.3]

Each version builds and runs in a process of its own, without a timing cache of the other's; rounds
are interleaved, and each begins with the other version. A figure is the median over rounds of a
round's median call; the ratio is of today's time to the other's, its quartiles are those of the
rounds. Prints a Markdown table. Exits 1 where a version cannot build or run a model.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peer_inputs import make_inputs
from peer_process import Peer, PeerFailed
from rounds import in_turn, words


@dataclass(frozen=True)
class Compared:
    """Seconds of a call in each round, today's and the other version's."""

    today: list[float]
    other: list[float]

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.today, self.other)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.today) / statistics.median(self.other)


def compared(model: Path, precision: str, args: argparse.Namespace) -> Compared:
    """Both versions on one model. Raises PeerFailed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        inputs = Path(folder, "in.npz")
        np.savez(inputs, **make_inputs(model, 1))  # type: ignore[arg-type]
        peers: list[Peer] = []
        for i, python in enumerate((sys.executable, args.other)):
            os.environ["TACTIX_HOME"] = str(Path(folder, f"home{i}"))
            peer = Peer(
                "tactix",
                model.absolute(),
                args.threads,
                args.timeout,
                python=python,
                inputs=inputs,
                outputs=Path(folder, f"{i}.npz"),
                precision=precision,
                level=args.level,
            )
            stack.callback(peer.close)
            peers.append(peer)
        rounds: list[list[float]] = [[], []]
        for turn in range(args.rounds):
            for i in in_turn((0, 1), turn):
                rounds[i].append(peers[i].round(args.seconds))
    return Compared(*rounds)


def row(model: Path, precision: str, found: Compared) -> str:
    low, _, high = statistics.quantiles(found.ratios, n=4)
    today, other = (statistics.median(s) * 1e6 for s in (found.today, found.other))
    quartiles = f"{low:.3f} to {high:.3f}"
    return f"| {model.stem} | {precision} | {today:,.1f} | {other:,.1f} | {found.ratio:.3f} | {quartiles} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("other", help="the Python that has the other version installed, and onnx")
    add("--models", type=Path, required=True, help="folder of NAME.onnx")
    add("--only", type=words, default=[], help="these models, comma-separated")
    add("--precision", type=words, default=["fp32"], help="fp32, bf16 (default: fp32)")
    add("--threads", type=int, default=1, help="default: 1")
    add("--level", type=int, default=3, help="optimization level of the builds (default: 3)")
    add("--rounds", type=int, default=7, help="at least 2 (default: 7)")
    add("--seconds", type=float, default=0.3, help="of one round, at least 3 calls (default: 0.3)")
    add("--timeout", type=float, default=900, help="seconds for one answer (default: 900)")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("--rounds: quartiles need at least 2")
    return args


def main() -> int:
    args = arguments()
    found, failed = [], False
    paths = [p for p in sorted(args.models.glob("*.onnx")) if not args.only or p.stem in args.only]
    print(
        "| model | precision | today us | other us | ratio | quartiles |\n|---|---|---|---|---|---|"
    )
    for precision in args.precision:
        for path in paths:
            try:
                found.append(compared(path, precision, args))
            except PeerFailed as e:
                failed = True
                print(f"| {path.stem} | {precision} | {e} | | | |", flush=True)
            else:
                print(row(path, precision, found[-1]), flush=True)
    if found:
        mean = math.exp(statistics.fmean(math.log(c.ratio) for c in found))
        print(f"\nGeometric mean of {len(found)}: {mean:.3f}")
    return int(failed or not found)


if __name__ == "__main__":
    sys.exit(main())
