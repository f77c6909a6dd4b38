"""IntegerMatMul in C: equal to the reference for any sizes, both signs of x, extreme numbers, and
any epilogue.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, RNG, biases, on_every_target, product, requantised, whole_range

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.levels import target
from tactix_cpu.tactics.conv import int8 as c_int8_conv
from tactix_cpu.tactics.matmul import byte_product
from tactix_cpu.tactics.matmul import int8 as c_int8_gemm

(GEMM,), (BYTES,), (CONV,) = (m.tactics() for m in (c_int8_gemm, byte_product, c_int8_conv))
SIZES = [
    (1, 768, 100),
    (13, 37, 50),
    (128, 64, 96),
    (5, 3, 17),
    (30, 130, 33),
    (16, 1, 1),
    (2, 66, 300),
]


def gemm(dtype: Any, m: int, k: int, n: int, **more: Any) -> h.Case:
    return product(
        "IntegerMatMul", whole_range(dtype, m, k), whole_range(np.int8, k, n), GEMM, **more
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_that_fill_no_tile(dtype: Any) -> None:
    cases = [gemm(dtype, *size) for size in SIZES]
    h.check_all([*cases, *(requantised(c) for c in cases), gemm(dtype, 9, 20, 40, bias=False)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_numbers_do_not_saturate_on_the_way(dtype: Any) -> None:
    info = np.iinfo(dtype)
    cases = []
    for a in (info.min, info.max):
        for b in (-128, 127):
            x, w = np.full((6, 516), a, dtype), np.full((516, 40), b, np.int8)
            cases.append(product("IntegerMatMul", x, w, GEMM))
            cases.append(requantised(cases[-1], zero=0))
    on_every_target(cases)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_of_weights_at_the_end_of_16_bits_and_behind_it(dtype: Any) -> None:
    info, cases = np.iinfo(dtype), []
    pairs = [(64, 64), (127, 1), (-64, -64), (-128, 0), (127, -128), (65, 64), (-128, -1)]
    for a in (info.min, info.max):
        w = np.tile(np.array(pairs * 2, np.int8).reshape(-1, 1), (3, 104))
        w[:, 50:] = RNG.choice([-64, 0, 64, 127], w[:, 50:].shape, p=[0.4, 0.3, 0.29, 0.01])
        cases.append(product("IntegerMatMul", np.full((7, len(w)), a, dtype), w, GEMM))
        rows = len(w) - 2
        cases.append(product("IntegerMatMul", whole_range(dtype, 7, rows), w[:rows], GEMM))
    on_every_target(cases)


def test_steps_that_fit_come_first_in_each_panel() -> None:
    w = np.zeros((16, 96), np.int8)
    w[1, 70] = w[0, 70] = 127  # the first step of one panel
    node = product("IntegerMatMul", whole_range(np.uint8, 6, 16), w, GEMM).node
    device = target("x86-64-v3")
    (variant, *_) = asked.variants(GEMM, node, device)  # type: ignore[misc]
    width = 8 * variant.number("vectors")
    artifact = asked.artifact(GEMM, node, variant, CompileContext(device))
    given: Any = [v.const for v in node.given]
    order = dict(artifact.constants)["order"].apply(given).tolist()
    expected = [[4, 0, 4, 8, 12]] * (96 // width)
    expected[70 // width] = [3, 4, 8, 12, 0]
    assert order == expected


def test_every_instruction_set() -> None:
    on_every_target([requantised(gemm(t, 11, 70, 50)) for t in DTYPES])


def test_symbolic_rows_and_batches() -> None:
    for rows in (1, 14, 45):
        x, w = whole_range(np.uint8, 2, rows, 24), whole_range(np.int8, 24, 40)
        h.check_all([product("IntegerMatMul", x, w, GEMM, symbols=("n", "rows", 24), nt=(1, 3))])


def test_floats_with_long_epilogues() -> None:
    x, w, b = whole_range(np.uint8, 20, 64), whole_range(np.int8, 64, 48), biases(48)
    factor = np.full(48, 1e-5, np.float32)
    nodes = [
        ("IntegerMatMul", (0, 1, 2), {}),
        ("Cast", (4,), {"to": DType.FP32}),
        ("Mul", (5, 3), {}),
        ("Gelu", (6,), {}),
    ]
    node = h.fused([x, w, b, factor], nodes, [6, 7], anchor=0, constants=[1, 2, 3])
    h.check(node, GEMM, [x, w, b, factor])


@pytest.mark.parametrize(
    ("zero", "dtype"), [(0, np.uint8), (255, np.uint8), (-128, np.int8), (127, np.int8)]
)
def test_zero_points_at_the_ends(zero: int, dtype: Any) -> None:
    h.check_all([requantised(gemm(dtype, 20, 32, 48), zero=zero)])


def test_what_it_leaves_to_others() -> None:
    a, b = TensorSpec(DType.UINT8, (4, 8)), TensorSpec(DType.INT8, (8, 4))
    assert isinstance(asked.variants(GEMM, h.node("IntegerMatMul", [a, b]), h.NATIVE), Reject)
    empty = h.node("IntegerMatMul", [a, np.zeros((8, 0), np.int8)], [1])
    assert isinstance(asked.variants(GEMM, empty, h.NATIVE), Reject)


@pytest.mark.parametrize(
    ("level", "more", "call"),
    [
        ("x86-64-v2", (), "tx_dot4(s"),
        ("x86-64-v3", (), "tx_dot2_at(s"),
        ("x86-64-v3", ("avx_vnni",), "tx_dot4(s"),
        ("x86-64-v4", (), "tx_dot4(s"),
        ("x86-64-v4", ("avx512_vnni",), "tx_dot4(s"),
    ],
)
def test_avx2_without_products_of_four_bytes_reads_widened_weights(
    level: str, more: tuple[str, ...], call: str
) -> None:
    made = target(level)
    device = replace(made, features=made.features | set(more))
    ctx = CompileContext(device)
    image, window = whole_range(np.uint8, 1, 16, 5, 5), whole_range(np.int8, 16, 16, 3, 3)
    for tactic, node in (
        (GEMM, gemm(np.uint8, 20, 32, 48).node),
        (BYTES, h.node("ByteMatMul", [TensorSpec(DType.UINT8, (9, 9))] * 2, [])),
        (CONV, product("IntegerConvolution", image, window, CONV).node),
    ):
        offered = asked.variants(tactic, node, device)
        assert not isinstance(offered, Reject), offered.reason
        code = asked.artifact(tactic, node, offered[0], ctx).code
        assert isinstance(code, Source)
        assert call in code.text


@pytest.mark.parametrize(
    ("rows", "call"), [(1, "tx_dot4(s"), (2, "tx_dot4(s"), (3, "tx_dot2_at(s")]
)
def test_weights_of_few_rows_stay_bytes(rows: int, call: str) -> None:
    device = target("x86-64-v3")
    image, window = whole_range(np.uint8, 1, 16, 1, rows), whole_range(np.int8, 16, 16, 1, 1)
    for tactic, node in (
        (GEMM, gemm(np.uint8, rows, 32, 48).node),
        (CONV, product("IntegerConvolution", image, window, CONV).node),
    ):
        offered = asked.variants(tactic, node, device)
        assert not isinstance(offered, Reject), offered.reason
        code = asked.artifact(tactic, node, offered[0], CompileContext(device)).code
        assert isinstance(code, Source)
        assert {c for c in ("tx_dot4(s", "tx_dot2_at(s") if c in code.text} == {call}


def test_cost_grows_with_the_work() -> None:
    ctx = CompileContext(h.NATIVE)
    costs = []
    for m in (1, 16, 128):
        node = gemm(np.uint8, m, 256, 256).node
        costs.append(asked.cost(GEMM, node, asked.variants(GEMM, node, h.NATIVE)[0], ctx))  # type: ignore[index]
    assert None not in costs
    assert costs == sorted(costs, key=lambda c: c or 0.0)
