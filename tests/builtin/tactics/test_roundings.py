"""What a network observably rounds to 16 bits is rounded in generated C; what nobody sees stays
float32.
"""

from __future__ import annotations

from dataclasses import replace

import asked
import numpy as np
import pytest
from harness import Case, check_all, devices, fused
from rounding_cases import GROUPS, KINDS, WIDER, group

from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import program
from tactix_cpu.tactics.norm import softmax as c_softmax
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic


def targets() -> list[DeviceProperties]:
    """Those of the machine, and each without the instructions for 16-bit floats."""
    found = devices()
    bare = [
        replace(d, name=f"{d.name} bare", features=d.features - {"f16c", "avx512_bf16"})
        for d in found
    ]
    return found + [b for b, d in zip(bare, found, strict=True) if b.features != d.features]


def beside_what_float16_has() -> np.ndarray:
    """float32 numbers around each of float16, half way to the next one, and beyond the last."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = every.view(np.uint32)
    near = [bits + np.uint32(d) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    small = np.arange(-4096, 4096, dtype=np.float32) * np.float32(2.0**-27)
    return np.concatenate([*(b.view(np.float32) for b in near), small])


@pytest.mark.parametrize("device", targets(), ids=lambda d: d.name)
def test_every_float16_is_read_and_rounded_to(device: DeviceProperties) -> None:
    """Results are multiplied by 2**24, so that no difference is small."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    scale, x = np.float32(2.0**24), beside_what_float16_has()
    half = {"to": DType.FP16}
    nodes = (
        (fused([every, scale], [("Cast", [0], WIDER), ("Mul", [2, 1], {})]), [every, scale]),
        (
            fused([x, scale], [("Cast", [0], half), ("Cast", [2], WIDER), ("Mul", [3, 1], {})]),
            [x, scale],
        ),
        (fused([x], [("Cast", [0], half)]), [x]),
    )
    tactic = CpuPointwiseTactic()
    check_all([Case(n, tactic, a, device=device, budget=0.0, nt=(1,)) for n, a in nodes])


@pytest.mark.parametrize("device", targets(), ids=lambda d: d.name)
@pytest.mark.parametrize("kind", KINDS)
def test_roundings_that_show(kind: str, device: DeviceProperties) -> None:
    cases = []
    for name in GROUPS:
        node, arrays = group(name, kind)
        cases.append(Case(node, CpuPointwiseTactic(), arrays, device=device, budget=0.0, nt=(1,)))
    check_all(cases)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_beyond_float16_become_infinite_before_they_are_decided_on(kind: str) -> None:
    x = np.array([60000, 300, -65000, 1], np.float32).astype(DType(kind).numpy)
    node = fused([x], [("Add", [0, 0], {}), ("IsInf", [1], {})])
    check_all([Case(node, CpuPointwiseTactic(), [x])])


def expressions(node: Node) -> list[str]:
    return [str(r) for r in program(node.body, node.specs).results]


def half(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float16)


def test_what_nobody_sees_is_not_rounded() -> None:
    chain = [("Mul", [0, 1], {}), ("Add", [2, 1], {}), ("Tanh", [3], {})]
    assert expressions(fused([half(3), half(3)], chain, (3, 4))) == [
        "add(mul(x0, x1), x1)",
        "tanh(add(mul(x0, x1), x1))",
    ]


def test_only_the_value_that_is_widened_is_rounded() -> None:
    chain = [("Mul", [0, 1], {}), ("Add", [2, 1], {}), ("Cast", [3], WIDER)]
    assert expressions(fused([half(3), half(3)], chain)) == [
        "cast(cast(add(mul(x0, x1), x1), f16), f32)"
    ]


def test_all_that_a_jump_decides_on_is_rounded() -> None:
    chain = [("Mul", [0, 1], {}), ("Add", [2, 1], {}), ("Floor", [3], {})]
    assert expressions(fused([half(3), half(3)], chain)) == [
        "floor(cast(add(cast(mul(x0, x1), f16), x1), f16))"
    ]


def test_numbers_of_the_type_are_not_rounded_again() -> None:
    chain = [("Relu", [0], {}), ("Neg", [1], {}), ("Cast", [2], WIDER), ("Floor", [1], {})]
    made = expressions(fused([half(3)], chain, (3, 4)))
    assert made == ["cast(neg(max(x0, 0.0)), f32)", "floor(max(x0, 0.0))"]
    once = [("Cast", [0], {"to": DType.BF16}), ("Cast", [1], WIDER)]
    assert expressions(fused([np.ones(3, np.float32)], once)) == ["cast(cast(x0, bf16), f32)"]


def test_what_an_anchor_sums_in_float32_is_rounded_before_it_is_seen() -> None:
    nodes = [("Softmax", [0], {}), ("Cast", [1], WIDER)]
    assert expressions(fused([half(3, 4)], nodes, anchor=0)) == ["cast(cast(x0, f16), f32)"]


@pytest.mark.parametrize("kind", KINDS)
def test_wide_results_of_an_anchor_lie_on_the_grid(kind: str) -> None:
    from harness import COMPILER, NATIVE, Run, _compile, _library

    x = np.random.default_rng(3).standard_normal((7, 65)).astype(DType(kind).numpy)
    node = fused([x], [("Softmax", [0], {}), ("Cast", [1], WIDER)], anchor=0)
    (tactic,) = (
        t for t in c_softmax.tactics() if not hasattr(asked.variants(t, node, NATIVE), "reason")
    )
    for variant, artifact in _compile(Case(node, tactic, [x])):
        (binary,) = COMPILER.compile([artifact.code], NATIVE)
        (y,) = Run(node, variant, artifact, {})(getattr(_library(binary), binary.symbol), [x], 1)
        np.testing.assert_array_equal(y, y.astype(DType(kind).numpy).astype(np.float32))
