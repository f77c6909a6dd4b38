"""c_deformable: groups, strides, masks, dtypes, offsets far outside, symbolic dims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, node, opened

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.sample.deform import CpuDeformableTactic

TACTIC = CpuDeformableTactic()
RNG = np.random.default_rng(7)


def _case(
    x: tuple[int, ...], w: tuple[int, ...], code: str = "f32", rest: str = "bm", **attrs: Any
) -> Case:
    """``rest``: whether there are a bias and a mask."""
    strides, dilations = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    pads, groups = attrs.get("pads", (0, 0, 0, 0)), attrs.get("offset_group", 1)
    out = [
        (x[2 + i] + pads[i] + pads[2 + i] - dilations[i] * (w[2 + i] - 1) - 1) // strides[i] + 1
        for i in (0, 1)
    ]
    taps = w[2] * w[3]
    shapes = [x, w, (x[0], groups * taps * 2, *out)]
    shapes.append((w[0],) if "b" in rest else ())
    shapes.append((x[0], groups * taps, *out) if "m" in rest else ())
    arrays = [RNG.standard_normal(s).astype(DType(code).numpy) if s else None for s in shapes]
    arrays[2] = (arrays[2].astype(np.float32) * 2).astype(DType(code).numpy)  # type: ignore[union-attr]
    given = [a for a in arrays if a is not None]
    return Case(node("DeformableConvolution", arrays, **attrs), TACTIC, given, nt=(1, 3))


@pytest.mark.parametrize("rest", ["", "b", "m", "bm"])
def test_bias_and_mask(rest):
    check_all([_case((2, 3, 9, 11), (7, 3, 3, 3), rest=rest, pads=(1, 1, 1, 1))])


def test_groups_strides_and_dilations():
    check_all(
        [
            _case((1, 4, 9, 11), (6, 2, 3, 2), group=2),
            _case((1, 4, 9, 11), (14, 4, 2, 2), offset_group=2),
            _case((2, 8, 12, 13), (12, 2, 3, 3), group=4, offset_group=2, pads=(2, 1, 0, 1)),
            _case((1, 2, 19, 23), (3, 2, 3, 3), strides=(2, 3), dilations=(2, 1)),
            _case((1, 2, 5, 5), (13, 2, 1, 1)),
        ]
    )


@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
def test_dtypes(code):
    check_all([_case((1, 4, 9, 11), (7, 4, 3, 3), code=code, pads=(1, 1, 1, 1))])


def test_offsets_far_outside_read_zeros():
    case = _case((1, 2, 5, 6), (3, 2, 2, 2))
    assert case.arrays is not None
    case.arrays[2].flat[:6] = [1e30, -1e30, 3e9, -5.0, 4.99, -0.5]
    check_all([case])


@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
@pytest.mark.parametrize("env", [{"n": 0, "h": 5}, {"n": 2, "h": 9}])
def test_symbolic_dims(env, dtype):
    n, h = dims.sym("n"), dims.sym("h")
    shapes = [(n, 4, h, 7), (6, 4, 3, 3), (n, 18, h, 7)]
    specs = [TensorSpec(dtype, s) for s in shapes]
    made = node("DeformableConvolution", [*specs, None, None], pads=(1, 1, 1, 1))
    check(made, TACTIC, env=env)


@pytest.mark.parametrize("code", ["f32", "f16", "f64"])
@pytest.mark.parametrize("rest", ["", "bm"])
def test_weights_of_open_sizes(code, rest):
    cases = []
    for x, w, fields in (
        ((2, 4, 9, 11), (14, 2, 3, 2), {"group": 2}),
        ((1, 4, 9, 11), (3, 4, 2, 2), {"offset_group": 2, "strides": (2, 1)}),
        ((1, 2, 5, 5), (13, 2, 1, 1), {}),
        ((1, 2, 5, 5), (0, 2, 2, 2), {}),
    ):
        known = _case(x, w, code, rest, **fields)
        assert known.arrays is not None
        specs, env = opened(*known.arrays)
        given = [*specs, *[None] * (5 - len(specs))]
        cases.append(replace(known, node=node("DeformableConvolution", given, **fields), env=env))
    check_all(cases)


def test_what_it_rejects():
    x, w = TensorSpec(DType.FP32, (1, 2, 5, 5)), TensorSpec(DType.FP16, (3, 2, 2, 2))
    offset = TensorSpec(DType.FP32, (1, 8, 4, 4))
    found = TACTIC.match(node("DeformableConvolution", [x, w, offset, None, None]), NATIVE)
    assert isinstance(found, Reject)
    assert "several dtypes" in found.reason
