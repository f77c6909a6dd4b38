"""Rows of tables of few bits against numpy."""

from __future__ import annotations

from typing import Any

import harness as h
import numpy as np
import pytest

from tactix.base.errors import ExecutionError
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.move.few_bits_rows import FewBitsRowsTactic

ROWS = FewBitsRowsTactic()
RNG = np.random.default_rng(41)


def arrays_of(
    columns: int, bits: int, block: int, zeros: str = "", scales: str = "f4", count: Any = (2, 3)
) -> list[Any]:
    """Table, indices, scales and zero points: ``zeros`` is their dtype, none if empty."""
    n, blocks = 19, -(-columns // block)
    table = RNG.integers(0, 256, (n, -(-columns * bits // 8)), np.uint8)
    found = [
        table,
        RNG.integers(-n, n, count),
        RNG.uniform(0.01, 0.1, (n, blocks)).astype(scales),
        RNG.integers(0, 1 << bits, (n, blocks)).astype(zeros or "u1"),
    ]
    return found if zeros else found[:3]


def rows(columns: int, bits: int, block: int, **more: Any) -> h.Case:
    options = {name: more.pop(name) for name in ("device", "nt") if name in more}
    arrays = arrays_of(columns, bits, block, **more)
    fixed = [i for i in range(len(arrays)) if i != 1]
    fields = {"columns": columns, "bits": bits, "block_size": block}
    return h.Case(h.node("FewBitsGather", arrays, fixed, **fields), ROWS, arrays, **options)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_widths_and_sizes(bits: int) -> None:
    """The last block of a row may be a part, and its last byte, too."""
    h.check_all([rows(k, bits, block, nt=(1, 3)) for k in (1, 5, 32, 50, 96) for block in (16, 32)])


@pytest.mark.parametrize("zeros", ["", "u1", "f4", "f2"])
def test_scales_and_zero_points(zeros: str) -> None:
    h.check_all([rows(70, 4, 32, zeros=zeros, scales=scales) for scales in ("f4", "f2")])


def test_every_instruction_set() -> None:
    cases = [rows(70, 4, 32, zeros="u1", scales="f2", device=d) for d in h.devices()]
    h.check_all([*cases, *(rows(96, 8, 16, device=d) for d in h.devices())])


def test_no_rows_and_no_axes() -> None:
    h.check_all([rows(40, 4, 16, count=(0,)), rows(40, 4, 16, count=())])


def test_an_index_beyond_the_table_is_refused() -> None:
    arrays = arrays_of(32, 4, 32)
    arrays[1][0, 0] = 19
    node = h.node("FewBitsGather", arrays, [0, 2], columns=32)
    with pytest.raises(ExecutionError, match="19"):
        node.layer.reference(node.attrs, *arrays)


def test_what_it_leaves_to_others() -> None:
    wide = arrays_of(32, 4, 32, scales="f8")
    odd = arrays_of(30, 4, 3)
    for arrays, fields in ((wide, {"columns": 32}), (odd, {"columns": 30, "block_size": 3})):
        node = h.node("FewBitsGather", arrays, [0, 2], **fields)
        assert isinstance(ROWS.match(node, h.NATIVE), Reject)
