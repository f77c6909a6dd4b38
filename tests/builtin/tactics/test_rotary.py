"""c_rotary: shapes, dtypes, tables that broadcast, open sizes; and what it leaves to others."""

from __future__ import annotations

import numpy as np
import pytest
from harness import NATIVE, Case, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.rotary import RotaryTactic

TACTIC = RotaryTactic()
SHAPES = [
    ((2, 3, 5, 64), (5, 64), (1, 1, 5, 64)),
    ((2, 5, 3, 74), (5, 1, 74), (2, 5, 1, 74)),
    ((1, 4, 2), (2,), (4, 2)),
    ((10,), (10,), (10,)),
    ((2, 0, 8), (8,), (8,)),
    ((3, 0), (0,), (0,)),
]


def _rows(shape: tuple[int, ...], code: str = "f32") -> np.ndarray:
    rows = np.random.default_rng(3).standard_normal(shape)
    return rows.astype(DType(code).numpy)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(device, shapes):
    arrays = [_rows(s) for s in shapes]
    check_all([Case(node("RotaryEmbedding", arrays), TACTIC, arrays, device=device, nt=(1, 3))])


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_halves(code):
    arrays = [_rows(s, code) for s in SHAPES[0]]
    check_all([Case(node("RotaryEmbedding", arrays), TACTIC, arrays)])


@pytest.mark.parametrize("env", [{"b": 1, "s": 1}, {"b": 2, "s": 7}])
def test_open_sizes(env):
    b, s = dims.sym("b"), dims.sym("s")
    specs = [TensorSpec(DType.FP32, x) for x in ((b, s, 3, 40), (b, s, 1, 40), (s, 1, 40))]
    check_all([Case(node("RotaryEmbedding", specs), TACTIC, env=env, nt=(1, 3))])


def test_other_dtypes_and_epilogues_are_refused():
    wide = [_rows(s, "f64") for s in SHAPES[0]]
    assert isinstance(TACTIC.match(node("RotaryEmbedding", wide), NATIVE), Reject)
    arrays = [_rows(s) for s in SHAPES[0]]
    group = fused(arrays, [("RotaryEmbedding", (0, 1, 2), {}), ("Relu", (3,), {})])
    assert isinstance(TACTIC.match(group, NATIVE), Reject)
