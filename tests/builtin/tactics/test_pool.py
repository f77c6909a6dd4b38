"""c_pool: geometry, formats, dtypes, epilogues, symbolic dims."""

from __future__ import annotations

import itertools

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.pool.tactic import CpuPoolTactic

TACTIC = CpuPoolTactic()
BOTH = ("MaxPool", "AveragePool")
GEOMETRY = [
    {"kernel_shape": (2, 2), "strides": (2, 2)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
    {"kernel_shape": (3, 2), "strides": (1, 3), "pads": (0, 1, 2, 0)},
    {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1), "ceil_mode": True},
    {"kernel_shape": (2, 3), "dilations": (2, 2), "pads": (1, 2, 1, 2)},
    {"kernel_shape": (1, 17), "strides": (1, 1)},
    {"kernel_shape": (7, 7), "strides": (7, 7), "pads": (3, 3, 3, 3)},
]


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _options(op: str, geometry: dict) -> list[dict]:
    return (
        [geometry]
        if op == "MaxPool"
        else [{**geometry, "count_include_pad": c} for c in (False, True)]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("channels", [16, 5, 35])
def test_windows_in_two_dimensions(device, channels):
    x = _f32(2, channels, 9, 45)
    nodes = [node(op, [x], **o) for op in BOTH for g in GEOMETRY for o in _options(op, g)]
    found = check_all([Case(n, TACTIC, [x], device=device, nt=(1, 3)) for n in nodes])
    assert all(len(variants) == 3 for variants in found)


def test_one_and_three_dimensions():
    x, y = _f32(2, 20, 70), _f32(1, 20, 5, 6, 7)
    cases = []
    for op in BOTH:
        for o in _options(op, {"kernel_shape": (3,), "strides": (2,), "pads": (1, 0)}):
            cases.append(Case(node(op, [x], **o), TACTIC, [x]))
        for o in _options(
            op, {"kernel_shape": (2, 3, 2), "strides": (2, 1, 2), "pads": (0, 1, 1, 1, 1, 0)}
        ):
            cases.append(Case(node(op, [y], **o), TACTIC, [y]))
    check_all(cases)


def test_tiny_and_empty_inputs():
    one, none = _f32(1, 1, 1, 1), _f32(0, 3, 4, 4)
    cases = []
    for op in BOTH:
        cases.append(Case(node(op, [one], kernel_shape=(3, 3), pads=(1, 1, 1, 1)), TACTIC, [one]))
        cases.append(Case(node(op, [one], kernel_shape=(1, 1)), TACTIC, [one]))
        cases.append(Case(node(op, [none], kernel_shape=(2, 2)), TACTIC, [none]))
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_16_bit_floats(code):
    x = _f32(2, 20, 9, 40).astype(DType(code).numpy)
    check_all(
        [Case(node(op, [x], **g), TACTIC, [x]) for op, g in itertools.product(BOTH, GEOMETRY[:3])]
    )


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_the_largest_of_bytes(device, dtype):
    rng, n = np.random.default_rng(1), dims.sym("n")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    shapes = {(2, 20, 70): (3,), (2, 20, 9, 45): (3, 3), (1, 20, 5, 6, 37): (2, 3, 2)}
    cases = []
    for shape, kernel in shapes.items():
        x = rng.integers(low, high, shape, dtype, endpoint=True)
        for step in (1, 2, 3):
            window = {"kernel_shape": kernel, "strides": (step,) * len(kernel)}
            around = {**window, "pads": (1,) * 2 * len(kernel)}
            cases += [
                Case(node("MaxPool", [x], **o), TACTIC, [x], device=device)
                for o in (window, around)
            ]
    open_size = TensorSpec(DType.of(dtype), (n, 20, n, 40))
    cases.append(
        Case(node("MaxPool", [open_size], **GEOMETRY[1]), TACTIC, device=device, env={"n": 5})
    )
    assert all(len(variants) == 3 for variants in check_all(cases))


def test_nan_and_infinity():
    x = _f32(1, 16, 6, 40)
    x[0, 3, 2, 5], x[0, 4, 0, 0], x[0, 5, 5, 39] = np.nan, np.inf, -np.inf
    x[0, 6] = -np.inf
    check_all([Case(node(op, [x], **GEOMETRY[1]), TACTIC, [x]) for op in BOTH])


@pytest.mark.parametrize("channels", [16, 20])
@pytest.mark.parametrize("op", BOTH)
def test_epilogues(op, channels):
    x = _f32(2, channels, 8, 40)
    for shape in ((channels, 1, 1), (2, channels, 4, 20), (2, channels, 1, 1), (1,), (4, 20)):
        b = _f32(*shape, seed=1)
        n = fused(
            [x, b],
            [(op, [0], GEOMETRY[0]), ("Add", [2, 1], {}), ("Sigmoid", [3], {})],
            results=(4, 3),
            anchor=0,
        )
        assert len(check(n, TACTIC, [x, b])) >= 2


@pytest.mark.parametrize("env", [{"n": 1, "s": 3}, {"n": 3, "s": 40}, {"n": 0, "s": 5}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    specs = [TensorSpec(DType.FP32, (n, 20, s, s)), TensorSpec(DType.FP32, (2, n + 1, s, 8))]
    check_all([Case(node(op, [x], **GEOMETRY[1]), TACTIC, env=env) for op in BOTH for x in specs])


def test_what_it_rejects():
    found = asked.variants(
        TACTIC, node("MaxPool", [_f32(1, 2, 4, 4).astype(np.float64)], kernel_shape=(2, 2)), NATIVE
    )
    assert isinstance(found, Reject)
    assert "f64" in found.reason


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_rows_of_several_lines_and_windows_that_no_line_holds(dtype):
    """Rows of more windows than are held at a time; a window of more elements than a line."""
    x = (_f32(1, 2, 3, 700, seed=3) * 20).astype(DType(dtype).numpy)
    wide = (_f32(1, 1, 4700, seed=4) * 20).astype(DType(dtype).numpy)
    ops = BOTH if dtype != "i8" else BOTH[:1]
    cases = [Case(node(op, [x], **g), TACTIC, [x], nt=(1, 3)) for op in ops for g in GEOMETRY]
    cases += [
        Case(node(op, [wide], kernel_shape=(4400,), strides=(7,)), TACTIC, [wide]) for op in ops
    ]
    check_all(cases)
