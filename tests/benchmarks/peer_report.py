"""Rows of measurements as Markdown, and their place between the markers of a document."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_engines import TITLES

BEGIN, END = "<!-- cpu_peers: begin -->", "<!-- cpu_peers: end -->"


@dataclass(frozen=True)
class Setting:
    """What a table is about."""

    precision: str
    batch: int
    threads: int

    @property
    def title(self) -> str:
        return (
            f"{self.precision}, batch {self.batch}, {self.threads} thread{'s' * (self.threads > 1)}"
        )


@dataclass
class Row:
    """One model: medians in seconds, facts and failures by engine; ``error`` is tactix's against
    ONNX Runtime.
    """

    model: str
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    floor: float | None = None
    error: float | None = None

    def ratio(self, engine: str) -> float | None:
        """tactix's time over that engine's; ``best`` is the fastest peer."""
        ours = self.seconds.get("tactix")
        peers = [s for e, s in self.seconds.items() if e != "tactix"]
        theirs = min(peers, default=None) if engine == "best" else self.seconds.get(engine)
        return None if ours is None or theirs is None else ours / theirs

    @property
    def roofline(self) -> float | None:
        ours = self.seconds.get("tactix")
        return None if ours is None or self.floor is None else self.floor / ours


def table_head(engines: Sequence[str]) -> str:
    columns = [
        "model",
        *(f"{TITLES[e]} ms" for e in engines),
        "ratio to the faster peer",
        "roofline",
        "largest error",
    ]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def table_row(row: Row, engines: Sequence[str]) -> str:
    cells = [row.model, *(_time(row, e) for e in engines), _number(row.ratio("best"))]
    cells += ["-" if row.roofline is None else f"{row.roofline:.0%}"]
    cells += ["-" if row.error is None else f"{row.error:.1e}"]
    return f"| {' | '.join(cells)} |"


def _time(row: Row, engine: str) -> str:
    return f"{row.seconds[engine] * 1e3:.4g}" if engine in row.seconds else "failed"


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def summary(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """Geometric means, and what failed."""
    peers = [e for e in engines if e != "tactix"]
    parts = [f"{_mean(r.ratio(e) for r in rows)} to {TITLES[e]}" for e in peers]
    if len(peers) > 1:
        parts.append(f"{_mean(r.ratio('best') for r in rows)} to the faster of them")
    lines = [f"Geometric means of the ratios: {', '.join(parts)}."] if parts else []
    lines.append(f"Of the roofline: {_mean(r.roofline for r in rows)} (geometric mean).")
    failed = [f"- {r.model}, {TITLES[e]}: {why}" for r in rows for e, why in r.failures.items()]
    return "\n".join([" ".join(lines), *(["", "Failed:", *failed] if failed else [])])


def _mean(found: Iterable[float | None]) -> str:
    known = [x for x in found if x]
    return f"{math.exp(statistics.fmean(map(math.log, known))):.2f}" if known else "-"


def versions(rows: Iterable[Row]) -> str:
    """``tactix 0.1.0, ONNX Runtime 1.31.1``; with the precision that an engine says it computes in."""
    said: dict[str, str] = {}
    for row in rows:
        for engine, facts in row.facts.items():
            computing = f" ({facts['precision']})" if "precision" in facts else ""
            said.setdefault(engine, f"{TITLES[engine]} {facts['version']}{computing}")
    return ", ".join(said.values())


def machine() -> str:
    """The processor, how many of it are usable, and the system."""
    import os

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = named or platform.processor() or platform.machine()
    return f"{name}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def write(path: Path, sections: Mapping[str, str]) -> None:
    """Put sections (text by title) between the markers; those there with other titles stay. Raises
    ValueError.
    """
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{path} needs one line {BEGIN} and one line {END}")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    known = dict(part.split("\n", 1) for part in old.strip().split("### ") if part.strip())
    known = {title.strip(): body.strip() for title, body in known.items()} | dict(sections)
    body = "\n\n".join(
        f"### {title}\n\n{known[title].strip()}" for title in sorted(known, key=_order)
    )
    path.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")


def _order(title: str) -> tuple[int, str]:
    kinds = ("fp32", "bf16", "int8")
    return (next((i for i, k in enumerate(kinds) if title.startswith(k)), len(kinds)), title)
