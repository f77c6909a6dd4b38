"""AMX products against numpy: odd shapes, depth in passes, groups of rows, epilogues, infinities,
accuracy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.matmul import gemm_amx as c_gemm_amx
from tactix_cpu.tactics.matmul.gemm_amx import AmxGemmTactic, slab_steps

AMX = AmxGemmTactic()
RNG = np.random.default_rng(29)
DEVICE = replace(
    h.NATIVE, features=h.NATIVE.features | set(AmxGemmTactic.requires), vector_bits=512
)
runs = h.needs(*AmxGemmTactic.requires)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def matmul(a: Any, b: Any, **more: Any) -> h.Case:
    return h.Case(h.node("MatMul", [a, b], [1]), AMX, [a, b], device=DEVICE, **more)


@runs
def test_odd_shapes() -> None:
    sizes = [
        (8, 1, 1),
        (16, 32, 32),
        (17, 33, 31),
        (33, 100, 65),
        (47, 415, 10),
        (70, 160, 96),
        (300, 65, 33),
    ]
    h.check_all([matmul(floats(m, k), floats(k, n), nt=(1, 3)) for m, k, n in sizes])


@runs
def test_depth_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_gemm_amx, "L2_BYTES", 1 << 16)
    h.check_all(
        [matmul(floats(m, k), floats(k, n)) for m, k, n in ((40, 1000, 70), (290, 517, 40))]
    )


@runs
def test_symbolic_rows_transposed_weights_and_epilogues() -> None:
    cases = []
    for batch, steps in ((1, 1), (2, 20), (3, 100)):
        x, w, residual = floats(batch, steps, 50), floats(50, 45), floats(batch, steps, 45)
        specs = [h.spec(x, ("b", "s", 50)), w, h.spec(floats(45)), h.spec(residual, ("b", "s", 45))]
        nodes = [
            ("MatMul", (0, 1), {}),
            ("Add", (4, 2), {}),
            ("Gelu", (5,), {}),
            ("Add", (6, 3), {}),
        ]
        env = {"b": batch, "s": steps}
        node = h.fused(specs, nodes, anchor=0, constants=[1])
        cases.append(h.Case(node, AMX, [x, w, floats(45), residual], env=env, device=DEVICE))
    a, b, c = floats(40, 70), floats(33, 70), floats(33)
    node = h.node("Gemm", [a, b, c], [1, 2], alpha=0.5, beta=-2.0, transB=True)
    h.check_all([*cases, h.Case(node, AMX, [a, b, c], device=DEVICE)])


@runs
def test_infinities_nans_zeros_and_extremes() -> None:
    a, b = floats(300, 40), floats(40, 35)
    b[:, 3] = 2.0  # one part alone is not zero
    a[5, 7], a[20, 1], a[290, 39] = np.inf, np.nan, -np.inf
    a[17], a[40], a[41] = 0.0, 1e-30, 1e30
    h.check_all([matmul(a, b)])


@runs
def test_it_is_as_accurate_as_float32() -> None:
    a, b = (np.abs(floats(*s)) for s in ((64, 768), (768, 64)))
    h.check_all([matmul(a, b, budget=2e-6)])


def test_what_it_does_not_take() -> None:
    a, b = floats(20, 30), floats(30, 40)
    bad = b.copy()
    bad[3, 4] = np.inf
    assert isinstance(asked.variants(AMX, h.node("MatMul", [a, b], [1]), h.NATIVE), Reject)
    nodes = (
        h.node("MatMul", [a, b]),
        h.node("MatMul", [a[:4], b], [1]),
        h.node("MatMul", [a, bad], [1]),
    )
    assert all(isinstance(asked.variants(AMX, n, DEVICE), Reject) for n in nodes)


def test_slabs_divide_the_depth_with_little_rest() -> None:
    assert [slab_steps(s) for s in (1, 4, 13, 24, 96, 6, 10)] == [1, 4, 7, 12, 12, 6, 10]


def test_the_estimate_grows_with_the_rows() -> None:
    node = h.node("MatMul", [h.spec(floats(1, 64), ("m", 64)), floats(64, 64)], [1])
    (variant,) = asked.variants(AMX, node, DEVICE)  # type: ignore[misc]
    costs = [asked.cost(AMX, node, variant, CompileContext(DEVICE, {"m": m})) for m in (32, 320)]
    assert costs[0] is not None
    assert costs[1] is not None
    assert 0 < costs[0] < costs[1]
