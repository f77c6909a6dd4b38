"""c_windows, c_global_lp and c_lrn: windows with places, norms of windows, and of channels around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.norm.lrn import CpuLrnTactic
from tactix_cpu.tactics.pool.power import CpuGlobalLpTactic
from tactix_cpu.tactics.pool.windows import CpuWindowTactic

WINDOWS, GLOBAL, LRN = CpuWindowTactic(), CpuGlobalLpTactic(), CpuLrnTactic()
GEOMETRY: Any = [
    ((2, 3, 9, 70), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 2, 8, 130), {"kernel_shape": (2, 5), "dilations": (2, 3), "pads": (1, 6, 0, 7)}),
    ((1, 2, 7, 6), {"kernel_shape": (3, 2), "strides": (2, 3), "ceil_mode": True}),
    ((2, 3, 40), {"kernel_shape": (4,), "strides": (3,), "pads": (2, 1)}),
    ((1, 2, 4, 5, 9), {"kernel_shape": (2, 3, 2), "strides": (1, 2, 1)}),
    ((0, 2, 5, 5), {"kernel_shape": (2, 2)}),
]


def _x(*shape: int, code: str = "f32") -> Any:
    made = np.random.default_rng(9).standard_normal(shape) * 4
    with np.errstate(invalid="ignore"):
        return made.astype(DType(code).numpy)


def _case(name: str, tactic: Any, x: Any, **attrs: Any) -> Case:
    return Case(node(name, [x], **attrs), tactic, [x], nt=(1, 3))


@pytest.mark.parametrize("order", [0, 1])
def test_places_of_the_largest(order):
    cases = [
        _case("MaxPoolIndices", WINDOWS, _x(*shape), storage_order=order, **attrs)
        for shape, attrs in GEOMETRY
    ]
    check_all(cases)


@pytest.mark.parametrize("pads", [False, True])
def test_pools_of_doubles(pads):
    cases = []
    for shape, attrs in GEOMETRY:
        x = _x(*shape, code="f64")
        cases.append(_case("AveragePool", WINDOWS, x, count_include_pad=pads, **attrs))
        cases.append(_case("MaxPool", WINDOWS, x, **attrs))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16", "f64", "i8", "u8", "i32", "i64"])
def test_places_in_other_dtypes(code):
    shape, attrs = GEOMETRY[0]
    check_all([_case("MaxPoolIndices", WINDOWS, _x(*shape, code=code), **attrs)])


def test_of_equals_the_first_is_largest_and_nan_stays_where_it_came_first():
    x = np.round(_x(1, 2, 9, 40) / 4)
    x[0, 0, 3, ::5], x[0, 1, 4], x[0, 1, 5, :9] = np.nan, -np.inf, np.inf
    attrs = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    check_all([_case("MaxPoolIndices", WINDOWS, x, **attrs)])


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_norms_of_windows(p):
    check_all([_case("LpPool", WINDOWS, _x(*shape), p=p, **attrs) for shape, attrs in GEOMETRY])


@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_in_other_dtypes(p, code):
    shape, attrs = GEOMETRY[0]
    x = _x(*shape, code=code)
    check_all([_case("LpPool", WINDOWS, x, p=p, **attrs)])
    check_all([_case("GlobalLpPool", GLOBAL, x, p=p)])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_planes(p):
    shapes = ((2, 3, 9, 70), (1, 5, 1), (3, 2, 4, 5, 6), (0, 2, 3), (1, 2, 0, 3), (1, 1, 1000))
    check_all([_case("GlobalLpPool", GLOBAL, _x(*s), p=p) for s in shapes])


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_local_response(size, beta):
    attrs = {"size": size, "beta": beta, "alpha": 0.3, "bias": 1.7}
    shapes = ((2, 7, 9, 35), (1, 20, 3), (3, 5), (0, 3, 4, 4))
    check_all([_case("LRN", LRN, _x(*s), **attrs) for s in shapes])


@pytest.mark.parametrize("code", ["f16", "bf16", "f64"])
def test_local_response_in_other_dtypes(code):
    check_all([_case("LRN", LRN, _x(2, 7, 5, 9, code=code), size=3, beta=b) for b in (0.75, 0.8)])


@pytest.mark.parametrize("env", [{"n": 0, "h": 5}, {"n": 2, "h": 70}])
def test_symbolic_dims(env):
    n, h = dims.sym("n"), dims.sym("h")
    x = TensorSpec(DType.FP32, (n, 3, h, h))
    window = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    check(node("MaxPoolIndices", [x], **window), WINDOWS, env=env)
    check(node("LpPool", [x], **window), WINDOWS, env=env)
    check(node("GlobalLpPool", [x]), GLOBAL, env=env)
    check(node("LRN", [x], size=3), LRN, env=env)


@pytest.mark.parametrize(
    ("name", "tactic", "code", "attrs"),
    [
        ("MaxPoolIndices", WINDOWS, "bool", {"kernel_shape": (2, 2)}),
        ("LpPool", WINDOWS, "i32", {"kernel_shape": (2, 2)}),
        ("LpPool", WINDOWS, "f32", {"kernel_shape": (2, 2), "p": 0}),
        ("GlobalLpPool", GLOBAL, "i8", {}),
    ],
)
def test_what_they_reject(name, tactic, code, attrs):
    found = tactic.match(node(name, [TensorSpec(DType(code), (1, 2, 5, 5))], **attrs), NATIVE)
    assert isinstance(found, Reject)
