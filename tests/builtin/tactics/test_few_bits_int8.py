"""Products of weights of few bits with rows that are rounded to int8: exact where rows are such
numbers, and as near as their rounding elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from few_bits_cases import arrays_of, bytes_of

from tactix import Builder, BuilderFlag
from tactix.api import configure
from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.accuracy import BUDGET, GRANTED
from tactix_cpu.tactics.matmul.few_bits import FewBitsTactic
from tactix_cpu.tactics.matmul.few_bits_bf16_amx import HalfAmxFewBitsTactic
from tactix_cpu.tactics.matmul.few_bits_int8 import FewBitsInt8Tactic

INT8 = FewBitsInt8Tactic()
GRANT = GRANTED["int8_activations"] * BUDGET[DType.FP32]
RNG = np.random.default_rng(39)


def product(
    m: int,
    k: int,
    n: int,
    bits: int = 4,
    block: int = 32,
    symbolic: bool = False,
    whole: bool = True,
    **more: Any,
) -> h.Case:
    """``whole``: the rows are numbers that 8 bits hold."""
    options = {name: more.pop(name) for name in ("device", "nt", "budget") if name in more}
    arrays = arrays_of(m, k, n, bits, block, **more)
    if whole:
        arrays[0] = bytes_of(m, k, block)
    specs, env = list(arrays), {}
    if symbolic:
        specs[0], env = h.spec(arrays[0], ("rows", k)), {"rows": m}
    constants = range(1, len(arrays))
    fields = {"bits": bits, "block_size": block, "int8_activations": True}
    node = h.node("FewBitsMatMul", specs, constants, **fields)
    return h.Case(node, INT8, arrays, env=env, **options)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_one_row_and_several(bits: int) -> None:
    rows = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33)
    h.check_all([product(m, 96, 70, bits, nt=(1, 2, 3)) for m in rows])


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
    """One kernel for few rows and for many; 400 rows of 2048 are read in two sweeps."""
    cases = [product(m, 70, 45, symbolic=True, nt=(1, 2, 3)) for m in (0, 1, 5, 8, 9, 40)]
    h.check_all([*cases, product(400, 2048, 21, symbolic=True)])


def test_every_instruction_set() -> None:
    cases = []
    for device in h.devices():
        for bits in (2, 4, 8):
            for zeros in ("", "u1"):
                for m in (1, 4, 19):
                    cases.append(product(m, 50, 21, bits, 16, zeros=zeros, device=device))
    h.check_all(cases)


def on(device: DeviceProperties) -> list[h.Case]:
    return [product(m, 96, 37, bits, device=device) for bits in (2, 4, 8) for m in (1, 7)]


@h.needs("avx_vnni", *h.V3)
def test_dot_products_of_eight_lanes() -> None:
    v3 = [d for d in h.devices() if d.lanes == 8]
    made = [replace(d, name="v3 with VNNI", features=d.features | {"avx_vnni"}) for d in v3]
    h.check_all([case for device in made for case in on(device)])


@h.needs(*h.V4)
def test_wide_vectors_without_dot_products() -> None:
    v4 = [d for d in h.devices() if d.lanes == 16]
    made = [replace(d, name="v4 alone", features=d.features - {"avx512_vnni"}) for d in v4]
    h.check_all([case for device in made for case in on(device)])


def test_more_axes_of_rows() -> None:
    _, *weights = arrays_of(6, 40, 9)
    cases = []
    for x in (bytes_of(6, 40).reshape(2, 3, 40), bytes_of(1, 40)[0]):
        node = h.node("FewBitsMatMul", [x, *weights], [1, 2], int8_activations=True)
        cases.append(h.Case(node, INT8, [x, *weights]))
    h.check_all(cases)


def test_what_is_fused_behind_it() -> None:
    arrays = [bytes_of(5, 64), *arrays_of(5, 64, 37)[1:], RNG.standard_normal((5, 37), np.float32)]
    nodes = [
        ("FewBitsMatMul", (0, 1, 2), {"int8_activations": True}),
        ("Sigmoid", (4,), {}),
        ("Mul", (4, 5), {}),
        ("Add", (6, 3), {}),
    ]
    node = h.fused(arrays, nodes, anchor=0, constants=(1, 2))
    h.check_all([h.Case(node, INT8, arrays)])


def rounded(x: Any, block: int) -> Any:
    """Rows as the kernel reads them, in numpy."""
    blocks = x.reshape(len(x), -1, block)
    largest = np.abs(blocks).max(-1, keepdims=True)
    steps = largest / np.float32(127)
    return (np.rint(blocks * (np.float32(127) / largest)) * steps).reshape(x.shape)


@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_are_rounded_to_the_nearest_by_the_largest_of_a_block(bits: int, block: int) -> None:
    """The error is that of numpy's rounding, far below what the accuracy gate grants; what was
    rounded before is exact.
    """
    case = product(6, 512, 70, bits, block, whole=False)
    assert case.arrays is not None
    x, *weights = case.arrays
    exact, near = (h.reference(case.node, [y, *weights], {})[0] for y in (x, rounded(x, block)))
    error = np.abs(exact - near).max() / np.abs(exact).max()
    assert 10 * BUDGET[DType.FP32] < error < GRANT / 2
    again = replace(case, arrays=[rounded(x, block), *weights])
    h.check_all([replace(case, budget=error + BUDGET[DType.FP32]), again])


@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-30, 1e30])
def test_rows_of_any_size(size: float) -> None:
    """Zeros and what is nearly zero are zeros."""
    case = product(3, 64, 20)
    assert case.arrays is not None
    case.arrays[0][1] *= np.float32(size)
    h.check_all([case])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_of_no_number(value: float) -> None:
    """A row with an infinity becomes no number either: here weights are zeros where it stands."""
    x, weights, scale = bytes_of(3, 64), *arrays_of(3, 64, 20)[1:]
    x[1, 7] = value
    weights[:, 0, 3] = weights[:, 0, 3] & 15 | 0x80
    node = h.node("FewBitsMatMul", [x, weights, scale], [1, 2], int8_activations=True)
    h.check_all([h.Case(node, INT8, [x, weights, scale])])


def test_what_it_leaves_to_others() -> None:
    arrays, fields = arrays_of(3, 40, 9), {"int8_activations": True}
    nodes = [
        h.node("FewBitsMatMul", arrays, [1, 2]),
        h.node("FewBitsMatMul", arrays, [], **fields),
        h.node("FewBitsMatMul", [arrays[0].astype(np.float64), *arrays[1:]], [1, 2], **fields),
        h.node("FewBitsMatMul", [arrays[0][:0], *arrays[1:]], [1, 2], **fields),
        h.node("FewBitsMatMul", arrays_of(3, 40, 9, 4, 4), [1, 2], block_size=4, **fields),
        h.node("FewBitsMatMul", arrays_of(3, 512, 9, 4, 512), [1, 2], block_size=512, **fields),
    ]
    for node in nodes:
        offered = asked.variants(INT8, node, h.NATIVE)
        assert isinstance(offered, Reject)
        assert offered.reason


def network(int8_activations: bool, rows: Any = 1) -> Any:
    net, weights = Builder().create_network(), arrays_of(1, 256, 512)[1:]
    given = [net.add_input("x", "f32", (rows, 256)), *map(net.add_constant, weights)]
    (y,) = net.add_layer("tactix.FewBitsMatMul", given, int8_activations=int8_activations)
    net.mark_output(y, "y")
    return net


def bidders(net: Any, **options: Any) -> set[str]:
    """The tactics that bid for the product, and were right."""
    wanted = options.pop("layer_precision", "")
    config = configure(level=2, timing_cache=False, **options)
    if wanted:
        config.set_layer_precision("*", wanted)
    (node,) = Builder().build(net, config).plan.ledger["nodes"].values()
    return {c["tactic"] for c in node["candidates"] if c["status"] != "rejected"}


@pytest.mark.compiler
def test_it_bids_only_where_the_layer_and_the_build_permit_it() -> None:
    assert INT8.key in bidders(network(True))
    assert INT8.key not in bidders(network(False))
    assert INT8.key not in bidders(network(True), flags={BuilderFlag.EXACT_NUMERICS})
    assert INT8.key not in bidders(network(True), layer_precision="fp32")


def test_cost_grows_with_the_bytes_and_rows() -> None:
    def cost(m: int, k: int) -> float:
        node = product(m, k, 512).node
        variant = asked.variants(INT8, node, h.NATIVE)[0]  # type: ignore[index]
        return asked.cost(INT8, node, variant, CompileContext(h.NATIVE)) or 0.0

    assert 0 < 2 * cost(1, 256) < cost(1, 2048)
    assert cost(4, 2048) < cost(64, 2048)


@pytest.mark.compiler
@pytest.mark.parametrize(("rows", "rounds"), [("rows", True), (1, False)])
def test_rows_of_any_number_are_rounded_however_long_one_takes(
    rows: Any, rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row is what is timed, and many are several times as fast."""
    monkeypatch.setattr(FewBitsTactic, "cost", lambda *given, **named: 1e-12)
    (step,) = Builder().build(network(True, rows), configure(level=0)).plan.steps
    assert (step.info["tactic"] in (INT8.key, HalfAmxFewBitsTactic.key)) == rounds
