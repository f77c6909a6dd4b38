"""A build's progress on a terminal: stages, layers, time left; and what Ctrl-C does meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

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


IN_TURNS = frozenset({"compile", "measure"})
"""Stages that go on by turns: what is left of one is not over before what is left of the other."""


@dataclass
class Stage:
    """Steps of a stage: how many there are, 0 if that is not known, how many are done, and seconds
    that went by for them. ``first``: done and seconds when it was first told of any.
    """

    total: int
    done: int = 0
    seconds: float = 0.0
    first: tuple[int, float] = (0, 0.0)

    @property
    def rate(self) -> float | None:
        """Seconds of a step; what came before the first, as headers for all kernels, is left out
        as soon as others are known.
        """
        if not self.done:
            return None
        done, seconds = self.first if self.done > self.first[0] else (0, 0.0)
        return (self.seconds - seconds) / (self.done - done)


class Forecast:
    """How long stages will go on, from what each of their steps took so far.

    Of stages in turns, the time between two steps is that of the stage of the second; a step of one
    that has made none yet is taken for half of one of the other (of resnet50, layers raced in 0.05
    s, kernels compiled in 0.09).
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._stages: dict[str, Stage] = {}

    def begin(self, name: str, total: int) -> None:
        """A stage of so many steps; 0 if that is not known."""
        self._last, self._stages[name] = time.monotonic(), Stage(total)

    def step(self, name: str, done: int) -> None:
        """So many steps of a stage are done."""
        now, stage = time.monotonic(), self._stages[name]
        stage.seconds += now - self._last
        self._last, stage.done = now, done
        if done and not stage.first[0]:
            stage.first = done, stage.seconds

    def left(self, name: str) -> float | None:
        """Seconds until the stage is over, and those in turns with it; None where that is not
        known.
        """
        begun = [s for n, s in self._stages.items() if n == name or {n, name} <= IN_TURNS]
        rates = [rate for s in begun if (rate := s.rate) is not None]
        if not rates:
            return None
        known = [(s, max(rates) / 2 if s.rate is None else s.rate) for s in begun]
        rest = sum(rate * (s.total - s.done) for s, rate in known)
        return max(0.0, rest - (time.monotonic() - self._last))


class TimeLeftColumn(ProgressColumn):
    """Minutes and seconds until a stage is over, as a Forecast has it; nothing where that is not
    known, or the stage is over.
    """

    max_refresh = 0.5

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast
        super().__init__()

    def render(self, task: Task) -> Text:
        left = None if task.finished else self._forecast.left(task.fields["stage"])
        if left is None:
            return Text("-:--:--" if not task.finished else "0:00:00", style="progress.remaining")
        minutes, seconds = divmod(round(left), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02}:{seconds:02}", style="progress.remaining")


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
        self._forecast = Forecast()
        columns = _columns(console.width, self._forecast)
        self._bars = Progress(*columns, console=console, disable=not self._live)
        self._tasks: dict[str, Any] = {}
        self._since: dict[str, float] = {}
        self._previous: Any = None

    def phase(self, name: str, total: int) -> None:
        self._since[name] = time.monotonic()
        self._forecast.begin(name, total)
        self._tasks[name] = self._bars.add_task(
            TITLES.get(name, name), total=total or None, now="", stage=name
        )

    def step(self, name: str, done: int, message: str = "") -> None:
        self._forecast.step(name, done)
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


def _columns(width: int, forecast: Forecast) -> list[ProgressColumn]:
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
        TimeLeftColumn(forecast),
    ]
    return columns if narrow else [*columns, TextColumn("[dim]{task.fields[now]}")]


def _short(message: str, width: int = 36) -> str:
    return message if len(message) <= width else message[: width - 1] + "…"
