"""c_dynamic_resize: scales, sizes and regions in tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check_all, node, opened

from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.sample.dynamic_resize import CpuDynamicResizeTactic

TACTIC = CpuDynamicResizeTactic()


def _x(*shape: int, code: str = "f32") -> Any:
    made = np.random.default_rng(3).standard_normal(shape) * 40
    return made.astype(DType(code).numpy)


def _case(x: Any, scales: Any = None, sizes: Any = None, roi: Any = None, **attrs: Any) -> Case:
    inputs = [
        x,
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes, np.int64),
    ]
    given = [a for a in inputs if a is not None]
    return Case(node("DynamicResize", inputs, **attrs), TACTIC, given, nt=(1, 3))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("code", ["f32", "f16", "f64", "u8"])
def test_scales_and_sizes(mode, code):
    x = _x(2, 3, 7, 19, code=code)
    check_all(
        [
            _case(x, (1, 1, 2, 2), mode=mode),
            _case(x, (1, 1, 0.6, 1.7), mode=mode),
            _case(x, None, (2, 3, 5, 40), mode=mode),
            _case(x, (), (4, 3, 7, 10), mode=mode),
            _case(x, (2.5, 1.3), axes=(2, 3), mode=mode),
            _case(x, None, (9, 4), axes=(3, 1), mode=mode),
            _case(x, None, (2, 3, 0, 4), mode=mode),
        ]
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("code", ["f32", "u8"])
def test_antialias(mode, code):
    x, attrs = _x(2, 3, 7, 19, code=code), {"mode": mode, "antialias": True}
    scales = [(1, 1, 2, 2), (1, 1, 0.6, 0.3), (1, 1, 0.15, 0.99), (1, 1, 1 / 7, 1 / 19)]
    cases = [_case(x, s, **attrs) for s in scales]
    cases += [_case(x, None, s, **attrs) for s in ((2, 3, 5, 4), (2, 3, 1, 40), (2, 3, 0, 4))]
    for policy in ("not_larger", "not_smaller"):
        more = {**attrs, "axes": (2, 3), "keep_aspect_ratio_policy": policy}
        cases += [_case(x, None, s, **more) for s in ((20, 20), (2, 4), (1, 1), (1, 19))]
    check_all(cases)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("channels", [3, 8, 16, 20])
def test_channels_that_are_stored_last(mode, channels):
    x = _x(1, 5, 2, channels)
    check_all([_case(x, None, (9, 7), axes=(1, 2), mode=mode)])


@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
def test_scales_in_other_floats(code):
    x, scales = _x(1, 2, 7, 19), np.array([1, 1, 1.7, 0.55]).astype(DType(code).numpy)
    made = node("DynamicResize", [x, None, scales, None], mode="linear")
    check_all([Case(made, TACTIC, [x, scales], nt=(1, 3))])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_one_scale_for_all_axes(policy):
    attrs = {"keep_aspect_ratio_policy": policy, "axes": (2, 3), "mode": "linear"}
    x = _x(1, 2, 9, 15)
    check_all([_case(x, None, s, **attrs) for s in ((20, 20), (5, 30), (9, 15))])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_regions(mode):
    attrs: Any = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 7.0,
    }
    roi = (0, 0, -0.3, 0.25, 1, 1, 1.2, 0.8)
    x = _x(1, 2, 9, 13)
    check_all([_case(x, None, s, roi, **attrs) for s in ((1, 2, 9, 13), (1, 2, 18, 5))])


@pytest.mark.parametrize("sizes", [(1, 1, 4, -3), (1, 1, -(2**62), 5)])
def test_sizes_that_no_axis_has_are_refused(sizes):
    case = _case(_x(1, 1, 3, 5), None, sizes)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {f"resize_{i}": 0 for i in range(4)})
    assert case.arrays is not None
    run(getattr(_library(binary), binary.symbol), case.arrays, 1)
    assert run.reported


def test_lists_whose_lengths_are_open():
    x, attrs = _x(1, 2, 9, 13), {"coordinate_transformation_mode": "tf_crop_and_resize"}
    roi = np.array((0, 0, -0.3, 0.25, 1, 1, 1.2, 0.8), np.float32)
    scales, sizes = np.array((1, 1, 1.5, 0.4), np.float32), np.array((1, 2, 5, 40))
    cases = []
    for arrays, places in (
        ((x, roi, scales), (0, 1, 2)),
        ((x, roi, sizes), (0, 1, 3)),
        ((x, sizes), (0, 3)),
    ):
        specs, env = opened(*arrays)
        given = [specs[places.index(i)] if i in places else None for i in range(4)]
        fields = attrs if 1 in places else {}
        made = node("DynamicResize", given, mode="linear", **fields)
        cases.append(Case(made, TACTIC, list(arrays), env=env, nt=(1, 3)))
    check_all(cases)
    with pytest.raises(ShapeError):
        node("DynamicResize", [x, None, TensorSpec(DType.FP32, (3,)), None])


def test_what_it_rejects():
    x = TensorSpec(DType.FP32, (1, 2, 3, 4))
    for inputs, attrs in (
        ([x, None, TensorSpec(DType.INT32, (4,)), None], {}),
        ([x, None, None, None], {}),
    ):
        found = TACTIC.match(node("DynamicResize", inputs, **attrs), NATIVE)
        assert isinstance(found, Reject)
