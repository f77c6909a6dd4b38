#!/usr/bin/env python3
"""Single layers on the CPU beside ONNX Runtime: the same one-layer model, inputs and threads.

    python tests/benchmarks/layers.py [--only 'Conv*'] [--rounds 7] [--seconds 0.02] [--threads 1]
        [--level 3] [--rows FILE] [--again RATIO] [--write docs/layer-times.md]

Each case (layer_cases) is built by both with its shapes fixed, run once, compared, and timed in
turns; a figure is the median over rounds of the median call from Python. ``--only`` takes
patterns of names or families, separated by ``;``. Ctrl-C ends the timing, and prints what there is;
with ``--rows`` another run goes on from there. ``--again`` builds and times anew which of these
rows are over a ratio: on a busy machine single rows are far off.

Prints a Markdown table as it goes, then a summary by family. A result that departs from ONNX
Runtime's by more than the dtype allows is *wrong* in the table; where ONNX Runtime departs from
ONNX's reference, which its case says, that is what counts. Exits 1 if there is one, or if
tactix fails where ONNX Runtime does not.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.metadata
import json
import math
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import peer_report as report
from layer_cases import Case, cases
from peer_engines import Call, time_round

import tactix

SLOW, LONG = 1.5, 20e-6
"""What the summary counts: over SLOW times ONNX Runtime's time where that is over LONG seconds."""
ROUNDING = {"f": 1e-4, "e": 4e-3, "d": 1e-9}
"""Departure allowed by a dtype's character, relative to the largest magnitude, times the slack of
a case; the other dtypes must be equal, but for bytes that are quantized."""
HEAD = "| case | tactix us | ONNX Runtime us | ratio |\n|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """One case: medians in seconds, or why there are none."""

    case: Case
    ours: float | None = None
    theirs: float | None = None
    trouble: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.ours is None or self.theirs is None else self.ours / self.theirs

    @property
    def is_slow(self) -> bool:
        return (self.ratio or 0) > SLOW and (self.theirs or 0) > LONG

    @property
    def is_failure(self) -> bool:
        """Of ours: what ONNX Runtime refuses is none."""
        return bool(self.trouble) and not self.trouble.startswith("ONNX Runtime")

    def line(self) -> str:
        times = (f"{t * 1e6:.1f}" if t is not None else "-" for t in (self.ours, self.theirs))
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        last = f"**{ratio}**" if self.is_slow else ratio
        cells = [f"`{self.case.name}`", *times, f"{last} {self.trouble}".strip()]
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Terms:
    """How a case is built and timed."""

    threads: int
    level: int | None
    rounds: int
    seconds: float

    def row(self, case: Case) -> Row:
        """Build, compare and time one case; what fails is in the row."""
        feed = case.feed()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "layer.onnx")
            path.write_bytes(case.model().SerializeToString())
            try:
                theirs = self._theirs(path, feed)
                want = _referred(path, feed) if case.by_reference else theirs()
            except Exception as e:  # its errors have no common class
                return Row(case, trouble=f"ONNX Runtime: {_first_line(e)}")
            try:
                ours = self._ours(path, feed)
                got = ours()
            except tactix.TactixError as e:
                return Row(case, trouble=f"failed: {_first_line(e)}")
        times = [(time_round(ours, 0), time_round(theirs, 0))]
        for turn in range(self.rounds):
            first, second = (ours, theirs) if turn % 2 else (theirs, ours)
            pair = time_round(first, self.seconds), time_round(second, self.seconds)
            times.append(pair if turn % 2 else pair[::-1])
        us, them = (statistics.median(column) for column in zip(*times[1:] or times))
        return Row(case, us, them, difference(case, got, want))

    def _ours(self, path: Path, feed: dict[str, np.ndarray]) -> Call:
        level = {} if self.level is None else {"level": self.level}
        engine = tactix.build(path, threads=self.threads, logger=_QUIET, **level)
        arrays = [feed[io.name] for io in engine.inputs]
        names = [io.name for io in engine.outputs]

        def call() -> list[np.ndarray]:
            y = engine(*arrays)
            return [y[n] for n in names] if isinstance(y, dict) else [y]

        return call

    def _theirs(self, path: Path, feed: dict[str, np.ndarray]) -> Call:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 4
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feed)


def _referred(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's own reference gives."""
    from onnx.reference import ReferenceEvaluator

    made: list[np.ndarray] = ReferenceEvaluator(str(path)).run(None, feed)
    return made


_QUIET = tactix.Logger(tactix.Severity.ERROR)


def _first_line(e: Exception) -> str:
    return " ".join(str(e).split())[:160].replace("|", "/")


def difference(case: Case, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    """What is wrong with a result; an empty text if nothing is."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"wrong: output {i} is {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if (off := departure(g, w)) > _allowed(case, w.dtype):
            return f"wrong: output {i} is off by {off:.1e}"
    return ""


def _allowed(case: Case, dtype: np.dtype) -> float:
    if case.family == "quantized" and dtype.kind in "iu":
        return 1.0  # both round, in float32 or in integers: one step
    return ROUNDING.get(dtype.char, 0.0) * (min(case.slack, 4) if dtype.char == "e" else case.slack)


def departure(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference: of floats relative to the largest magnitude, of others as it is. NaN and
    infinities must be the same.
    """
    if want.dtype.kind != "f":
        return float(np.max(np.abs(got.astype(np.float64) - want.astype(np.float64)), initial=0))
    x, y = got.astype(np.float64), want.astype(np.float64)
    known = np.isfinite(y)
    if not np.array_equal(x[~known], y[~known], equal_nan=True) or not np.isfinite(x[known]).all():
        return math.inf
    most = max(float(np.max(np.abs(y[known]), initial=0)), 1e-12)
    return float(np.max(np.abs(x[known] - y[known]), initial=0)) / most


def chosen(patterns: Sequence[str]) -> list[Case]:
    """The cases whose name or family fits a pattern; all if there is none."""
    return [
        c
        for c in cases()
        if not patterns
        or any(fnmatch.fnmatchcase(n, p) for p in patterns for n in (c.name, c.family))
    ]


class KeptRows:
    """Rows in a file, a line of JSON each; of a case that is there twice the last counts. Without a
    file none are kept, and none over the ratio ``again``.
    """

    def __init__(self, path: Path | None, again: float = math.inf) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        named = {c.name: c for c in cases()}
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for found in map(json.loads, lines):
            if case := named.get(found.pop("case")):
                self.rows[case.name] = Row(case, **found)
        self.rows = {n: r for n, r in self.rows.items() if (r.ratio or 0) <= again}

    def add(self, row: Row) -> None:
        if self.path is not None:
            fields = {"ours": row.ours, "theirs": row.theirs, "trouble": row.trouble}
            with self.path.open("a", encoding="utf-8") as f:
                f.write(json.dumps({"case": row.case.name, **fields}) + "\n")


def measure(wanted: Sequence[Case], terms: Terms, kept: KeptRows) -> list[Row]:
    """Row by row, printed as they come; those there are, if a Ctrl-C ends it. Rows that are kept
    are not measured again.
    """
    rows: list[Row] = []
    with contextlib.suppress(KeyboardInterrupt):
        for i, case in enumerate(wanted):
            if sys.stderr.isatty():
                place = f"{i + 1} of {len(wanted)}: {case.name}"
                print(f"\r\033[K{place}", end="", file=sys.stderr, flush=True)
            if case.name in kept.rows:
                rows.append(kept.rows[case.name])
            else:
                rows.append(terms.row(case))
                kept.add(rows[-1])
            if sys.stderr.isatty():
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            print(rows[-1].line(), flush=True)
    return rows


def summary(rows: Sequence[Row]) -> str:
    """By family, and what is slow, wrong, or was not built."""
    lines = [
        f"| family | cases | geometric mean | median | over {SLOW} where ONNX Runtime takes over {LONG * 1e6:.0f} us |",
        "|---|---|---|---|---|",
    ]
    families = dict.fromkeys(r.case.family for r in rows)
    lines += [_family_line(name, [r for r in rows if r.case.family == name]) for name in families]
    lines.append(_family_line("all", rows))
    judged = [r for r in rows if r.case.by_reference and not r.trouble]
    lists = {
        f"Over {SLOW}, worst first": sorted((r for r in rows if r.is_slow), key=lambda r: -(r.ratio or 0)),
        "Wrong, or failed": [r for r in rows if r.is_failure],
        "Right by ONNX's reference, from which ONNX Runtime departs": judged,
        "Refused by ONNX Runtime": [r for r in rows if r.trouble and not r.is_failure],
    }  # fmt: skip
    for title, found in lists.items():
        if found:
            lines += ["", f"{title}:", "", *(f"- {_told(r)}" for r in found)]
    return "\n".join(lines)


def _told(row: Row) -> str:
    ratio = "" if row.ratio is None else f": {row.ratio:.2f}"
    return f"`{row.case.name}`{ratio}{': ' * bool(row.trouble)}{row.trouble}"


def _family_line(name: str, rows: Sequence[Row]) -> str:
    known = [r.ratio for r in rows if r.ratio is not None]
    mean = f"{math.exp(statistics.fmean(map(math.log, known))):.2f}" if known else "-"
    middle = f"{statistics.median(known):.2f}" if known else "-"
    return f"| {name} | {len(rows)} | {mean} | {middle} | {sum(r.is_slow for r in rows)} |"


def document(rows: Sequence[Row], command: str, again: float = math.inf) -> str:
    """The page: the machine, the summary, and a table for each family. ``again``: the ratio over
    which rows were measured once more.
    """
    twice = f" Rows over {again} were measured again, and the later figures stand here." * (
        again < math.inf
    )
    parts = [
        "# Times of single layers\n",
        "One-layer models on the CPU, built by tactix and by ONNX Runtime and run in turns; each figure is the median "
        "over rounds of the median call from Python. A ratio below 1 means that tactix is faster; one over "
        f"{SLOW} is bold where ONNX Runtime takes over {LONG * 1e6:.0f} us. Compare the columns of a row, not the "
        f"rows: the machine was busy.{twice}\n",
        f"`{command}`, {date.today()}: tactix {tactix.__version__}, ONNX Runtime {_version('onnxruntime')}; "
        f"{report.machine()}.\n",
        f"{summary(rows)}\n",
    ]
    for name in dict.fromkeys(r.case.family for r in rows):
        lines = [r.line() for r in rows if r.case.family == name]
        parts.append("\n".join([f"## {name.capitalize()}\n", HEAD, *lines, ""]))
    return "\n".join(parts)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def arguments(words: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default="", help="patterns of names or families, separated by ;")
    add("--rounds", type=int, default=7, help="default: 7")
    add(
        "--seconds", type=float, default=0.02, help="of one round, at least 3 calls (default: 0.02)"
    )
    add("--threads", type=int, default=1, help="default: 1")
    add(
        "--level", type=int, help="optimization level of the builds (default: that of tactix.build)"
    )
    add("--rows", type=Path, help="keep rows in this file; those in it are not measured again")
    add("--again", type=float, default=math.inf, help="do not keep rows over this ratio")
    add("--write", type=Path, help="also write the whole page to this file")
    return parser.parse_args(list(words))


def main(words: Sequence[str]) -> int:
    args = arguments(words)
    wanted = chosen([p for p in args.only.split(";") if p])
    if not wanted:
        print(f"no case is named {args.only!r}: try 'Conv*' or 'pools'", file=sys.stderr)
        return 2
    print(HEAD, flush=True)
    terms = Terms(args.threads, args.level, args.rounds, args.seconds)
    rows = measure(wanted, terms, KeptRows(args.rows, args.again))
    print(f"\n{summary(rows)}\n\n{report.machine()}")
    if args.write:
        shown = ["ROWS" if w == str(args.rows) else w for w in words]
        command = f"python tests/benchmarks/layers.py {shlex.join(shown)}".strip()
        args.write.write_text(document(rows, command, args.again), encoding="utf-8")
    return int(any(r.is_failure for r in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
