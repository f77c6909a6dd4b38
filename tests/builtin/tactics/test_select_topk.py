"""c_topk: ties, NaN, every dtype, axes and symbolic sizes."""

from __future__ import annotations

import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, node
from select_cases import CODES, drawn, wild

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.select.topk import LANES, TopKTactic

TACTIC = TopKTactic()


@pytest.mark.parametrize("code", CODES)
def test_every_dtype_both_ways(code):
    few, many = drawn(code, 3, 70), drawn(code, 2, 1500)
    check_all(
        [
            Case(node("TopK", [x], k=k, largest=largest), TACTIC, [x], budget=0)
            for largest in (True, False)
            for x, k in ((few, 1), (few, 7), (few, 70), (many, 5), (many, 300), (many, 1400))
        ]
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_every_axis(axis):
    x = drawn("f32", 5, 130, 7)
    for k in (0, 1, 3, x.shape[axis]):
        check(node("TopK", [x], k=k, axis=axis), TACTIC, [x], nt=(1, 3), budget=0)


@pytest.mark.parametrize("code", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("largest", [True, False])
def test_ties_nan_infinities_and_signed_zeros(code, largest):
    x = wild(code)
    cases = [Case(node("TopK", [x], k=k, largest=largest), TACTIC, [x]) for k in (1, 40, 200, 403)]
    check_all(cases)


@pytest.mark.parametrize("step", [1, -1, 0])
def test_orders_that_are_hard(step):
    x = (np.arange(3000) * step).astype(np.float32)
    check_all([Case(node("TopK", [x], k=k), TACTIC, [x]) for k in (1, 10, 999, 3000)])


@pytest.mark.parametrize("sizes", [(0, 9, 2), (3, 200, 0), (2, 200, 200), (2, 900, 20)])
def test_symbolic_sizes(sizes):
    env, (n, s, k) = dict(zip("nsk", sizes, strict=True)), (dims.sym(name) for name in "nsk")
    for x, axis in ((TensorSpec(DType.FP32, (n, s)), 1), (TensorSpec(DType.INT64, (s, n, 3)), 0)):
        check(node("TopK", [x], k=k, axis=axis), TACTIC, env=env)


@pytest.mark.parametrize("code", CODES)
def test_lines_in_lanes(code):
    x = drawn(code, 3, 20, 7)
    check(node("TopK", [x], k=5, axis=1), TACTIC, [x], nt=(1, 3), budget=0)


def test_lines_in_lanes_of_every_axis():
    few, long = drawn("f32", 40, 9), drawn("f16", 9, 2000)
    cases = [Case(node("TopK", [few], k=k, axis=0), TACTIC, [few]) for k in (1, 8)]
    cases.append(Case(node("TopK", [long], k=7, largest=False), TACTIC, [long]))
    check_all(cases)


@pytest.mark.parametrize("code", ["f32", "bf16"])
def test_ties_nan_and_signed_zeros_in_lanes(code):
    x = np.resize(wild(code), (11, 100))
    check(node("TopK", [x], k=6), TACTIC, [x], nt=(1, 3), budget=0)
    same = np.zeros((9, 50), np.float32)
    check(node("TopK", [same], k=3, largest=False), TACTIC, [same], budget=0)


def test_which_lines_lie_in_lanes():
    def widths(x: np.ndarray, k: int) -> list[int]:
        work = TACTIC.match(made := node("TopK", [x], k=k), NATIVE)
        assert not isinstance(work, Reject), made
        return [v.number("lanes") for v in TACTIC.variants(work, NATIVE)]

    assert widths(np.zeros((512, 64), np.float32), 8) == [LANES, 1]
    assert widths(np.zeros((512, 64), np.float32), 9) == [1]
    assert widths(np.zeros((7, 64), np.float32), 2) == [1]
    assert widths(np.zeros((512, 2049), np.float32), 2) == [1]
    assert widths(np.zeros((512, 64), np.float64), 2) == [1]
