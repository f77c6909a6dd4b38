"""Products of bfloat16 in C against the references: float32 sums to 1e-5 of the largest, bf16
results to its budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.conv import bf16 as c_bf16_conv
from tactix_cpu.tactics.conv import bf16_direct
from tactix_cpu.tactics.conv import direct as conv
from tactix_cpu.tactics.matmul import bf16 as c_bf16_gemm
from tactix_cpu.tactics.matmul import gemm

(GEMM,), (IMAGE,) = c_bf16_gemm.tactics(), c_bf16_conv.tactics()
CONV, _ = bf16_direct.tactics()
RNG = np.random.default_rng(17)
HALF = DType.BF16.numpy
FLUSHED = 2e-5
"""Budget of float32 sums: the instruction adds pairs without a rounding between, and flushes
subnormals.
"""


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(HALF)


SIZES = [(1, 768, 100), (13, 37, 50), (128, 64, 96), (5, 3, 17), (30, 130, 33), (16, 1, 1)]


def test_matrices_of_sizes_that_fill_no_tile() -> None:
    cases = []
    for m, k, n in SIZES:
        arrays = [halves(m, k), halves(k, n), floats(n)]
        cases.append(h.Case(h.node("WideMatMul", arrays, [1, 2]), GEMM, arrays, budget=FLUSHED))
        nodes = [
            ("WideMatMul", (0, 1, 2), {}),
            ("Relu", (4,), {}),
            ("Add", (5, 3), {}),
            ("Cast", (6,), {"to": DType.BF16}),
        ]
        more = [*arrays, floats(m, n)]
        cases.append(h.Case(h.fused(more, nodes, [7], 0, [1, 2]), GEMM, more))
    h.check_all(cases)


def test_tensors_that_are_bfloat16() -> None:
    a, b, c = halves(20, 45), halves(45, 40), halves(40)
    t = np.ascontiguousarray(b.T)
    x, w, v = halves(1, 20, 9, 9), halves(24, 20, 3, 3), halves(24)
    h.check_all(
        [
            h.Case(h.node("MatMul", [a, b], [1]), GEMM, [a, b]),
            h.Case(h.node("Gemm", [a, t, c], [1, 2], transB=True), GEMM, [a, t, c]),
            h.Case(h.node("Convolution", [x, w, v], [1, 2], pads=(1, 1, 1, 1)), CONV, [x, w, v]),
        ]
    )


def test_symbolic_rows() -> None:
    for rows in (1, 45):
        a, b = halves(2, rows, 24), halves(24, 40)
        node = h.node("WideMatMul", [h.spec(a, ("n", "rows", 24)), b], [1])
        h.check(node, GEMM, [a, b], env={"n": 2, "rows": rows}, budget=FLUSHED)


@pytest.mark.parametrize("target", h.devices(), ids=lambda d: d.name)
def test_windows(target: Any) -> None:
    cases = []
    for shape, weights, fields in (
        ((2, 20, 13, 11), (40, 20, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
        ((1, 64, 7, 7), (48, 64, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 3, 21, 19), (24, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
        ((1, 33, 9, 9), (50, 33, 1, 1), {}),
        ((1, 20, 12, 12), (20, 20, 3, 2), {"dilations": (2, 3), "pads": (2, 2, 2, 1)}),
        ((2, 17, 37), (33, 17, 5), {"pads": (2, 2)}),
    ):
        arrays = [halves(*shape), halves(*weights), floats(weights[0])]
        node = h.node("WideConvolution", arrays, [1, 2], **fields)
        tactic = IMAGE if shape[1] == 3 else CONV
        offered = asked.variants(tactic, node, target)
        assert not isinstance(offered, Reject)
        cases.append(h.Case(node, tactic, arrays, budget=FLUSHED, device=target, only=offered[:1]))
    h.check_all(cases)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_pixel_of_an_image_that_is_no_number_stays_in_its_windows(channels: int) -> None:
    x, w = halves(1, channels, 9, 9), halves(20, channels, 3, 3)
    x[0, 0, 4, 5] = np.nan
    cases = []
    for fields in ({"pads": (1, 1, 1, 1)}, {"strides": (2, 2)}, {"dilations": (1, 2)}):
        node = h.node("WideConvolution", [x, w], [1], **fields)
        cases.append(h.Case(node, IMAGE, [x, w], budget=FLUSHED))
    h.check_all(cases)


def test_residuals_and_two_results() -> None:
    x, w, r = halves(1, 20, 6, 6), halves(40, 20, 1, 1), floats(1, 40, 6, 6)
    nodes = [
        ("WideConvolution", (0, 1), {}),
        ("Add", (3, 2), {}),
        ("Relu", (4,), {}),
        ("Cast", (5,), {"to": DType.BF16}),
    ]
    node = h.fused([x, w, r], nodes, [5, 6], 0, [1])
    h.check(node, CONV, [x, w, r], budget=1e-2)


def test_an_image_is_read_linear_and_others_are_left() -> None:
    x, w = halves(1, 3, 8, 8), halves(16, 3, 3, 3)
    offered = asked.variants(IMAGE, h.node("WideConvolution", [x, w], [1]), h.NATIVE)
    assert not isinstance(offered, Reject)
    assert offered[0].input_format(0) == LINEAR
    wide = h.node("Convolution", [floats(1, 3, 8, 8), floats(16, 3, 3, 3)], [1])
    scaled = h.node("Gemm", [halves(4, 4), halves(4, 4)], [1], alpha=0.5)
    computed = h.node("WideMatMul", [halves(4, 4), halves(4, 4)])
    assert isinstance(asked.variants(CONV, wide, h.NATIVE), Reject)
    assert isinstance(asked.variants(GEMM, scaled, h.NATIVE), Reject)
    assert isinstance(asked.variants(GEMM, computed, h.NATIVE), Reject)


@pytest.mark.parametrize("features", [set(), {"avx512_bf16"}])
def test_estimates_of_pairs_are_above_those_of_float32(features: set[str]) -> None:
    """Where only estimates choose, bfloat16 is taken for no loss: measuring may still choose it."""
    device = replace(h.NATIVE, features=frozenset({*h.V4, *features}), vector_bits=512)
    ctx = CompileContext(device)

    def least(tactic: Any, node: Any) -> float:
        offered: Any = asked.variants(tactic, node, device)
        return min(asked.cost(tactic, node, v, ctx) or 0.0 for v in offered)

    a, b = floats(200, 512), floats(512, 512)
    (wide,) = gemm.tactics()
    half = h.node("WideMatMul", [a.astype(HALF), b.astype(HALF)], [1])
    assert least(GEMM, half) > least(wide, h.node("MatMul", [a, b], [1]))
    x, w = floats(1, 256, 400), floats(256, 256, 5)
    direct = next(t for t in conv.tactics() if t.key == "tactix.c_conv@1")
    half = h.node("WideConvolution", [x.astype(HALF), w.astype(HALF)], [1])
    assert least(CONV, half) > least(direct, h.node("Convolution", [x, w], [1]))
