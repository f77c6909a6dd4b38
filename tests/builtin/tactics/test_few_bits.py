"""Products with weights of few bits against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from few_bits_cases import arrays_of

from tactix import Builder
from tactix.api import configure
from tactix.base.dims import Dim
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.matmul.few_bits import FewBitsTactic
from tactix_cpu.tactics.matmul.few_bits_amx import AmxFewBitsTactic

FEW = FewBitsTactic()
MATRIX = replace(h.NATIVE, features=h.NATIVE.features | {"amx_tile", "amx_bf16"})

ROOM_FOR_CODE = 64 << 10
"""Bytes that machine code may take in a plan."""


def product(
    m: int, k: int, n: int, bits: int = 4, block: int = 32, symbolic: bool = False, **more: Any
) -> h.Case:
    options = {name: more.pop(name) for name in ("device", "nt") if name in more}
    arrays = arrays_of(m, k, n, bits, block, **more)
    specs, env = list(arrays), {}
    if symbolic:
        specs[0], env = h.spec(arrays[0], ("rows", k)), {"rows": m}
    constants = range(1, len(arrays))
    node = h.node("FewBitsMatMul", specs, constants, bits=bits, block_size=block)
    return h.Case(node, FEW, arrays, env=env, **options)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_one_row_and_several(bits: int) -> None:
    cases = [product(m, 96, 70, bits, nt=(1, 2, 3)) for m in (1, 2, 3, 7, 8)]
    cases += [product(m, 96, 70, bits, nt=(1, 2, 3)) for m in (9, 33)]
    h.check_all(cases)


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_blocks(block: int) -> None:
    h.check_all([product(m, 300, 37, bits, block) for bits in (4, 8) for m in (1, 12)])


@pytest.mark.parametrize("k", [1, 3, 16, 31, 33, 47, 127])
def test_odd_sizes(k: int) -> None:
    """The last block of a row is a part, and what stands behind it counts nothing."""
    sizes = ((1, 1), (3, 17), (11, 5))
    h.check_all([product(m, k, n, bits, 16) for bits in (2, 4, 8) for m, n in sizes])


@pytest.mark.parametrize("zeros", ["u1", "f4", "f2"])
def test_zero_points(zeros: str) -> None:
    cases = [product(m, 80, 33, bits, zeros=zeros) for bits in (2, 4, 8) for m in (1, 5, 20)]
    h.check_all(cases)


def test_scales_of_float16() -> None:
    h.check_all([product(m, 80, 33, scales="f2") for m in (1, 20)])


def test_symbolic_rows() -> None:
    """One kernel for few rows and for many."""
    cases = [product(m, 70, 45, symbolic=True, nt=(1, 2, 3)) for m in (0, 1, 5, 8, 9, 40)]
    h.check_all(cases)


def test_every_instruction_set() -> None:
    cases = []
    for device in h.devices():
        for bits in (2, 4, 8):
            cases += [product(m, 50, 21, bits, 16, zeros="u1", device=device) for m in (1, 4, 19)]
    h.check_all(cases)


def test_more_axes_of_rows() -> None:
    x, *weights = arrays_of(6, 40, 9)
    arrays = [x.reshape(2, 3, 40), *weights]
    cases = [h.Case(h.node("FewBitsMatMul", arrays, [1, 2]), FEW, arrays)]
    vector = [x[0], *weights]
    cases.append(h.Case(h.node("FewBitsMatMul", vector, [1, 2]), FEW, vector))
    h.check_all(cases)


def test_rows_of_no_number() -> None:
    case = product(3, 64, 20)
    assert case.arrays is not None
    case.arrays[0][1, 7] = np.nan
    h.check_all([case])


def on_the_matrix_unit(*sizes: int, **more: Any) -> h.Case:
    return replace(product(*sizes, device=MATRIX, **more), tactic=AmxFewBitsTactic())


@h.needs("amx_tile", "amx_bf16", *h.V4)
def test_many_rows_on_the_matrix_unit() -> None:
    """The accuracy is that of float32; rows that are not finite go through vectors."""
    cases = [on_the_matrix_unit(40, 96, 70, bits, nt=(1, 2, 3)) for bits in (2, 4, 8)]
    cases += [on_the_matrix_unit(33, 1023, 37, zeros="u1"), on_the_matrix_unit(300, 64, 33)]
    cases += [on_the_matrix_unit(35, 512, 33, 4, 128, scales="f2", zeros="f4")]
    cases.append(on_the_matrix_unit(35, 70, 33))
    assert cases[-1].arrays is not None
    cases[-1].arrays[0][3, 4] = np.inf
    h.check_all(cases)


def test_what_the_matrix_unit_leaves_to_others() -> None:
    """Few rows, rows that only running tells, long blocks, weights that are not finite."""
    endless = arrays_of(40, 64, 9)
    endless[2][0, 0] = np.inf
    cases = [
        product(8, 64, 9).node,
        product(40, 64, 9, symbolic=True).node,
        product(40, 40, 9, 4, 128).node,
        h.node("FewBitsMatMul", endless, [1, 2]),
    ]
    for node in cases:
        offered = asked.variants(AmxFewBitsTactic(), node, MATRIX)
        assert isinstance(offered, Reject)
        assert offered.reason


def test_what_it_leaves_to_others() -> None:
    arrays = arrays_of(3, 40, 9)
    nodes = [
        h.node("FewBitsMatMul", arrays, []),
        h.node("FewBitsMatMul", [arrays[0].astype(np.float64), *arrays[1:]], [1, 2]),
        h.node("FewBitsMatMul", [arrays[0][:0], *arrays[1:]], [1, 2]),
        h.node("FewBitsMatMul", arrays_of(3, 40, 9, 4, 4), [1, 2], block_size=4),
    ]
    for node in nodes:
        offered = asked.variants(FEW, node, h.NATIVE)
        assert isinstance(offered, Reject)
        assert offered.reason


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_plans_hold_the_bits_alone(bits: int) -> None:
    """Whole panels on every processor: no byte is added."""
    k, n = 256, 128
    _, weights, scale = arrays_of(1, k, n, bits)
    net = Builder().create_network()
    given = [net.add_input("x", "f32", ("rows", k)), *map(net.add_constant, (weights, scale))]
    (y,) = net.add_layer("tactix.FewBitsMatMul", given, bits=bits)
    net.mark_output(y, "y")
    (step,) = (plan := Builder().build(net, configure(level=0)).plan).steps
    assert step.info["source"] == "c"
    held = sum(len(memoryview(blob).cast("B")) for blob in plan.blobs.values())
    assert held < 1.1 * (k * n * bits / 8 + scale.nbytes) + ROOM_FOR_CODE


def test_cost_grows_with_the_bytes_and_rows() -> None:
    def cost(m: Dim, k: int) -> float:
        node = product(int(m), k, 512).node  # type: ignore[call-overload]
        variant = asked.variants(FEW, node, h.NATIVE)[0]  # type: ignore[index]
        return asked.cost(FEW, node, variant, CompileContext(h.NATIVE)) or 0.0

    assert 0 < 2 * cost(1, 256) < cost(1, 2048)
    assert cost(4, 2048) < cost(64, 2048)
