"""c_generate: dims as data, ranges up and down, fills with edge values."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.tactic import Reject
from tactix_codegen.operations.generate import DTYPES
from tactix_cpu.tactics.move.generate import CpuGenerateTactic

TACTIC = CpuGenerateTactic()
N, M = dims.sym("n"), dims.sym("m")


@pytest.mark.parametrize("dtype", [DType.INT64, DType.INT32])
def test_dims(dtype):
    values = (3, N, N * M + 1, dims.ceildiv(N, 4), 0, 7)
    made = node("Dims", [], values=values, shape=(2, 3), dtype=dtype)
    check_all([Case(made, TACTIC, [], env={"n": n, "m": 5}) for n in (0, 1, 9)])


@pytest.mark.parametrize("code", ["i64", "i32", "i16", "f32", "f64"])
def test_ranges(code):
    dtype = DType(code).numpy
    cases = [(0, 10, 1), (5, -4, -3), (2, 3, 2), (0, 0, 1), (-7, 200, 3)]
    arrays = [[np.array(v, dtype) for v in case] for case in cases]
    check_all([Case(node("Range", a, constants=(0, 1, 2)), TACTIC, a) for a in arrays])


def test_fills():
    cases = [
        node("Fill", [], shape=(3, N), value=value, dtype=dtype)
        for dtype in sorted(DTYPES, key=lambda d: d.value)
        for value in (0.0, 1.0, 5.0)
    ]
    cases += [
        node("Fill", [], shape=(N,), value=v)
        for v in (float("inf"), -float("inf"), float("nan"), -0.1)
    ]
    check_all([Case(c, TACTIC, [], env={"n": n}) for c in cases for n in (0, 37)])


def test_what_it_rejects():
    assert isinstance(
        asked.variants(TACTIC, node("Fill", [], shape=(2,), dtype=DType.FP16), NATIVE), Reject
    )
    wide = node("Fill", [], shape=(2,), value=float(2**60), dtype=DType.INT64)
    assert isinstance(asked.variants(TACTIC, wide, NATIVE), Reject)
