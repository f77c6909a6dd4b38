"""c_roi_align and c_max_roi_pool: modes, dtypes, regions beyond the image, wild owners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.sample.regions import CpuMaxRoiPoolTactic, CpuRoiAlignTactic

ALIGN, POOL = CpuRoiAlignTactic(), CpuMaxRoiPoolTactic()
RNG = np.random.default_rng(5)


def _x(*shape: int, code: str = "f32") -> Any:
    return RNG.standard_normal(shape).astype(DType(code).numpy)


def _regions(count: int, reach: float, code: str = "f32") -> Any:
    """Some of them beyond an image of 13 by 17."""
    corners = np.sort(RNG.uniform(-reach, 13 + reach, (count, 2, 2)), axis=1).reshape(count, 4)
    return corners.astype(DType(code).numpy)


def _align(x: Any, regions: Any, **attrs: Any) -> Case:
    owners = RNG.integers(0, len(x), len(regions))
    arrays = [x, regions, owners]
    return Case(node("RoiAlign", arrays, **attrs), ALIGN, arrays, nt=(1, 3))


def _pool(x: Any, regions: Any, **attrs: Any) -> Case:
    owners = RNG.integers(0, len(x), (len(regions), 1)).astype(regions.dtype)
    arrays = [x, np.hstack([owners, regions])]
    return Case(node("MaxRoiPool", arrays, **attrs), POOL, arrays, nt=(1, 3))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode, ratio, corners):
    attrs = {
        "mode": mode,
        "sampling_ratio": ratio,
        "coordinate_transformation_mode": corners,
        "output_height": 3,
        "output_width": 5,
    }
    x = _x(2, 5, 13, 17)
    cases = [_align(x, _regions(7, reach), **attrs) for reach in (0.0, 3.0, 30.0)]
    cases.append(_align(x, _regions(4, 9.0) * 2, spatial_scale=0.5, **attrs))
    cases.append(_align(x, _regions(0, 0.0), **attrs))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_other_dtypes(mode, code):
    attrs = {"mode": mode, "output_height": 4, "output_width": 2}
    check_all([_align(_x(2, 3, 13, 40, code=code), _regions(5, 2.0, code), **attrs)])


EMPTY = np.array(
    [[9, 9, 2, 3], [4, 4, 4, 4], [5.5, 2, 5.5, 9], [2, 5.5, 9, 5.5], [9, 2, 3, 8]], np.float32
)
"""Regions that are turned around or of no size, along both axes or one."""


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_regions_that_are_turned_around_or_of_no_size(mode, ratio, corners):
    attrs = {
        "mode": mode,
        "sampling_ratio": ratio,
        "coordinate_transformation_mode": corners,
        "output_height": 2,
        "output_width": 3,
    }
    x = _x(1, 2, 13, 17)
    cases = [_align(x.astype(t), EMPTY, **attrs) for t in (np.float32, np.float64)]
    cases.append(_align(x, np.vstack([EMPTY, _regions(3, 2.0), EMPTY]), **attrs))
    check_all(cases)
    (y,) = cases[0].node.layer.reference(cases[0].node.attrs, *cases[0].arrays)
    assert y.any() == (ratio > 0 or corners == "output_half_pixel")


@pytest.mark.parametrize("code", ["f32", "f16", "bf16", "f64"])
def test_max_roi_pool(code):
    x = _x(2, 3, 13, 17, code=code)
    cases = [
        _pool(x, _regions(6, reach, code), pooled_shape=(3, 4), spatial_scale=s)
        for reach in (0.0, 4.0, 40.0)
        for s in (1.0, 0.37)
    ]
    check_all([*cases, _pool(x, _regions(0, 0.0, code), pooled_shape=(2, 2))])


def test_the_largest_of_a_region_with_nan_is_nan():
    x = _x(1, 2, 13, 17)
    x[0, 0, 4, 5], x[0, 1] = np.nan, -np.inf
    check_all([_pool(x, np.array([[0, 0, 16, 12]], np.float32), pooled_shape=(3, 3))])


@pytest.mark.parametrize("wild", [2, -3, 2**40])
def test_owners_that_are_no_image_are_reported(wild):
    x, regions, owners = _x(2, 3, 13, 17), _regions(2, 0.0), np.array([1, wild])
    case = Case(node("RoiAlign", [x, regions, owners]), ALIGN, [x, regions, owners])
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {})
    (y,) = run(getattr(_library(binary), binary.symbol), [x, regions, owners], 1)
    wanted = case.node.layer.reference(case.node.attrs, x, regions[:1], owners[:1])[0]
    np.testing.assert_allclose(y[:1], wanted, rtol=1e-5)
    assert np.isnan(y[1]).all()
    assert run.fault.array(np.int64, (5,))[:3].tolist() == [1, wild, 2]


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, 3e38])
def test_wild_corners_read_nothing_outside(wild):
    x, regions = _x(1, 1, 13, 17), _regions(2, 0.0)
    regions[0] = wild
    regions[1, 2] = wild
    owners = np.zeros((2, 1), np.float32)
    for tactic, name, arrays in (
        (ALIGN, "RoiAlign", [x, regions, np.array([0, 0])]),
        (POOL, "MaxRoiPool", [x, np.hstack([owners, regions])]),
    ):
        case = Case(node(name, arrays), tactic, arrays)
        ((variant, artifact),) = _compile(case)
        (binary,) = COMPILER.compile([artifact.code], NATIVE)
        run = Run(case.node, variant, artifact, {})
        run(getattr(_library(binary), binary.symbol), arrays, 1)
        assert not run.reported


@pytest.mark.parametrize("env", [{"r": 0, "h": 9}, {"r": 5, "h": 12}])
def test_symbolic_dims(env):
    r, h = dims.sym("r"), dims.sym("h")
    x, regions = TensorSpec(DType.FP32, (2, 3, h, 15)), TensorSpec(DType.FP32, (r, 4))
    owners = TensorSpec(DType.INT64, (r,))
    attrs = {"output_height": 2, "output_width": 3}
    check(node("RoiAlign", [x, regions, owners], **attrs), ALIGN, env=env)
    pooled = node("MaxRoiPool", [x, TensorSpec(DType.FP32, (r, 5))], pooled_shape=(2, 3))
    check(pooled, POOL, env=env)
    # the numbers of a region are open, too
    numbers = TensorSpec(DType.FP32, (r, dims.sym("n")))
    check(node("RoiAlign", [x, numbers, owners], **attrs), ALIGN, env=env | {"n": 4})
    check(node("MaxRoiPool", [x, numbers], pooled_shape=(2, 3)), POOL, env=env | {"n": 5})
    with dims.assumptions() as noted:
        node("RoiAlign", [x, numbers, owners], **attrs)
    assert not all(a.holds(env | {"n": 3}) for a in noted)


def test_what_they_reject():
    x, regions = TensorSpec(DType.INT32, (1, 2, 3, 4)), TensorSpec(DType.FP32, (2, 5))
    found = POOL.match(node("MaxRoiPool", [x, regions]), NATIVE)
    assert isinstance(found, Reject)
    owners = TensorSpec(DType.INT64, (2,))
    found = ALIGN.match(node("RoiAlign", [x, TensorSpec(DType.FP32, (2, 4)), owners]), NATIVE)
    assert isinstance(found, Reject)
