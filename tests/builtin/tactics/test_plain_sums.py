"""c_plain_sums: products and windows of bytes that tiles do not take, and windows of float64."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, fused, node, opened, spec

from tactix.base.dtypes import DType
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.plain_sums import PlainSumsTactic

TACTIC = PlainSumsTactic()


def whole(dtype, *shape):
    info = np.iinfo(dtype)
    return np.random.default_rng(4).integers(info.min, info.max, shape, dtype, endpoint=True)


def biases(*shape):
    return np.random.default_rng(5).integers(-1000, 1000, shape).astype(np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("bias", [False, True])
def test_products(dtype, bias):
    cases = []
    for lead, k, n in (((3,), 7, 37), ((2, 5), 64, 1), ((1,), 1, 5), ((4,), 300, 16), ((2,), 0, 3)):
        given = [whole(dtype, *lead, k), whole(np.int8, k, n), *([biases(n)] if bias else [])]
        cases.append(Case(node("IntegerMatMul", given), TACTIC, given, nt=(1, 3)))
    check_all(cases)


WINDOWS = [
    ((2, 4, 9), (6, 4, 3), {}),
    ((2, 4, 9), (6, 2, 3), {"group": 2, "pads": (2, 1), "strides": (2,)}),
    ((1, 6, 8, 9), (4, 3, 3, 2), {"group": 2, "pads": (1, 0, 2, 3), "strides": (2, 3)}),
    ((2, 3, 7, 11), (5, 3, 2, 3), {"dilations": (2, 3), "pads": (2, 4, 1, 5)}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 3), {"pads": (1, 1, 1, 1, 1, 1)}),
    ((1, 2, 3, 2), (3, 2, 1, 5), {"pads": (0, 4, 0, 4)}),
]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows(dtype, case):
    shape, weights, attrs = case
    x, w, b = whole(dtype, *shape), whole(np.int8, *weights), biases(weights[0])
    check_all(
        [
            Case(node("IntegerConvolution", given, pad_value=zero, **attrs), TACTIC, given)
            for given in ([x, w], [x, w, b])
            for zero in (0, 5)
        ]
    )


def test_windows_of_doubles():
    cases = []
    for shape, weights, attrs in WINDOWS:
        rng = np.random.default_rng(6)
        x, w, b = (rng.standard_normal(s) for s in (shape, weights, weights[:1]))
        cases += [Case(node("Convolution", g, **attrs), TACTIC, g) for g in ([x, w], [x, w, b])]
    check_all(cases)


def test_windows_of_int32():
    """Known, and all axes open; sums wrap around as numpy's do."""
    cases = []
    for shape, weights, attrs in WINDOWS:
        x, w = whole(np.int16, *shape).astype(np.int32), whole(np.int16, *weights).astype(np.int32)
        cases.append(Case(node("Convolution", [x, w], **attrs), TACTIC, [x, w]))
        specs, env = opened(x, w)
        made = node("Convolution", specs, **attrs)
        cases.append(Case(made, TACTIC, [x, w], env=env, nt=(1, 3)))
    check_all(cases)


def test_an_epilogue_that_requantises():
    x, w = whole(np.uint8, 2, 4, 5, 7), whole(np.int8, 6, 2, 3, 3)
    scale = np.random.default_rng(0).random((6, 1, 1), np.float32) * np.float32(1e-3)
    steps = [
        ("IntegerConvolution", (0, 1), {"group": 2, "pads": (1, 1, 1, 1), "pad_value": 3}),
        ("Cast", (3,), {"to": DType.FP32}),
        ("Mul", (4, 2), {}),
        ("Quantize", (5,), {"zero": 7, "dtype": DType.UINT8}),
    ]
    check(fused([x, w, scale], steps, None, 0), TACTIC, [x, w, scale])


def test_groups_that_tiles_take_in_parts_are_left_to_them():
    x, w = whole(np.uint8, 5, 8), whole(np.int8, 8, 6)
    steps = [("IntegerMatMul", (0, 1), {}), ("Cast", (2,), {"to": DType.FP32})]
    for constants in ([], [1]):
        made = asked.variants(TACTIC, fused([x, w], steps, None, 0, constants), NATIVE)
        assert isinstance(made, Reject) == bool(constants)


@pytest.mark.parametrize("env", [{"b": 0, "h": 5}, {"b": 2, "h": 9}])
def test_symbolic_sizes(env):
    x, w = whole(np.int8, env["b"], 3, env["h"], 6), whole(np.int8, 4, 3, 3, 3)
    made = node("IntegerConvolution", [spec(x, ("b", 3, "h", 6)), w], pads=(1, 1, 1, 1))
    a, m = whole(np.uint8, env["b"], env["h"]), whole(np.int8, env["h"], 5)
    product = node("IntegerMatMul", [spec(a, ("b", "h")), spec(m, ("h", 5))])
    check_all([Case(made, TACTIC, [x, w], env=env), Case(product, TACTIC, [a, m], env=env)])
