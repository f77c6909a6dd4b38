from __future__ import annotations

import io
import os
import signal
import time

import pytest
from rich.console import Console

from tactix_tools.progress import BuildProgress, Forecast


def walk(monitor: BuildProgress) -> None:
    monitor.phase("import", 0)
    monitor.finish("import")
    monitor.phase("measure", 3)
    for i in range(3):
        monitor.step(
            "measure", i + 1, "a very long name of a fused layer that needs to be cut somewhere"
        )
    monitor.finish("measure")
    monitor.phase("own stage", 0)
    monitor.finish("own stage")


def text_of(terminal: bool, quiet: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=140)
    with BuildProgress(console, quiet) as monitor:
        walk(monitor)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_lines_without_a_terminal() -> None:
    lines = text_of(terminal=False).splitlines()
    assert [line.split("done in ")[0] for line in lines] == [
        "import model: ",
        "measure tactics: 3 ",
        "own stage: ",
    ]


def test_a_stage_that_ends_early_says_how_far_it_came() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=140)
    with BuildProgress(console) as monitor:
        monitor.phase("compile", 97)
        monitor.step("compile", 12)
        monitor.finish("compile")
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "compile kernels: 12 of 97 done in " in text


def test_bars_on_a_terminal() -> None:
    text = text_of(terminal=True)
    assert "measure tactics" in text
    assert "3/3" in text


@pytest.mark.parametrize("width", [60, 80, 119, 120, 200])
def test_bars_keep_their_length(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    with BuildProgress(console) as monitor:
        walk(monitor)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "━" * 10 in text
    assert ("a very long name" in text) <= (width >= 120)


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet(terminal: bool) -> None:
    assert text_of(terminal, quiet=True) == ""


def test_first_interrupt_cancels_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    console = Console(file=io.StringIO())
    with BuildProgress(console) as monitor:
        assert not monitor.cancelled()
        os.kill(os.getpid(), signal.SIGINT)
        assert monitor.cancelled()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "Ctrl-C again" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_first_interrupt_raises_where_nothing_is_kept() -> None:
    with (
        BuildProgress(Console(file=io.StringIO()), keeps=False) as monitor,
        pytest.raises(KeyboardInterrupt),
    ):
        os.kill(os.getpid(), signal.SIGINT)
    assert not monitor.cancelled()


class Hands:
    """A clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_time_left_counts_what_is_compiled_and_what_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 kernels of 0.2 s in two batches, after each of which 10 layers are raced for 0.15 s."""
    clock = Hands(monkeypatch)
    forecast = Forecast()
    forecast.begin("compile", 40)
    forecast.begin("measure", 20)
    assert forecast.left("compile") is None
    shown: list[tuple[float, float]] = []
    for batch in (0, 1):
        for i in range(20):
            clock.now += 0.2
            forecast.step("compile", 20 * batch + i + 1)
            shown.append((clock.now, forecast.left("compile") or 0.0))
        for i in range(10):
            clock.now += 0.15
            forecast.step("measure", 10 * batch + i + 1)
            assert forecast.left("measure") == forecast.left("compile")
            shown.append((clock.now, forecast.left("compile") or 0.0))
    assert clock.now == pytest.approx(111)
    for at, left in (x for x in shown if 102.75 < x[0] < 111):
        assert left == pytest.approx(111 - at, abs=0.1, rel=0.3)


def test_time_left_goes_down_between_steps_and_never_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Hands(monkeypatch)
    forecast = Forecast()
    forecast.begin("kernels", 4)
    clock.now += 2
    forecast.step("kernels", 1)
    assert forecast.left("kernels") == pytest.approx(6)
    clock.now += 5
    assert forecast.left("kernels") == pytest.approx(1)
    clock.now += 5
    assert forecast.left("kernels") == 0


def test_time_left_is_shown_while_the_first_kernels_compile() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    with BuildProgress(console) as monitor:
        monitor.phase("compile", 90)
        monitor.phase("measure", 20)
        monitor.step("compile", 1)
        monitor._bars.refresh()
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0:00:00" in text.split("compile kernels")[-1].split("left")[1]
