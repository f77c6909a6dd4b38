"""Numbers and tables for people; one JSON document for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from tactix.base.logger import printable

PIPE_WIDTH = 160
"""Columns of what goes to a file."""


def errors_console() -> Console:
    """Where progress and messages go: stderr."""
    return Console(stderr=True, highlight=False)


def console() -> Console:
    """Where results go: stdout; into a pipe in lines as wide as the terminal that reads it, as far
    as there is one.
    """
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if told else _terminal_width() or PIPE_WIDTH)


def _terminal_width() -> int:
    """Columns of the terminal that this process belongs to, told by its other streams; 0 if it has
    none.
    """
    for stream in _streams():
        try:
            if stream is not None:
                return os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):  # no terminal, or a closed stream
            continue
    return 0


def _streams() -> list[TextIO | None]:
    return [sys.__stderr__, sys.__stdin__]


def print_json(document: Any) -> None:
    """One JSON document and a line end on stdout."""
    json.dump(document, sys.stdout, indent=2, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """numpy scalars, sets and paths as JSON."""
    if hasattr(value, "item"):
        return value.item()
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> Table:
    """A rich table; columns named in ``right`` are aligned there and never folded."""
    out = Table(
        title=_cell(title),
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for c in columns:
        out.add_column(
            c, justify="right" if c in right else "left", no_wrap=c in right, overflow="fold"
        )
    for row in rows:
        out.add_row(*(_cell(x) for x in row))
    return out


def _cell(value: object) -> str:
    from rich.markup import escape

    return escape(printable(str(value)))


def line(console: Console, text: str) -> None:
    """Print text as it is, but for control characters, on one line."""
    console.print(printable(text), markup=False, soft_wrap=True)


def size(count: float) -> str:
    """``1.50 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"


_UNITS = (("us", 1e6), ("ms", 1e3), ("s", 1.0))


def duration(seconds: float) -> str:
    """``12.3 us``, ``4.56 ms``, ``1.20 s``: three digits."""
    unit, factor = next((u for u in _UNITS if seconds * u[1] < 1000), _UNITS[-1])
    return f"{seconds * factor:.{_decimals(seconds * factor)}f} {unit}"


def _decimals(x: float) -> int:
    return 2 if x < 10 else 1 if x < 100 else 0
