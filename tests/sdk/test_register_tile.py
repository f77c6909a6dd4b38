"""Accumulators that keep a register all along, where there are 16."""

from __future__ import annotations

import re

import pytest

from tactix_codegen.c.tile import RegisterTile


@pytest.mark.parametrize(
    ("rows", "vectors", "chains"), [(6, 2, 1), (4, 3, 1), (12, 1, 1), (2, 2, 2)]
)
def test_accumulators_have_registers_of_their_own(rows: int, vectors: int, chains: int) -> None:
    """The last ones, so that what else a step needs has the first."""
    tile = RegisterTile(rows, vectors, 8, chains, keeps=True)
    numbers = [int(n) for n in re.findall(r"TX_KEPT\((\d+)\)", tile.zero())]
    assert numbers == list(range(16 - rows * vectors * chains, 16))
    assert numbers[0] > vectors
    assert tile.steps(1, lambda m, u: f"x[{m}]").count("tx_fma(") == rows * vectors


@pytest.mark.parametrize(
    "tile",
    [
        RegisterTile(
            3, 4, 8, keeps=True
        ),  # 12 accumulators, 4 vectors of the right side and an element
        RegisterTile(8, 3, 16, keeps=True),
        RegisterTile(6, 2, 4, keeps=True),
        RegisterTile(6, 2, 8),
        RegisterTile(4, 3, 8, pairs=True, keeps=True),
    ],
    ids=str,
)
def test_others_are_left_to_the_compiler(tile: RegisterTile) -> None:
    assert "register" not in tile.zero()
    assert "tx_fma" not in tile.steps(1, lambda m, u: f"x[{m}]")
