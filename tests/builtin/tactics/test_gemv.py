"""Products that read both sides where they lie: few rows, columns, integers, float64."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.matmul.gemv import BLOCK, LINES, ROWS, CpuGemvTactic

GEMV = CpuGemvTactic()
RNG = np.random.default_rng(12)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def product(a: Any, b: Any, layer: str = "MatMul", **more: Any) -> h.Case:
    return h.Case(h.node(layer, [a, b], **more), GEMV, [a, b], nt=(1, 3))


def test_few_rows_by_a_matrix() -> None:
    sizes = [
        (1, 1, 2),
        (1, 3, 5),
        (2, 9, 17),
        (3, 40, 33),
        (ROWS, 64, BLOCK + 3),
        (1, 131, 2 * BLOCK),
        (1, 0, 4),
    ]
    h.check_all([product(floats(m, k), floats(k, n)) for m, k, n in sizes])


def test_lines_by_a_vector() -> None:
    rows = (1, LINES - 1, LINES + 1, BLOCK + 5)
    cases = [product(floats(m, k), floats(k, 1)) for m in rows for k in (1, 7, 64, 100)]
    cases += [
        product(floats(m, 37), floats(n, 37), "Gemm", transB=True) for m in (1, 3) for n in rows
    ]
    h.check_all(cases)


def test_batches_broadcast_and_vectors_are_rows_or_columns() -> None:
    pairs = [
        ((2, 3, 1, 7), (2, 3, 7, 9)), ((2, 1, 2, 7), (3, 7, 20)), ((7,), (7, 9)), ((5, 7), (7,)), ((7,), (7,)),
        ((2, 5, 7), (7,)), ((7,), (3, 7, 4)), ((1, 5, 7), (2, 7, 1)), ((2, 0, 7), (7,)), ((0, 1, 7), (0, 7, 3)),
    ]  # fmt: skip
    h.check_all([product(floats(*a), floats(*b)) for a, b in pairs])


def test_a_constant_column() -> None:
    a, b = floats(9, 40), floats(40, 1)
    h.check_all([h.Case(h.node("MatMul", [a, b], [1]), GEMV, [a, b])])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
def test_other_numbers_of_any_rows(dtype: Any) -> None:
    low, high = (-(2**31), 2**31) if np.dtype(dtype).kind == "i" else (0, 2**32)
    shapes = [
        ((3, 9), (9, 5)),
        ((2, 11, 6), (2, 6, 33)),
        ((9, 4), (4, 1)),
        ((5, 3), (3, BLOCK + 1)),
    ]
    cases = []
    for a, b in shapes:
        pair = [RNG.integers(low, high, s).astype(dtype) for s in (a, b)]
        if dtype is np.float64:
            pair = [RNG.standard_normal(s) for s in (a, b)]
        cases.append(product(*pair))
    h.check_all(cases)


def test_symbolic_sizes() -> None:
    cases = []
    for batch, length in ((1, 1), (2, 41), (3, 130)):
        env = {"b": batch, "s": length}
        for a, b, shapes in (
            (floats(batch, 1, length), floats(batch, length, 16), (("b", 1, "s"), ("b", "s", 16))),
            (floats(batch, 1, 16), floats(batch, 16, length), (("b", 1, 16), ("b", 16, "s"))),
            (floats(batch, length, 9), floats(batch, 9, 1), (("b", "s", 9), ("b", 9, 1))),
        ):
            specs = [h.spec(x, s) for x, s in zip((a, b), shapes)]
            cases.append(h.Case(h.node("MatMul", specs), GEMV, [a, b], env=env))
    h.check_all(cases)


def test_epilogues() -> None:
    cases = []
    for rows, columns in ((1, 37), (3, 37), (20, 1)):
        x, w = floats(2, rows, 40), floats(2, 40, columns)
        for shape in ((2, rows, columns), (columns,), (rows, 1), (2, 1, 1)):
            inputs = [x, w, floats(*shape)]
            nodes = [("MatMul", (0, 1), {}), ("Add", (3, 2), {}), ("Gelu", (4,), {})]
            cases.append(h.Case(h.fused(inputs, nodes, anchor=0), GEMV, inputs))
    for shape in ((37,), (3, 1), (3, 37), ()):
        inputs = [floats(3, 19), floats(37, 19), floats(*shape)]
        node = h.node("Gemm", inputs, transB=True, alpha=0.5, beta=-2.0)
        cases.append(h.Case(node, GEMV, inputs))
    whole = [RNG.integers(-9, 9, s).astype(np.int32) for s in ((6, 5), (5, 7), (7,))]
    nodes = [("MatMul", (0, 1), {}), ("Sub", (3, 2), {})]
    cases.append(h.Case(h.fused(whole, nodes, anchor=0), GEMV, whole))
    h.check_all(cases)


def test_not_finite_numbers_spread_as_in_the_reference() -> None:
    a, b = floats(1, 20), floats(20, 33)
    b[3, 4], b[5, 6], a[0, 7] = np.inf, np.nan, -np.inf
    h.check_all([product(a, b), product(np.ascontiguousarray(b.T), np.ascontiguousarray(a.T))])


def test_every_instruction_set() -> None:
    cases = []
    for device in h.devices():
        for a, b in (((1, 21), (21, 35)), ((13, 21), (21, 1))):
            pair = [floats(*a), floats(*b)]
            cases.append(h.Case(h.node("MatMul", pair), GEMV, pair, device=device))
    h.check_all(cases)


def test_inputs_that_it_leaves_to_others() -> None:
    def refused(a: Any, b: Any, constants: Any = (), layer: str = "MatMul", **attrs: Any) -> bool:
        node = h.node(layer, [a, b], list(constants), **attrs)
        return isinstance(asked.variants(GEMV, node, h.NATIVE), Reject)

    assert refused(floats(ROWS + 1, 9), floats(9, 5))
    assert refused(floats(1, 9), floats(9, 5), [1])
    assert refused(floats(9, 3), floats(9, 5), layer="Gemm", transA=True)
    assert not refused(floats(1, 9), floats(9, 5))
