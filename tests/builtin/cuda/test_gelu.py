"""The exact Gelu on the device: recognised in a kernel's expressions, and as near as its polynomial
says.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import asked
import numpy as np
import pytest
import simt
from tactic_cases import group, one

import tactix_codegen
from tactix.base.dtypes import DType
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext


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


def test_a_fit_of_fewer_terms_is_as_near_as_16_bits_tell() -> None:
    """The polynomial of tx_gelu_16, in float64, with the terms read from the kernel's text, over
    all of float16.
    """
    text = (
        (Path(tactix_codegen.__file__).parent / "cuda" / "lib" / "vector.cuh")
        .read_text()
        .split("tx_gelu_16")[1]
    )
    terms = [float(c) for c in re.findall(r"(-?\d\.\d+(?:e-\d)?)f", text.split("fmaxf")[0])][1:]
    assert len(terms) == 6
    t = np.arange(1, 0x4A00, dtype=np.uint16).view(np.float16).astype(np.float64)  # to 12
    want = t * 0.5 * np.array([math.erfc(x * 0.5**0.5) for x in t])
    near = t * np.exp2(np.polyval(terms, t))
    assert (
        np.abs(near - want) / np.spacing(want.astype(np.float16)).astype(np.float64)
    ).max() < 0.17


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_what_is_no_number_stays_so_and_infinity_is_none(dtype: str, tmp_path: Path) -> None:
    x = np.array([np.nan, np.inf, -0.0, 0.0, 65504, -65504] * 7).astype(DType(dtype).numpy)
    simt.check_all([one("pointwise", "Gelu", [x])], tmp_path)


@pytest.mark.parametrize(("dtype", "approximate", "name"), [
    ("f32", "none", "tx_gelu("), ("f16", "none", "tx_gelu_16("), ("bf16", "none", "tx_gelu_16("), ("f64", "none", ""),
    ("f32", "tanh", ""),
])  # fmt: skip
def test_where_it_is_recognised(dtype: str, approximate: str, name: str) -> None:
    x = np.zeros((3, 40), DType(dtype).numpy)
    nodes = [("Add", [0, 1], {}), ("Gelu", [2], {"approximate": approximate}), ("Mul", [3, 2], {})]
    case = group("pointwise", [x, x], nodes)
    (variant, *_) = simt._variants(case)
    made = asked.artifact(case.tactic, case.node, variant, CompileContext(simt.DEVICE))
    assert isinstance(made.code, Source)
    assert [n for n in ("tx_gelu(", "tx_gelu_16(") if n in made.code.text] == [name][: bool(name)]
