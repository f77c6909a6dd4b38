"""The exact Gelu on the device: recognised in a kernel's expressions, and as near as its polynomial says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import simt
from tactic_cases import group, one

from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext
from tactix.words.dtypes import DType


@pytest.mark.parametrize(("first", "last", "budget"), [(-6, 6, 0.01), (-1, 1, 0.1), (-6, -3, 2)])
def test_how_near_it_is(first: int, last: int, budget: float, tmp_path: Path) -> None:
    """Within 1.2e-6 everywhere; where it is small, as near as the reference, whose sum cancels."""
    case = one("pointwise", "Gelu", [np.linspace(first, last, 20011, dtype=np.float32)])
    case.budget = budget
    simt.check_all([case], tmp_path)


def test_float16_rounds_as_the_exact_one_does(tmp_path: Path) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    case = one("pointwise", "Gelu", [every[np.abs(every) < 8]])
    case.budget = 0.13  # one unit of the last place of 8 is 0.0039, the budget 0.032
    simt.check_all([case], tmp_path)


@pytest.mark.parametrize(("dtype", "approximate", "is_known"), [
    ("f32", "none", True), ("f16", "none", True), ("f64", "none", False), ("f32", "tanh", False),
])  # fmt: skip
def test_where_it_is_recognised(dtype: str, approximate: str, is_known: bool) -> None:
    x = np.zeros((3, 40), DType(dtype).numpy)
    nodes = [("Add", [0, 1], {}), ("Gelu", [2], {"approximate": approximate}), ("Mul", [3, 2], {})]
    case = group("pointwise", [x, x], nodes)
    (variant, *_) = simt._variants(case)
    made = case.tactic.compile(case.node, variant, CompileContext(simt.DEVICE))
    assert isinstance(made.code, Source)
    assert ("tx_gelu(" in made.code.text) == is_known
