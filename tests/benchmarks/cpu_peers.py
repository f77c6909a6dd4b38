#!/usr/bin/env python3
"""tactix beside ONNX Runtime and OpenVINO on exported models: the same inputs, shapes, threads and
run.

    python tests/benchmarks/cpu_peers.py --models DIR [--only resnet50,mlp] [--precision fp32,bf16,int8]
        [--batch 1,8] [--threads 1,2] [--rounds 5] [--quantized DIR] [--write docs/benchmarks.md] [--quick]

Each engine runs in a process of its own, with shapes fixed to the inputs; rounds of the engines are
interleaved, and so are samples of what the machine can do (roofline.c): a figure is the median over
rounds. DIR holds NAME.onnx files; a manifest.json beside them may say which have no batch
(`"batch8": false`), and --quantized holds the Q/DQ files. A batch above 1 is measured for models
with an open first axis.

fp32: OpenVINO is held to float32. bf16: tactix may compute in bfloat16, OpenVINO does as it likes,
ONNX Runtime cannot.
int8: the Q/DQ files, the rest as under bf16. Prints Markdown tables; exits 1 if tactix fails, or
departs from ONNX Runtime by more than the precision allows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import peer_report as report
from peer_engines import ENGINES, installed
from peer_inputs import has_batch, make_inputs
from peer_process import Peer, PeerFailed
from peer_report import Row, Setting
from roofline import Machine, Work, count
from rounds import in_turn, words

__all__ = ["main", "make_inputs"]

ALLOWED = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.3}
"""Largest departure from ONNX Runtime, relative to the output's largest magnitude; ONNX Runtime's
own int8 rounds.
"""


def departure(ours: Path, theirs: Path) -> float:
    """Largest difference relative to the largest magnitude there; infinite if shapes differ."""
    x, y = np.load(ours), np.load(theirs)
    if any(x[k].shape != y[k].shape for k in y.files):
        return float("inf")
    return max(float(np.abs(x[k] - y[k]).max() / max(np.abs(y[k]).max(), 1e-12)) for k in y.files)


class Benchmark:
    """One run: the machine's own process, the engines to compare, and what the command line asked
    for.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.machine = Machine()
        self.engines = [e for e in args.engines if installed(e)]

    def row(self, path: Path, setting: Setting) -> Row:
        """Measure one model."""
        row = Row(path.stem)
        feed = make_inputs(path, setting.batch)
        work = self._work(path, {name: x.shape for name, x in feed.items()}, setting)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            inputs = Path(folder, "in.npz")
            np.savez(inputs, **feed)  # type: ignore[arg-type]
            peers = {}
            for e in self.engines:
                self._say(f"{setting.title}: {path.stem}: preparing {e}")
                with self._noting(row, e):
                    peers[e] = self._start(e, path, setting, inputs)
                    stack.callback(peers[e].close)
                    row.facts[e] = peers[e].facts
            self._rounds(row, peers, work, setting)
            outputs = [Path(folder, f"{e}.npz") for e in ("tactix", "onnxruntime")]
            if all(f.exists() for f in outputs):
                row.error = departure(*outputs)
        return row

    def _work(
        self, path: Path, shapes: dict[str, tuple[int, ...]], setting: Setting
    ) -> Work | None:
        """None where tactix cannot import the model: that engine then says why."""
        from tactix.base.errors import TactixError

        with contextlib.suppress(TactixError):
            return count(path, shapes, setting.precision)
        return None

    def _start(self, engine: str, path: Path, setting: Setting, inputs: Path) -> Peer:
        return Peer(
            engine,
            path.absolute(),
            setting.threads,
            self.args.timeout,
            inputs=inputs,
            outputs=inputs.with_name(f"{engine}.npz"),
            precision=setting.precision,
            level=self.args.level,
        )

    @contextlib.contextmanager
    def _noting(self, row: Row, engine: str) -> Iterator[None]:
        try:
            yield
        except PeerFailed as e:
            row.failures[engine] = str(e)

    def _rounds(
        self, row: Row, peers: dict[str, Peer], work: Work | None, setting: Setting
    ) -> None:
        """In turns, each round beginning with another engine."""
        samples: dict[str, list[float]] = {e: [] for e in peers}
        floors: list[float] = []
        for turn in range(self.args.rounds):
            self._say(f"{setting.title}: {row.model}: round {turn + 1} of {self.args.rounds}")
            for e in in_turn(list(peers), turn):
                if e not in row.failures:
                    with self._noting(row, e):
                        samples[e].append(peers[e].round(self.args.seconds))
            if work:
                floors.append(self.machine.least_seconds(work, setting.precision, setting.threads))
        row.seconds = {
            e: statistics.median(s) for e, s in samples.items() if s and e not in row.failures
        }
        row.floor = statistics.median(floors) if floors else None

    def table(self, paths: Sequence[Path], setting: Setting) -> tuple[str, list[Row]]:
        """The section of a document, and its rows; they are also printed one by one."""
        print(f"\n### {setting.title}\n\n{report.table_head(self.engines)}", flush=True)
        rows = []
        for path in paths:
            rows.append(self.row(path, setting))
            self._say("")
            print(report.table_row(rows[-1], self.engines), flush=True)
        end = (
            f"{report.summary(rows, self.engines)}\n\n{report.versions(rows)}; {report.machine()}."
        )
        print(f"\n{end}", flush=True)
        lines = [
            report.table_head(self.engines),
            *(report.table_row(r, self.engines) for r in rows),
        ]
        return "\n".join([f"`{self.args.command}`", "", *lines, "", end]), rows

    @staticmethod
    def _say(text: str) -> None:
        """Progress, on one line of a terminal."""
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def models(args: argparse.Namespace, setting: Setting) -> list[Path]:
    """The files of a setting, smallest first."""
    folder = args.quantized if setting.precision == "int8" else args.models
    found = sorted(folder.glob("*.onnx"), key=lambda p: (_size(p), p.stem)) if folder else []
    facts = args.models / "manifest.json"
    manifest = json.loads(facts.read_text()) if facts.exists() else {}
    batched = {p for p in found if has_batch(p) and manifest.get(p.stem, {}).get("batch8", True)}
    return [
        p
        for p in found
        if (not args.only or p.stem in args.only) and (setting.batch == 1 or p in batched)
    ]


def _size(path: Path) -> int:
    """Bytes with the weights that stand in a file beside it."""
    beside = path.with_name(path.name + ".data")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)


def arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(w) for w in words(text)]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--models",
        type=Path,
        default=Path(os.environ.get("TACTIX_MODELS", "models")),
        help="folder of NAME.onnx",
    )
    add("--quantized", type=Path, help="folder of Q/DQ NAME.onnx, for int8")
    add("--only", type=words, default=[], help="these models, comma-separated")
    add(
        "--engines",
        type=words,
        default=list(ENGINES),
        help=f"default: those installed of {','.join(ENGINES)}",
    )
    add("--precision", type=words, default=["fp32"], help="fp32, bf16, int8 (default: fp32)")
    add("--batch", type=numbers, default=[1], help="default: 1")
    add("--threads", type=numbers, default=[1], help="default: 1")
    add("--rounds", type=int, default=5, help="default: 5")
    add("--seconds", type=float, default=0.3, help="of one round, at least 3 calls (default: 0.3)")
    add("--level", type=int, default=3, help="optimization level of the tactix builds (default: 3)")
    add(
        "--timeout",
        type=float,
        default=900,
        help="seconds for one answer of an engine (default: 900)",
    )
    add("--quick", action="store_true", help="2 rounds of 0.05 s, to see that all works")
    add("--write", type=Path, help="also put the tables between the markers of this document")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 2, 0.05
    wrong = set(args.precision) - set(ALLOWED) or set(args.engines) - set(ENGINES)
    if wrong:
        parser.error(f"unknown: {', '.join(sorted(wrong))}")
    if "int8" in args.precision and not args.quantized:
        parser.error("int8 needs --quantized")
    args.command = _shown(sys.argv[1:])
    return args


def _shown(words: Sequence[str]) -> str:
    """The command as another machine would run it: without the folders' names."""
    hidden = {"--models": "MODELS", "--quantized": "QUANTIZED", "--write": "docs/benchmarks.md"}
    pairs = zip(["", *words], words)
    return f"python tests/benchmarks/cpu_peers.py {shlex.join(hidden.get(last, w) for last, w in pairs)}".strip()


def main() -> int:
    args = arguments()
    benchmark = Benchmark(args)
    wrong = False
    for setting in (
        Setting(p, b, t) for p in args.precision for b in args.batch for t in args.threads
    ):
        paths = models(args, setting)
        if not paths:
            print(f"\nno model for {setting.title}", file=sys.stderr)
            continue
        text, rows = benchmark.table(paths, setting)
        wrong = wrong or any(
            "tactix" in r.failures or (r.error or 0) > ALLOWED[setting.precision] for r in rows
        )
        if args.write:
            report.write(args.write, {setting.title: text})
    benchmark.machine.close()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
