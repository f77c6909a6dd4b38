from __future__ import annotations

import io
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from tactix_tools import show


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 us"), (1.234e-6, "1.23 us"), (45.67e-6, "45.7 us"), (999e-6, "999 us"),
     (1e-3, "1.00 ms"), (75.0, "75.0 s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 << 20, "3.00 MiB"), (5 << 40, "5120.00 GiB")]
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert show.size(count) == text


def test_tables_take_markup_literally() -> None:
    out = Console(file=io.StringIO(), width=60)
    out.print(show.table("T", ["name", "n"], [("[bold]x[/]", 3)], right=["n"]))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]x[/]" in text
    assert "3" in text


def test_json_of_numpy_and_sets(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_json({"a": np.float32(1.5), "b": {"y", "x"}, "c": np.int64(3)})
    assert json.loads(capsys.readouterr().out) == {"a": 1.5, "b": ["x", "y"], "c": 3}


def test_a_pipe_is_as_wide_as_the_terminal_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    for columns in (77, 210):
        monkeypatch.setattr(
            os, "get_terminal_size", lambda fd, n=columns: os.terminal_size((n, 24))
        )
        monkeypatch.setattr(show, "_streams", lambda: [SimpleNamespace(fileno=lambda: 0)])
        assert show.console().width == columns


def test_without_a_terminal_lines_are_as_wide_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setattr(show, "_streams", lambda: [None])
    assert show.console().width == show.PIPE_WIDTH
