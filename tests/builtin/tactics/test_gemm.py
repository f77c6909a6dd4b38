"""MatMul and Gemm kernels against numpy: odd shapes, symbolic dims, constant and computed right
sides, epilogues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import tensor_in
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.matmul.gemm import DEEP, CpuGemmTactic
from tactix_cpu.tactics.matmul.gemv import CpuGemvTactic

GEMM = CpuGemmTactic()
RNG = np.random.default_rng(11)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def matmul(a: Any, b: Any, constant: bool, **more: Any) -> h.Case:
    return h.Case(h.node("MatMul", [a, b], [1] if constant else []), GEMM, [a, b], **more)


@pytest.mark.parametrize("constant", [True, False])
def test_odd_shapes(constant: bool) -> None:
    sizes = [
        (1, 1, 1),
        (1, 3, 5),
        (3, 1, 17),
        (17, 40, 33),
        (128, 50, 48),
        (2, 64, 10),
        (5, 7, 300),
        (45, DEEP + 3, 50),
    ]
    h.check_all([matmul(floats(m, k), floats(k, n), constant) for m, k, n in sizes])


def test_batches_broadcast_and_vectors_are_rows_or_columns() -> None:
    pairs = [
        ((2, 3, 5, 7), (2, 3, 7, 9)), ((2, 1, 5, 7), (3, 7, 20)), ((4, 5, 7), (7, 9)), ((5, 7), (3, 7, 9)),
        ((7,), (7, 9)), ((5, 7), (7,)), ((7,), (7,)), ((2, 5, 7), (7,)), ((7,), (3, 7, 4)), ((1, 5, 7), (2, 7, 3)),
    ]  # fmt: skip
    cases = [
        matmul(floats(*a), floats(*b), constant, nt=(1, 3))
        for a, b in pairs
        for constant in (True, False)
    ]
    h.check_all(cases)


def test_gemm_scales_transposes_and_adds() -> None:
    cases = []
    for transpose_a, transpose_b, constant in (
        (0, 0, True),
        (1, 0, True),
        (0, 1, False),
        (1, 1, False),
        (0, 1, True),
    ):
        a, b = (
            floats(*((19, 13) if transpose_a else (13, 19))),
            floats(*((37, 19) if transpose_b else (19, 37))),
        )
        for shape in ((37,), (13, 1), (1, 1), (13, 37), ()):
            attrs = {
                "alpha": 0.5,
                "beta": -2.0,
                "transA": bool(transpose_a),
                "transB": bool(transpose_b),
            }
            node = h.node("Gemm", [a, b, floats(*shape)], [1, 2] if constant else [], **attrs)
            cases.append(h.Case(node, GEMM, only=asked.variants(GEMM, node, h.NATIVE)[:1]))  # type: ignore[index]
    node = h.node("Gemm", [floats(3, 4), floats(4, 5)], [1], alpha=3.0)
    h.check_all([*cases, h.Case(node, GEMM)])


def test_symbolic_sizes() -> None:
    w, bias = floats(30, 21), floats(21)
    cases = []
    for batch, steps in ((1, 1), (2, 3), (3, 41)):
        x = floats(batch, steps, 30)
        spec = h.spec(x, ("batch", "steps", 30))
        env = {"batch": batch, "steps": steps}
        cases.append(h.Case(h.node("MatMul", [spec, w], [1]), GEMM, [x, w], env=env))
        a, b = floats(batch, 2, steps, 9), floats(batch, 2, 9, steps)
        specs = [
            h.spec(a, ("batch", 2, "steps", "depth")),
            h.spec(b, ("batch", 2, "depth", "steps")),
        ]
        cases.append(h.Case(h.node("MatMul", specs), GEMM, [a, b], env={**env, "depth": 9}))
        y = floats(batch, 30)
        node = h.node("Gemm", [h.spec(y, ("batch", 30)), w, bias], [1, 2])
        cases.append(h.Case(node, GEMM, [y, w, bias], env=env))
        node = (
            h.node("Gemm", [h.spec(y, ("batch", 30)), floats(batch, 8)], transA=True)
            if batch == 3
            else None
        )
        if node is not None:
            spec = h.spec(floats(3, 8), ("batch", 8))
            node = h.node("Gemm", [h.spec(y, ("batch", 30)), spec], transA=True)
            cases.append(h.Case(node, GEMM, [y, floats(3, 8)], env=env))
    h.check_all(cases)


@pytest.mark.parametrize("tactic", [GEMM, CpuGemvTactic()], ids=lambda t: t.key)
def test_batches_of_which_only_running_tells_whether_they_repeat(tactic) -> None:
    rows = 5 if tactic is GEMM else 1
    cases = []
    for left, right in (((2, 3), (2, 3)), ((2, 1), (1, 3)), ((1, 1), (2, 3)), ((0, 3), (1, 1))):
        arrays = [floats(*left, rows, 7), floats(*right, 7, 20)]
        names = ("a", "b", rows, 7), ("c", "d", 7, "n")
        specs = [h.spec(x, shape) for x, shape in zip(arrays, names, strict=True)]
        env = dict(zip("abcdn", (*left, *right, 20), strict=True))
        cases.append(h.Case(h.node("MatMul", specs), tactic, arrays, env=env, nt=(1, 3)))
    h.check_all(cases)


def test_epilogues() -> None:
    x, w, bias, residual = floats(2, 9, 40), floats(40, 37), floats(37), floats(2, 9, 37)
    gelu = [("MatMul", (0, 1), {}), ("Add", (4, 2), {}), ("Gelu", (5,), {}), ("Add", (6, 3), {})]
    light = [("MatMul", (0, 1), {}), ("Add", (4, 2), {}), ("Add", (5, 3), {}), ("Relu", (6,), {})]
    cases = []
    for nodes in (gelu, light):
        for shape in ((2, 9, 37), (2, 1, 37), (9, 1), (2, 9, 1), (9, 37), (1,)):
            inputs = [x, w, bias, floats(*shape)]
            node = h.fused(inputs, nodes, anchor=0, constants=[1, 2])
            cases.append(h.Case(node, GEMM, inputs, only=asked.variants(GEMM, node, h.NATIVE)[:1]))  # type: ignore[index]
    sigmoid = [("MatMul", (0, 1), {}), ("Sigmoid", (2,), {}), ("Mul", (2, 3), {})]
    cases.append(h.Case(h.fused([x, w], sigmoid, [2, 4], 0, [1]), GEMM, [x, w]))
    compare = [("MatMul", (0, 1), {}), ("Less", (3, 2), {})]
    cases.append(
        h.Case(h.fused([x, w, residual], compare, anchor=0, constants=[1]), GEMM, [x, w, residual])
    )
    h.check_all(cases)


def test_symbolic_epilogue_and_partial_sums() -> None:
    x, w, residual = floats(3, 33, DEEP + 1), floats(DEEP + 1, 40) / 32, floats(3, 33, 40)
    specs = [h.spec(x, ("b", "s", DEEP + 1)), w, h.spec(residual, ("b", "s", 40))]
    nodes = [("MatMul", (0, 1), {}), ("Add", (3, 2), {}), ("Tanh", (4,), {})]
    node = h.fused(specs, nodes, anchor=0, constants=[1])
    found = h.check(node, GEMM, [x, w, residual], env={"b": 3, "s": 33})
    assert {v.knob("depth") for v in found} - {0}, "a deep product offers partial sums"


def test_every_instruction_set() -> None:
    cases = []
    for device in h.devices():
        cases += [matmul(floats(13, 21), floats(21, 35), c, device=device) for c in (True, False)]
        node = h.node("Gemm", [floats(13, 21), floats(35, 21)], [], transB=True)
        cases.append(h.Case(node, GEMM, device=device))
    h.check_all(cases)


def test_inputs_that_it_leaves_to_others() -> None:
    half = TensorSpec(DType.FP16, (4, 4))
    assert isinstance(asked.variants(GEMM, h.node("MatMul", [half, half]), h.NATIVE), Reject)
    prologue = [("Relu", (0,), {}), ("MatMul", (2, 1), {})]
    node = h.fused([floats(4, 4), floats(4, 4)], prologue, anchor=1)
    assert isinstance(asked.variants(GEMM, node, h.NATIVE), Reject)


def test_rows_that_would_share_few_sets_of_the_first_cache_are_few() -> None:
    device = replace(h.NATIVE, vector_bits=512, features=frozenset(h.V4))

    def rows(k: int) -> list[int]:
        node = h.node("MatMul", [floats(700, k), floats(k, 256)], [1])
        offered = asked.variants(GEMM, node, device)
        assert not isinstance(offered, Reject)
        return [v.number("rows") for v in offered]

    assert max(rows(1024)) <= 8 < max(rows(1008))
    assert max(rows(512)) > 8


def test_cost_needs_every_symbol_and_grows_with_the_work() -> None:
    w = floats(64, 64)
    node = h.node("MatMul", [TensorSpec(DType.FP32, h.spec(w, ("m", 64)).shape), w], [1])
    variant = asked.variants(GEMM, node, h.NATIVE)[0]  # type: ignore[index]
    costs = [asked.cost(GEMM, node, variant, CompileContext(h.NATIVE, {"m": m})) for m in (16, 256)]
    assert asked.cost(GEMM, node, variant, CompileContext(h.NATIVE)) is None
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[1] > 4 * costs[0]


def test_a_constant_right_side_is_packed_at_build() -> None:
    a, b = floats(5, 6), floats(6, 7)
    node = h.node("MatMul", [a, b], [1])
    made = asked.artifact(
        GEMM, node, asked.variants(GEMM, node, h.NATIVE)[0], CompileContext(h.NATIVE)
    )  # type: ignore[index]
    assert len(made.launches) == 1
    assert tensor_in(1) not in made.launches[0].args
    assert [p.index for _, p in made.constants] == [1]
