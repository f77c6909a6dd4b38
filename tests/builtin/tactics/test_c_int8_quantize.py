"""Floats to bytes in C: equal to the references at ties, ends and extremes."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, on_every_target, whole_range

from tactix.base.dtypes import DType
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics import quantize as c_int8_quantize
from tactix_cpu.tactics.pointwise import int8 as c_int8_pointwise

(QUANTIZE,), (POINTWISE,) = c_int8_quantize.tactics(), c_int8_pointwise.tactics()


def numbers(*shape: int) -> Any:
    """Normal numbers, ties, and numbers far outside of every range."""
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32) * 60
    flat = x.reshape(-1)
    flat[::7] = np.rint(flat[::7]) + np.float32(0.5)
    flat[1], flat[2], flat[3], flat[4] = 3e9, -3e9, np.inf, -np.inf
    return x


def linear(x: Any, scale: float, zero: Any) -> h.Case:
    arrays = [x, np.float32(scale), zero]
    return h.Case(
        h.node("QuantizeLinear", arrays, [1, 2], dtype=DType.of(zero.dtype)), QUANTIZE, arrays
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantize_linear(dtype: Any) -> None:
    cases = [
        linear(numbers(*shape), scale, dtype(9))
        for shape in ((5, 7), (2, 32, 3, 5), (1000,))
        for scale in (1, 0.7)
    ]
    on_every_target(cases)
    h.check_all(cases)


@pytest.mark.parametrize("known", [[], [1], [2]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quantize_linear_by_what_is_computed(dtype: Any, known: list[int]) -> None:
    cases = []
    for shape in ((5, 7), (1000,), (0, 3)):
        for scale in (0.7, np.ones(1)):
            arrays = [numbers(*shape) if 0 not in shape else np.zeros(shape, np.float32)]
            arrays += [np.float32(scale), dtype(9)]
            case = h.node("QuantizeLinear", arrays, known, dtype=DType.of(dtype))
            cases.append(h.Case(case, QUANTIZE, arrays))
    on_every_target(cases)
    h.check_all(cases)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_quantised_tensors(dtype: Any) -> None:
    cases = []
    for shape in ((2, 20, 3, 5), (40, 33)):
        a, b = whole_range(dtype, *shape), whole_range(dtype, *shape)
        nodes = [
            ("Dequantize", (0,), {"zero": 3, "scale": 0.21}), ("Dequantize", (1,), {"zero": -9, "scale": 0.33}),
            ("Add", (2, 3), {}), ("Mul", (4, 4), {}), ("Quantize", (5,), {"zero": 7, "dtype": DType.of(dtype)}),
        ]  # fmt: skip
        cases.append(h.Case(h.fused([a, b], nodes), POINTWISE, [a, b]))
    h.check_all(cases)


def test_what_they_leave_to_others() -> None:
    x = numbers(4, 6)
    scales = np.ones(6, np.float32)
    per_axis = h.node("QuantizeLinear", [x, scales, np.zeros(6, np.int8)], [1, 2], axis=1)
    assert isinstance(asked.variants(QUANTIZE, per_axis, h.NATIVE), Reject)
    assert isinstance(asked.variants(POINTWISE, h.node("Relu", [x]), h.NATIVE), Reject)
