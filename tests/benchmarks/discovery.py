#!/usr/bin/env python3
"""How long a crowded environment takes: 500 distributions, 20 of them packs, 3 broken, 2 that
clash.

    python tests/benchmarks/discovery.py [--rounds 7]

The distributions are made in a folder of their own, put before the real ones on the path. Each
round is a fresh process that imports tactix and asks a session for its layers; what is told is the
time of scanning entry points, of importing and asking all packs beside tactix, and of the whole,
medians. A control has the same environment without packs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

DISTRIBUTIONS, PACKS, BROKEN, CLASHING = 500, 20, 3, 2
PACK = """
from tactix_sdk import hookimpl, pointwise, tanh

@pointwise("{namespace}.Squash@1")
def squash(x, *, gain: float = 1.0):
    return tanh(x * gain)

@hookimpl
def tactix_layers():
    return [squash]
"""
MEASURE = """
import json, time
start = time.perf_counter()
import tactix
from tactix.plugins import loader
from tactix.plugins.session import Session
from tactix.base.logger import Logger, Severity
begun = time.perf_counter()
found = loader.scan()
scanned = time.perf_counter()
session = Session(logger=Logger(Severity.ERROR))
layers = len(session.layers)
done = time.perf_counter()
from tactix_tools.pack_info import packs
states = {}
for p in packs(session):
    states[p.status] = states.get(p.status, 0) + 1
others = sum(p.milliseconds for p in packs(session) if p.namespace != "tactix")
print(json.dumps({"scan": scanned - begun, "others": others / 1e3, "whole": done - start,
                  "states": states, "layers": layers}))
"""


def distribution(site: Path, name: str, namespace: str = "", text: str = "") -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n{'Words. ' * 200}\n"
    )
    (info / "RECORD").write_text("")
    if not namespace:
        (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = {name}:main\n")
        return
    (site / f"{name}.py").write_text(text)
    groups = (f"[tactix.{group}.v1]\n{namespace} = {name}\n" for group in ("build", "runtime"))
    (info / "entry_points.txt").write_text("\n".join(groups))


def crowd(site: Path, packs: int) -> None:
    """Fill a folder like site-packages."""
    for i in range(DISTRIBUTIONS - packs):
        distribution(site, f"plain{i}")
    for i in range(packs):
        broken = i < BROKEN
        namespace = "twin" if BROKEN <= i < BROKEN + CLASHING else f"pack{i}"
        text = (
            "raise ImportError('a library is missing')\n"
            if broken
            else PACK.format(namespace=namespace)
        )
        distribution(site, f"crowd{i}", namespace, text)


def measure(site: Path, rounds: int) -> dict[str, object]:
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    rows = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout))
    times = {k: statistics.median(r[k] for r in rows) * 1e3 for k in ("scan", "others", "whole")}
    return {**times, "states": rows[0]["states"], "layers": rows[0]["layers"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(
        "| environment | scan ms | packs beside tactix ms | import to layers ms | states | layers |"
    )
    print("|---|---|---|---|---|---|")
    for packs in (0, PACKS):
        with tempfile.TemporaryDirectory() as folder:
            crowd(Path(folder), packs)
            r = measure(Path(folder), options.rounds)
        states = ", ".join(f"{n} {state}" for state, n in sorted(r["states"].items()))  # type: ignore[attr-defined]
        row = [
            f"{DISTRIBUTIONS} distributions, {packs} packs",
            *(f"{r[k]:.1f}" for k in ("scan", "others", "whole")),
        ]
        print(f"| {' | '.join([*row, states, str(r['layers'])])} |", flush=True)


if __name__ == "__main__":
    main()
