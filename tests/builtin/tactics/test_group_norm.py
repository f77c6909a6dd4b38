"""c_group_norm: images in blocks of channels, groups within and across blocks, dtypes, epilogues."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.norm.groups import GroupNormTactic

TACTIC = GroupNormTactic()


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_groups_within_and_across_blocks(device):
    cases = []
    for channels, groups, spatial in [
        (16, 2, (5, 7)),
        (96, 8, (3, 3)),
        (40, 8, (4, 4)),
        (24, 1, (2, 3, 4)),
        (18, 6, (9,)),
        (64, 2, (1, 1)),
        (3, 3, (6, 6)),
        (100, 5, (2, 5)),
    ]:
        x = _f32(2, channels, *spatial) * 3 + 1
        given = [x, _f32(channels, seed=1), _f32(channels, seed=2)]
        group = node("GroupNormalization", given, num_groups=groups)
        cases.append(Case(group, TACTIC, given, device=device, nt=(1, 3)))
        cases.append(Case(node("InstanceNormalization", given), TACTIC, given, device=device))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_16_bit_floats(code):
    t = DType(code).numpy
    x, s, b = (a.astype(t) for a in (_f32(2, 24, 5, 3), _f32(24, seed=1), _f32(24, seed=2)))
    check(node("GroupNormalization", [x, s, b], num_groups=4), TACTIC, [x, s, b])


def test_a_large_mean_does_not_cancel():
    given = [_f32(1, 32, 20, 20) + 1000, np.ones(32, np.float32), np.zeros(32, np.float32)]
    group = node("GroupNormalization", given, num_groups=4)
    check(group, TACTIC, given, budget=1e-4)


def test_epilogues_keep_padding_at_zero():
    x, s, b = _f32(2, 20, 5, 7), _f32(20, seed=1), _f32(20, seed=2)
    column, plane = _f32(20, 1, 1, seed=3), _f32(5, 7, seed=4)
    given = [x, s, b, x, column, plane]
    layers = [
        ("GroupNormalization", [0, 1, 2], {"num_groups": 5}),
        ("Add", [6, 3], {}),
        ("Mul", [7, 4], {}),
        ("Add", [8, 5], {}),
        ("Exp", [9], {}),
    ]
    check(fused(given, layers, results=(10, 9), anchor=0), TACTIC, given)


def test_silu_into_bfloat16():
    given = [_f32(1, 32, 6, 6), _f32(32, seed=1), _f32(32, seed=2)]
    layers = [
        ("GroupNormalization", [0, 1, 2], {"num_groups": 4}),
        ("Sigmoid", [3], {}),
        ("Mul", [3, 4], {}),
        ("Cast", [5], {"to": DType.BF16}),
    ]
    check(fused(given, layers, results=(6,), anchor=0), TACTIC, given)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_stays_in_its_group():
    x, s = _f32(2, 24, 4, 4), np.ones(24, np.float32)
    x[1, 3, 0, 0] = np.nan
    check(node("GroupNormalization", [x, s, s], num_groups=4), TACTIC, [x, s, s])


def test_symbolic_dims():
    n, h = dims.sym("n"), dims.sym("h")
    x, p = TensorSpec(DType.FP32, (n, 24, h, 5)), TensorSpec(DType.FP32, (24,))
    group = node("GroupNormalization", [x, p, p], num_groups=4)
    check_all([Case(group, TACTIC, env=env) for env in ({"n": 1, "h": 1}, {"n": 3, "h": 4})])


def test_what_it_rejects():
    x, p = (
        TensorSpec(DType.FP32, (1, dims.sym("c"), 4, 4)),
        TensorSpec(DType.FP32, (dims.sym("c"),)),
    )
    found = asked.variants(TACTIC, node("InstanceNormalization", [x, p, p]), NATIVE)
    assert isinstance(found, Reject)
    assert "known number of channels" in found.reason
