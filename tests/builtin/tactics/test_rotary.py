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
PARTS = [
    ({"heads": 2}, (2, 5, 3, 40), (5, 1, 40), (1, 1, 40)),
    ({"heads": 4}, (1, 1, 5, 64), (1, 1, 1, 64), (64,)),
    ({}, (2, 3, 37), (3, 22), (22,)),
    ({"heads": 1}, (3, 2, 80), (3, 1, 32), (1, 32)),
]
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


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_what_stays_as_it_is(part):
    """Heads behind the first ones, and what lies behind a head's halves."""
    attrs, *shapes = part
    cases = []
    for code in ("f32", "bf16"):
        arrays = [_rows(s, code) for s in shapes]
        cases.append(Case(node("RotaryEmbedding", arrays, **attrs), TACTIC, arrays, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_halves(code):
    arrays = [_rows(s, code) for s in SHAPES[0]]
    check_all([Case(node("RotaryEmbedding", arrays), TACTIC, arrays)])


@pytest.mark.parametrize("env", [{"b": 1, "s": 1}, {"b": 2, "s": 7}])
def test_open_sizes(env):
    b, s = dims.sym("b"), dims.sym("s")
    specs = [TensorSpec(DType.FP32, x) for x in ((b, s, 3, 40), (b, s, 1, 40), (s, 1, 40))]
    made = [node("RotaryEmbedding", specs, heads=h) for h in (None, 2)]
    check_all([Case(n, TACTIC, env=env, nt=(1, 3)) for n in made])


def test_other_dtypes_and_epilogues_are_refused():
    wide = [_rows(s, "f64") for s in SHAPES[0]]
    assert isinstance(TACTIC.match(node("RotaryEmbedding", wide), NATIVE), Reject)
    arrays = [_rows(s) for s in SHAPES[0]]
    group = fused(arrays, [("RotaryEmbedding", (0, 1, 2), {}), ("Relu", (3,), {})])
    assert isinstance(TACTIC.match(group, NATIVE), Reject)
