"""The flow of sm_90a on the host, where matrix instructions, the copy engine and clusters are
functions.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path

import asked
import hopper_cases
import numpy as np
import pytest
import simt
from hopper_cases import TABLE, every_flow, tiles, windows
from product_cases import BYTES
from test_products_run import Mutated

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.flow import Flow

NAMES = [name for name in TABLE if name.split()[0] in ("gemm", "conv", "stem")]
TURNS, TOGETHER = Flow(64, 64, 3, 2, True, 1), Flow(128, 64, 8, 2, False, 1)
"""Teams that take turns, with less room than a tile has stages, and teams that share a tile."""
PARTS, LAID = Flow(64, 32, 8, 1, False, 4), Flow(128, 64, 8, 2, False, 2)
"""Parts of k, by one team and by two."""
PAIR, PAIR_IN_TURNS = replace(TOGETHER, paired=True), replace(TURNS, paired=True)
"""Blocks that fetch columns for each other."""


def best(case: simt.Case) -> simt.Case:
    offered = asked.variants(case.tactic, case.node, case.device)
    assert not isinstance(offered, Reject), offered.reason
    return replace(case, only=offered[:1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    simt.check_all([best(replace(c, device=hopper_cases.DEVICE)) for c in TABLE[name]()], tmp_path)


def test_every_flow_of_a_product(tmp_path: Path) -> None:
    simt.check_all([tiles("f16", f) for f in (*hopper.flows(), *hopper.pairs(), TURNS)], tmp_path)


def test_every_second_flow_of_a_product_of_bytes(tmp_path: Path) -> None:
    """The two types in turns, as their texts differ in nothing but the type's name."""
    turns = zip(cycle(BYTES), (*hopper.flows(), *hopper.pairs())[1::2], strict=False)
    simt.check_all([hopper_cases.byte_tiles(dtype, f) for dtype, f in turns], tmp_path)


def test_tiles_that_are_all_whole(tmp_path: Path) -> None:
    some = (TURNS, TOGETHER, PARTS, LAID, PAIR, PAIR_IN_TURNS)
    simt.check_all([tiles("f16", f, cut=False) for f in some], tmp_path)


def product(rows: Dim, cols: int) -> Node:
    return simt.h.node(
        "MatMul", [TensorSpec(DType.FP16, (rows, 40)), np.zeros((40, cols), np.float16)], [1]
    )


@pytest.mark.parametrize(("rows", "cols", "checks"), [
    (256, 128, False), (sym("b") * 128, 64, False), (sym("b"), 64, True), (256, 72, True), (200, 64, True),
])  # fmt: skip
def test_whole_tiles_have_no_checks(rows: Dim, cols: int, checks: bool) -> None:
    """Of whether a row or a column is past the last."""
    (variant,) = hopper.variants([TOGETHER])
    made = asked.artifact(
        hopper_cases.GEMM, product(rows, cols), variant, CompileContext(hopper_cases.DEVICE)
    )
    assert isinstance(made.code, Source)
    assert ("if (row >= " in made.code.text, "if (col < " in made.code.text) == (checks, checks)


def test_every_second_flow_of_a_convolution(tmp_path: Path) -> None:
    case = every_flow(windows("f16"))
    assert case.only
    simt.check_all([replace(case, only=case.only[::2])], tmp_path)


@pytest.mark.parametrize(
    ("flow", "old", "new"),
    [
        (TURNS, "tx_bar_wait(full + ring.stage * 8, ring.parity);", ""),
        (TURNS, "tx_bar_wait(empty + ring.stage * 8, ring.parity);", ";"),
        (TOGETHER, "tx_bar_wait(empty + ring.stage * 8, ring.parity);", ";"),
        (TOGETHER, "C::ALTERNATE ? 1 : C::TEAMS", "1"),
        (TOGETHER, "tx_ring<C> ring = {0, 1};", "tx_ring<C> ring = {0, 0};"),
        (TURNS, "tx_ring<C> ring = {0, 0};", "tx_ring<C> ring = {0, 1};"),
        (TURNS, "parity ^= stage / C::STAGES & 1;", ""),
        (TURNS, "if (C::ALTERNATE) tx_teams_sync<256>(team);", ""),
        (TURNS, "if (count) tx_release<C>(empty, last);", ""),
        (TOGETHER, "if (ahead)\n", "if (false)\n"),
        (TOGETHER, "C::SPLITS > 1 || i || k", "i || k > 1"),
        (PARTS, "tx_cluster_sync();  // all sums lie there", "__syncthreads();"),
        (PARTS, "tx_cluster_sync();  // nobody leaves while others read", ""),
        (LAID, "first = part * each", "first = part"),
        (LAID, "tx_teams_sync<C::TEAMS * 128>(0);", ""),
        (LAID, "tx_read_far4(x, at, s)", "tx_read_far4(x, at, 0)"),
        (PAIR, "(C::PAIRED ? 2 : 1)", "1"),
        (
            PAIR,
            "tx_bar_arrive_far(empty + stage * 8, thread / 32)",
            "tx_bar_arrive_far(empty + stage * 8, 0)",
        ),
        (PAIR, "tx_fetch_for_both(to + half * 128", "tx_fetch_for_both(to"),
        (PAIR, "i = i * 2 + rank", "i = i * 2"),
        (
            PAIR,
            "tx_cluster_meet();  // each counts bytes that the other one asks for",
            "__syncthreads();",
        ),
        (PAIR_IN_TURNS, "tx_bar_wait(empty + ring.stage * 8, ring.parity);", ";"),
        (PAIR, "s < C::STAGES; s++, ring.next()", "s < 0;"),
        (PAIR_IN_TURNS, "s < C::STAGES; s++, ring.next()", "s < 0;"),
    ],
)
def test_a_fault_is_noticed(flow: Flow, old: str, new: str, tmp_path: Path) -> None:
    case = tiles("f16", flow)
    with pytest.raises(AssertionError, match=r"times the budget|block"):
        simt.check_all([replace(case, tactic=Mutated(case.tactic, old, new))], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lay(columns);", ""),
        ("lay(columns);\n      tx_teams_sync<128>(2 + team);", "lay(columns);"),
    ],
)
def test_a_fault_of_what_columns_need_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = hopper_cases.byte_tiles("i8", TOGETHER)
    with pytest.raises(AssertionError, match=r"times the budget|block|differ"):
        simt.check_all([replace(case, tactic=Mutated(case.tactic, old, new))], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tap % G::ACROSS * G::DILATION_X", "tap % G::ACROSS"),
        ("tap / G::ACROSS * G::DILATION_Y", "tap / G::ACROSS"),
        ("* G::STRIDE_X - G::LEFT", "* G::STRIDE_X"),
        ("image = pixel / plane", "image = 0"),
    ],
)
def test_a_fault_of_windows_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = best(windows("f16"))
    with pytest.raises(AssertionError, match=r"times the budget|block"):
        simt.check_all([replace(case, tactic=Mutated(case.tactic, old, new))], tmp_path)
