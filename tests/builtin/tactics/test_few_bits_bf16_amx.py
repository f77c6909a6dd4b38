"""Products of weights of few bits on the matrix unit in bfloat16: many rows, and few as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from few_bits_cases import arrays_of

from tactix.base.dtypes import DType
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.accuracy import BUDGET, GRANTED
from tactix_cpu.tactics.matmul import few_bits_bf16_amx
from tactix_cpu.tactics.matmul.few_bits_bf16_amx import FEW, HalfAmxFewBitsTactic

AMX = HalfAmxFewBitsTactic()
DEVICE = replace(
    h.NATIVE, features=h.NATIVE.features | set(HalfAmxFewBitsTactic.requires), vector_bits=512
)
GRANT = GRANTED["int8_activations"] * BUDGET[DType.FP32]
ROUNDED = 0.004
"""Both sides in bfloat16: 2^-9 of each number at most, the largest of sums of either sign."""
runs = h.needs(*HalfAmxFewBitsTactic.requires)


def product(
    m: int,
    k: int,
    n: int,
    bits: int = 4,
    block: int = 32,
    symbolic: bool = False,
    nt: Sequence[int] = (1, 2),
    budget: float = ROUNDED,
    **more: Any,
) -> h.Case:
    arrays = arrays_of(m, k, n, bits, block, **more)
    specs, env = list(arrays), {}
    if symbolic:
        specs[0], env = h.spec(arrays[0], ("rows", k)), {"rows": m}
    fields = {"bits": bits, "block_size": block, "int8_activations": True}
    node = h.node("FewBitsMatMul", specs, range(1, len(arrays)), **fields)
    return h.Case(node, AMX, arrays, env=env, device=DEVICE, nt=nt, budget=budget)


def test_it_departs_less_than_the_permission_grants() -> None:
    assert ROUNDED < GRANT / 2


@runs
def test_odd_sizes() -> None:
    sizes = ((25, 1, 17), (32, 32, 32), (33, 100, 65), (47, 415, 37), (70, 161, 96), (300, 65, 33))
    h.check_all([product(m, k, n, nt=(1, 3)) for m, k, n in sizes])


@runs
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_and_zero_points(bits: int) -> None:
    """Blocks that end within a step, too."""
    blocks = (16, 32, 48, 64, 128, 256)
    cases = [product(35, 300, 40, bits, block) for block in blocks]
    h.check_all([*cases, *(product(35, 80, 33, bits, 16, zeros=z) for z in ("u1", "f4", "f2"))])


@runs
def test_scales_of_float16() -> None:
    h.check_all([product(40, 80, 33, scales="f2")])


@runs
def test_symbolic_rows() -> None:
    """Few are multiplied as bytes, from panels of two and of four vectors."""
    columns, threads = (45, 100), (1, 2, 3)
    h.check_all(
        [
            product(m, 96, n, symbolic=True, nt=threads, budget=ROUNDED if m > FEW else GRANT / 2)
            for m in (0, 1, 5, FEW, FEW + 1, 40, 100)
            for n in columns
        ]
    )


@runs
def test_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_bits_bf16_amx, "SWEEP", 1)
    monkeypatch.setattr(few_bits_bf16_amx, "LEAST", 2)
    h.check_all([product(m, 70, 45, symbolic=True, nt=(1, 2)) for m in (64, 65, 200)])


@runs
def test_what_is_fused_behind_it() -> None:
    more = np.random.default_rng(5).standard_normal((35, 37), np.float32)
    arrays = [*arrays_of(35, 64, 37), more]
    nodes = [
        ("FewBitsMatMul", (0, 1, 2), {"int8_activations": True}),
        ("Sigmoid", (4,), {}),
        ("Mul", (4, 5), {}),
        ("Add", (6, 3), {}),
    ]
    node = h.fused(arrays, nodes, anchor=0, constants=(1, 2))
    h.check_all([h.Case(node, AMX, arrays, device=DEVICE, budget=ROUNDED)])


@runs
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, 1e-40, 0.0])
def test_rows_of_any_number(value: float) -> None:
    case = product(30, 64, 20)
    assert case.arrays is not None
    case.arrays[0][1, 7] = value
    h.check_all([case])


def test_what_it_leaves_to_others() -> None:
    arrays, fields = arrays_of(40, 64, 40), {"int8_activations": True}
    nodes = [
        h.node("FewBitsMatMul", arrays, [1, 2]),
        h.node("FewBitsMatMul", [arrays[0][:FEW], *arrays[1:]], [1, 2], **fields),
        h.node("FewBitsMatMul", arrays_of(40, 64, 16), [1, 2], **fields),
    ]
    for node in nodes:
        offered = asked.variants(AMX, node, DEVICE)
        assert isinstance(offered, Reject)
        assert offered.reason
    plain = replace(DEVICE, features=DEVICE.features - {"amx_bf16"})
    offered = asked.variants(AMX, h.node("FewBitsMatMul", arrays, [1, 2], **fields), plain)
    assert isinstance(offered, Reject)
    assert "AMX" in offered.reason


def test_cost_grows_with_the_rows() -> None:
    def cost(m: int) -> float:
        node = product(m, 256, 512).node
        variant = asked.variants(AMX, node, DEVICE)[0]  # type: ignore[index]
        return asked.cost(AMX, node, variant, CompileContext(DEVICE)) or 0.0

    assert 0 < cost(32) < cost(128) < cost(1024)
