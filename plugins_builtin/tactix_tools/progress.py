"""A build's progress on a terminal: stages, layers, time left; and what Ctrl-C does meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import TimeRemainingColumn as TimeLeftColumn
from rich.table import Column

WIDE, WIDE_BAR, NARROW_BAR = 120, 24, 10
"""Columns of a terminal on which the name of a layer has room, and of a bar there and on others."""

TITLES = {
    "import": "import model",
    "calibrate": "observe sample inputs",
    "accuracy": "try layers in floats",
    "fuse": "fuse layers",
    "bid": "collect bids of tactics",
    "ahead": "compile what estimates choose",
    "compile": "compile kernels",
    "measure": "measure tactics",
    "choose": "choose tactics and formats",
    "assemble": "assemble plan",
    "kernels": "compile the plan's kernels",
}


class BuildProgress:
    """A ProgressMonitor and a context manager. Without a terminal one line tells of each finished
    stage.

    ``keeps``: a plan that was not measured to its end is of use, so the first Ctrl-C only ends the
    measuring. What cannot give a plan yet, as importing, sets it to False meanwhile.
    """

    def __init__(self, console: Console, quiet: bool = False, keeps: bool = True) -> None:
        self.console, self.quiet, self.keeps = console, quiet, keeps
        self.stopped = False
        self._live = console.is_terminal and not quiet
        self._bars = Progress(*_columns(console.width), console=console, disable=not self._live)
        self._tasks: dict[str, Any] = {}
        self._since: dict[str, float] = {}
        self._previous: Any = None

    def phase(self, name: str, total: int) -> None:
        self._since[name] = time.monotonic()
        self._tasks[name] = self._bars.add_task(TITLES.get(name, name), total=total or None, now="")

    def step(self, name: str, done: int, message: str = "") -> None:
        self._bars.update(self._tasks[name], completed=done, now=_short(message))

    def finish(self, name: str) -> None:
        task = self._bars.tasks[self._bars.task_ids.index(self._tasks[name])]
        known, total = task.total is not None, task.total or 1
        if known and task.completed < total:
            count = f"{task.completed:g} of {total:g} "
            self._bars.stop_task(self._tasks[name])
        else:
            count = f"{total:g} " if known else ""
            self._bars.update(self._tasks[name], total=total, completed=total, now="")
        if not self._live and not self.quiet:
            seconds = time.monotonic() - self._since[name]
            self.console.print(
                f"{TITLES.get(name, name)}: {count}done in {seconds:.1f} s", highlight=False
            )

    def cancelled(self) -> bool:
        return self.stopped

    def __enter__(self) -> BuildProgress:
        self._bars.start()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        self._bars.stop()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.stopped or not self.keeps:
            raise KeyboardInterrupt
        self.stopped = True
        self.console.print(
            "stopping: the rest is chosen by estimate, and only what the plan needs is compiled; "
            "press Ctrl-C again to give up",
            style="yellow",
        )


def _columns(width: int) -> list[ProgressColumn]:
    """Spinner, stage, bar, count and times; on a wide terminal also what is at work now."""
    narrow = width < WIDE
    bar = NARROW_BAR if narrow else WIDE_BAR
    columns = [
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description:<27}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=bar, table_column=Column(min_width=bar)),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeftColumn(),
    ]
    return columns if narrow else [*columns, TextColumn("[dim]{task.fields[now]}")]


def _short(message: str, width: int = 36) -> str:
    return message if len(message) <= width else message[: width - 1] + "…"
