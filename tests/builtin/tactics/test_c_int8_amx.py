"""Integer and bfloat16 products on the matrix unit, where this machine has one: equal, or within
float32's budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, product, requantised, whole_range

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.conv import bf16_amx as c_bf16_amx_conv
from tactix_cpu.tactics.conv import int8_amx as c_int8_amx_conv
from tactix_cpu.tactics.matmul import int8_amx as c_int8_amx

BYTES, HALVES = c_int8_amx.tactics()
BYTE_WINDOWS, HALF_WINDOWS = *c_int8_amx_conv.tactics(), *c_bf16_amx_conv.tactics()
TILES = {"amx_tile", "amx_int8", "amx_bf16"}
AMX = replace(h.NATIVE, features=h.NATIVE.features | TILES)
needs_unit = h.needs(*sorted(TILES), *h.V4)
SIZES = [
    (32, 64, 32),
    (128, 768, 96),
    (8, 64, 40),
    (50, 128, 33),
    (16, 64, 17),
    (47, 192, 100),
    (65, 64, 31),
]
PART_STEPS = [(47, 96, 100), (64, 72, 32), (16, 100, 40), (33, 127, 64)]
"""Sizes whose depth ends within a step of the unit."""


def gemm(dtype: Any, m: int, k: int, n: int, **more: Any) -> h.Case:
    return product(
        "IntegerMatMul",
        whole_range(dtype, m, k),
        whole_range(np.int8, k, n),
        BYTES,
        device=AMX,
        **more,
    )


@needs_unit
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes(dtype: Any) -> None:
    cases = [gemm(dtype, *size, nt=(1, 2, 3)) for size in (*SIZES, *PART_STEPS)]
    h.check_all([*cases, *(requantised(c) for c in cases), gemm(dtype, 40, 64, 40, bias=False)])


@needs_unit
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_numbers(dtype: Any) -> None:
    info = np.iinfo(dtype)
    cases = []
    for a, b in ((info.min, -128), (info.max, -128), (info.max, 127)):
        x, w = np.full((40, 1024), a, dtype), np.full((1024, 40), b, np.int8)
        cases.append(product("IntegerMatMul", x, w, BYTES, device=AMX))
    h.check_all(cases)


@needs_unit
def test_symbolic_rows() -> None:
    cases = []
    for rows in (1, 14, 32, 45):
        x, w = whole_range(np.uint8, 2, rows, 64), whole_range(np.int8, 64, 40)
        cases.append(
            product("IntegerMatMul", x, w, BYTES, symbols=("n", "rows", 64), nt=(1, 3), device=AMX)
        )
    h.check_all(cases)


@needs_unit
def test_halves() -> None:
    rng, cases = np.random.default_rng(3), []
    for m, k, n in SIZES:
        a, b = (
            rng.standard_normal(s, dtype=np.float32).astype(DType.BF16.numpy)
            for s in ((m, k), (k, n))
        )
        arrays = [a, b, rng.standard_normal(n, dtype=np.float32)]
        node = h.node("WideMatMul", arrays, [1, 2])
        cases.append(h.Case(node, HALVES, arrays, budget=2e-5, device=AMX))
        cases.append(h.Case(h.node("MatMul", arrays[:2], [1]), HALVES, arrays[:2], device=AMX))
    h.check_all(cases)


WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 64, 7, 7), (96, 64, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 128, 14, 14), (40, 128, 1, 1), {}),
    ((1, 64, 9, 40), (50, 64, 3, 2), {"pads": (1, 0, 2, 1)}),
    ((2, 64, 12, 11), (32, 64, 3, 3), {"dilations": (2, 3), "pads": (2, 3, 1, 0)}),
    ((1, 192, 37), (33, 192, 5), {"pads": (2, 2)}),
    ((2, 64, 13, 15), (40, 64, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 64, 15, 14), (32, 64, 1, 1), {"strides": (2, 2)}),
    ((2, 128, 9, 11), (64, 128, 1, 1), {"strides": (2, 3), "pads": (1, 2, 0, 1)}),
    ((2, 64, 9, 13), (128, 64, 1, 3), {"strides": (2, 1), "pads": (0, 1, 0, 1)}),
    ((2, 64, 7, 9), (192, 64, 1, 1), {}),
    (
        (1, 64, 20, 23),
        (32, 64, 3, 2),
        {"strides": (3, 2), "dilations": (2, 3), "pads": (0, 1, 2, 3)},
    ),
]


IMAGES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 29, 31), (64, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ((1, 1, 12, 17), (33, 1, 5, 3), {"pads": (2, 0, 1, 1)}),
    ((2, 4, 11, 9), (16, 4, 2, 19), {"pads": (0, 8, 3, 7), "strides": (1, 3)}),
    ((1, 2, 3, 90), (128, 2, 1, 18), {"strides": (2, 1)}),
]


@needs_unit
@pytest.mark.parametrize("dtype", DTYPES)
def test_windows_of_bytes(dtype: Any) -> None:
    cases = []
    for x, w, fields in (*WINDOWS, *IMAGES):
        arrays = whole_range(dtype, *x), whole_range(np.int8, *w)
        more = {
            "pad_value": 250 if dtype is np.uint8 else -5,
            "device": AMX,
            "nt": (1, 2, 3),
            **fields,
        }
        cases.append(product("IntegerConvolution", *arrays, BYTE_WINDOWS, **more))
    h.check_all([*cases, *(requantised(c) for c in cases)])


@needs_unit
def test_windows_of_halves() -> None:
    rng, cases = np.random.default_rng(3), []
    for x, w, fields in WINDOWS:
        a, b = (rng.standard_normal(s, dtype=np.float32).astype(DType.BF16.numpy) for s in (x, w))
        arrays = [a, b, rng.standard_normal(w[0], dtype=np.float32)]
        node = h.node("WideConvolution", arrays, [1, 2], **fields)
        cases.append(h.Case(node, HALF_WINDOWS, arrays, budget=2e-5, device=AMX))
    h.check_all(cases)


def test_what_they_leave_to_others() -> None:
    plain = replace(h.NATIVE, features=h.NATIVE.features - TILES)
    whole = gemm(np.uint8, 32, 64, 32).node
    assert isinstance(asked.variants(BYTES, whole, plain), Reject)
    wide = replace(AMX, features=AMX.features | set(h.V4), vector_bits=512)
    for m, k in ((32, 63), (4, 64)):
        assert isinstance(asked.variants(BYTES, gemm(np.uint8, m, k, 32).node, wide), Reject)
    half = h.node(
        "WideMatMul", [TensorSpec(DType.FP16, (32, 64)), np.zeros((64, 32), np.float16)], [1]
    )
    assert isinstance(asked.variants(HALVES, half, wide), Reject)


def test_cost_grows_with_the_work() -> None:
    ctx = CompileContext(replace(AMX, features=AMX.features | set(h.V4), vector_bits=512))
    costs = []
    for m in (32, 64, 256):
        node = gemm(np.uint8, m, 256, 256).node
        costs.append(asked.cost(BYTES, node, asked.variants(BYTES, node, ctx.device)[0], ctx))  # type: ignore[index]
    assert None not in costs
    assert costs == sorted(costs, key=lambda c: c or 0.0)
