"""docs/cuda.md lists the layers that have no kernel."""

from __future__ import annotations

from pathlib import Path

import census
import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "cuda.md"


def test_the_document_is_that_of_these_tactics() -> None:
    text = DOCUMENT.read_text()
    assert census.joined(text) == text, "run tests/builtin/cuda/census.py --write docs/cuda.md"


def test_every_layer_without_a_kernel_is_listed_once() -> None:
    table = census.table()
    assert census.missing()
    assert all(table.count(f"`{x.key}`") == 1 for x in census.missing())


def test_a_document_without_a_place_for_it() -> None:
    with pytest.raises(ValueError, match="census"):
        census.joined("# CUDA\n")
