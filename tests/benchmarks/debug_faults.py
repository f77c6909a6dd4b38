"""Whether `tactix debug` names the layer at which a fault was planted, and in how many seconds.

    python tests/benchmarks/debug_faults.py MODELS_DIR [--models NAME ...] [--faults NAME ...]
        [--seed 0] [--threads 2] [--scratch DIR]

In each model of the folder each fault is planted at a layer that the seed names
(`planted_faults.py`), and a plan is built, before the clock starts. Then the tool runs, a process of
its own with the command line that is printed: `debug precision` where fewer bits ruin a layer,
`debug layers` where the plan is wrong. A fault counts as found if the culprit is the first
departure, or is among the layers that must stay float32 and these are no more than four steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from planted_faults import PLANTS, Planted, planted

MODELS = ("resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base", "gpt2", "lstm_tagger")
MOST_WIDE = 4
LIMIT = 60.0
COLUMNS = "| model | fault | layer | found | named | seconds |\n|---|---|---|---|---|---|"
MAIN = "import sys; from tactix_tools.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Outcome:
    found: bool
    named: str
    seconds: float

    @property
    def counts(self) -> bool:
        return self.found and self.seconds < LIMIT


def tried(fault: Planted, feed: Path, threads: int) -> Outcome:
    """The tool in a process of its own."""
    target = [str(fault.plan)]
    if fault.tool == "precision":
        target = [str(fault.model), "--plan", str(fault.plan)]
    args = ["debug", fault.tool, *target, *fault.options, "--inputs", str(feed)]
    args += ["--threads", str(threads), "--json"]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *args], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - start
    if not done.stdout:
        return Outcome(False, done.stderr[-200:], seconds)
    told = json.loads(done.stdout)
    found, named = (_by_precision if fault.tool == "precision" else _by_layers)(told, fault.layer)
    return Outcome(found, named, seconds)


def _by_precision(told: Any, layer: str) -> tuple[bool, str]:
    wide = told.get("wide", [])
    named = [name for w in wide for name in w["layers"]]
    return layer in named and len(wide) <= MOST_WIDE, ", ".join(named[:MOST_WIDE]) or str(told)[:99]


def _by_layers(told: Any, layer: str) -> tuple[bool, str]:
    first = told.get("first_departure")
    if first is None:
        return False, str(told)[:99]
    return layer in first["origin"], " + ".join(first["origin"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--faults", nargs="*", default=tuple(PLANTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", type=Path, default=None)
    args = parser.parse_args()
    print(COLUMNS, flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        for model in args.models:
            for name in args.faults:
                path = args.folder / f"{model}.onnx"
                with planted(path, name, Path(scratch), args.seed) as (fault, arrays):
                    feed = Path(scratch) / "feed.npz"
                    np.savez(feed, **arrays)
                    o = tried(fault, feed, args.threads)
                outcomes.append(o)
                said = "yes" if o.counts else "late" if o.found else "NO"
                print(
                    f"| {model} | {name} | {fault.layer} | {said} | {o.named} | {o.seconds:.1f} |",
                    flush=True,
                )
    print(f"\n{sum(o.counts for o in outcomes)} of {len(outcomes)} in under {LIMIT:.0f} s")


if __name__ == "__main__":
    main()
