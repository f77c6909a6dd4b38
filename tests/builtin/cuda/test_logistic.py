"""Exponentials, what is divided by one and 1, and hyperbolic tangents, for results of 16 bits on the
device: recognised in a kernel's expressions, and as near as 16 bits tell.
"""

from __future__ import annotations

from pathlib import Path

import asked
import numpy as np
import pytest
import simt
from tactic_cases import group, one

from tactix.base.dtypes import DType
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext

NAMES = ("tx_exp_16(", "tx_logistic_16(", "tx_tanh_16(")


@pytest.mark.parametrize("layer", ["Sigmoid", "Swish", "Tanh"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_number_is_as_near_as_its_last_place(layer: str, dtype: str, tmp_path: Path) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(DType(dtype).numpy)
    simt.check_all([one("pointwise", layer, [every])], tmp_path)


@pytest.mark.parametrize(("layer", "dtype", "name"), [
    ("Sigmoid", "f16", "tx_logistic_16("), ("Swish", "bf16", "tx_logistic_16("), ("Exp", "f16", "tx_exp_16("),
    ("Tanh", "bf16", "tx_tanh_16("), ("Tanh", "f32", ""),
    ("Swish", "f32", ""), ("Sigmoid", "f64", ""), ("Reciprocal", "f16", ""),
])  # fmt: skip
def test_where_it_is_recognised(layer: str, dtype: str, name: str) -> None:
    x = np.zeros((3, 40), DType(dtype).numpy)
    case = group("pointwise", [x, x], [("Add", [0, 1], {}), (layer, [2], {})])
    (variant, *_) = simt._variants(case)
    made = asked.artifact(case.tactic, case.node, variant, CompileContext(simt.DEVICE))
    assert isinstance(made.code, Source)
    assert [n for n in NAMES if n in made.code.text] == [name][: bool(name)]


@pytest.mark.parametrize(("dtype", "decades", "budget"), [("f16", 4, 0.25), ("bf16", 12, 0.25)])
def test_small_hyperbolic_tangents_are_as_near(
    dtype: str, decades: int, budget: float, tmp_path: Path
) -> None:
    """A quarter of the budget, of numbers within a decade of each other: near 0 what is 1 less
    something would cancel.
    """
    every = np.arange(1 << 15, dtype=np.uint16).view(DType(dtype).numpy)
    cases = []
    for k in range(decades):
        x = every[(every > 10.0 ** -(k + 1)) & (every <= 10.0**-k)]
        cases.append(one("pointwise", "Tanh", [np.concatenate([x, -x])]))
        cases[-1].budget = budget
    simt.check_all(cases, tmp_path)
