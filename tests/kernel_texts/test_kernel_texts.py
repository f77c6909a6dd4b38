"""The text of five kernels is the one that was reviewed."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import kernel_texts
from kernel_texts import COMMAND, GOLDENS, KernelText

LONGEST = 120
"""Columns."""


@pytest.mark.parametrize("text", kernel_texts.texts(), ids=lambda t: t.name)
def test_a_kernel_reads_as_its_golden(text: KernelText) -> None:
    golden, now = text.golden.read_text(encoding="utf-8"), text.source.text
    changed = "\n".join(
        difflib.unified_diff(golden.split("\n"), now.split("\n"), text.name, "now", "", "", 2, "")
    )
    assert golden == now, f"if the new text reads as well: {COMMAND}\n{changed}"


@pytest.mark.parametrize("text", kernel_texts.texts(), ids=lambda t: t.name)
def test_lines_fit_a_screen(text: KernelText) -> None:
    assert [line for line in text.source.text.split("\n") if len(line) > LONGEST] == []


def test_every_golden_is_compared() -> None:
    assert {p.name for p in GOLDENS.iterdir()} == {t.name for t in kernel_texts.texts()}
