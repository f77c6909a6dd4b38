"""Convolutions of bfloat16 on the matrix unit, where this machine has one: float32 sums to 2e-5 of
the largest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from prepared_cases import Parts, gated

from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_cpu.tactics.conv import bf16_amx as c_bf16_amx_conv
from tactix_cpu.tactics.conv import bf16_direct
from tactix_cpu.tactics.conv import transpose as c_conv_transpose
from tactix_cpu.tactics.conv.band import bands_for
from tactix_cpu.tactics.conv.bf16_amx import SHAPES, AmxConvWork, work_of

(TACTIC,), (PLAIN, _), (SPREAD,) = (
    c_bf16_amx_conv.tactics(),
    bf16_direct.tactics(),
    c_conv_transpose.tactics(),
)
TILES = {"amx_tile", "amx_int8", "amx_bf16"}
AMX = replace(h.NATIVE, features=h.NATIVE.features | TILES | set(h.V4), vector_bits=512)
needs_unit = h.needs(*sorted(TILES), *h.V4)
RNG = np.random.default_rng(23)
SUMS = 2e-5


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(DType.BF16.numpy)


def every_block(node: Any) -> list[Variant]:
    """All shapes of blocks in all formats that are offered."""
    offered = asked.variants(TACTIC, node, AMX)
    assert not isinstance(offered, Reject), offered.reason
    outputs = dict.fromkeys(v.outputs for v in offered)
    return [Variant.of(offered[0].inputs, o, rows=r, vectors=v) for r, v in SHAPES for o in outputs]


def case(node: Any, arrays: Any, budget: float | None = SUMS, nt: Any = (1, 2, 3)) -> h.Case:
    return h.Case(node, TACTIC, arrays, budget=budget, device=AMX, nt=nt, only=every_block(node))


def window(x: Any, w: Any, fields: dict[str, Any]) -> h.Case:
    arrays = [halves(*x), halves(*w), floats(w[0])]
    return case(h.node("WideConvolution", arrays, [1, 2], **fields), arrays)


@needs_unit
def test_windows() -> None:
    ones, twos = (1, 1, 1, 1), (2, 2)
    h.check_all(
        [
            window((2, 64, 7, 7), (96, 64, 3, 3), {"pads": ones}),
            window((1, 64, 9, 40), (50, 64, 3, 2), {"pads": (1, 0, 2, 1)}),
            window((2, 64, 12, 11), (32, 64, 3, 3), {"dilations": (2, 3), "pads": (2, 3, 1, 0)}),
            window((1, 192, 37), (33, 192, 5), {"pads": (2, 2)}),
            window((2, 20, 13, 11), (40, 20, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
            window(
                (1, 64, 20, 23),
                (32, 64, 3, 2),
                {"strides": (3, 2), "dilations": (2, 3), "pads": (0, 1, 2, 3)},
            ),
            window((1, 40, 57, 50), (16, 40, 3, 3), {"pads": ones, "strides": twos}),
            window((1, 17, 12, 5), (8, 17, 3, 1), {"pads": (1, 2, 1, 3), "strides": (1, 2)}),
        ]
    )


@needs_unit
def test_windows_of_one_pixel() -> None:
    h.check_all(
        [
            window((1, 128, 14, 14), (40, 128, 1, 1), {}),
            window((1, 33, 9, 9), (50, 33, 1, 1), {}),
            window((1, 64, 15, 14), (32, 64, 1, 1), {"strides": (2, 2)}),
            window((1, 24, 9, 9), (17, 24, 1, 1), {"pads": (1, 2, 0, 1), "strides": (1, 2)}),
        ]
    )


@needs_unit
def test_linear_images() -> None:
    h.check_all(
        [
            window((1, 3, 21, 19), (24, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
            window((2, 3, 21, 70), (24, 3, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
            window((1, 4, 9, 20), (70, 4, 3, 5), {"pads": (0, 1, 1, 3), "dilations": (2, 3)}),
            window((1, 1, 11, 9), (5, 1, 1, 1), {"pads": (1, 2, 0, 1), "strides": (1, 2)}),
            window((1, 2, 5, 40), (20, 2, 2, 11), {}),
        ]
    )


ALL = (1, 1, 1, 1, 1, 1)


@needs_unit
def test_three_axes() -> None:
    h.check_all(
        [
            window((2, 64, 4, 7, 7), (40, 64, 3, 3, 3), {"pads": ALL}),
            window((1, 20, 5, 9, 12), (33, 20, 2, 3, 2), {"pads": (1, 0, 1, 0, 2, 0)}),
            window(
                (1, 40, 7, 9, 11),
                (16, 40, 3, 3, 3),
                {"pads": (2, 1, 1, 2, 1, 1), "strides": (2, 2, 1), "dilations": (2, 1, 2)},
            ),
            window((1, 64, 3, 8, 9), (48, 64, 1, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
            window((1, 17, 6, 5, 7), (20, 17, 3, 1, 1), {"pads": (1, 0, 0, 1, 0, 0)}),
            window((2, 33, 3, 5, 5), (16, 33, 1, 1, 1), {}),
            window((1, 16, 5, 6, 6), (16, 16, 1, 1, 1), {"strides": (2, 2, 1)}),
            window((2, 3, 5, 17, 21), (24, 3, 3, 5, 5), {"pads": ALL, "strides": (1, 2, 2)}),
            window((1, 1, 4, 9, 9), (8, 1, 2, 3, 3), {}),
        ]
    )


@needs_unit
def test_groups_of_whole_blocks() -> None:
    cases = []
    for x, w, fields in (
        ((2, 96, 40), (96, 48, 5), {"group": 2, "pads": (2, 2)}),
        ((1, 64, 9, 9), (128, 16, 3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
        ((2, 128, 6, 7), (64, 64, 1, 1), {"group": 2}),
        ((1, 64, 3, 6, 7), (32, 32, 3, 3, 3), {"group": 2, "pads": ALL, "strides": (1, 2, 1)}),
    ):
        arrays = [halves(*x), halves(*w), floats(w[0])]
        node = h.node("WideConvolution", arrays, [1, 2], **fields)
        cases.append(h.Case(node, TACTIC, arrays, budget=SUMS, device=AMX, nt=(1, 2, 3)))
    h.check_all(cases)


def test_groups_that_share_a_block_are_left_to_others() -> None:
    arrays = [halves(1, 48, 9, 9), halves(48, 24, 3, 3), floats(48)]
    node = h.node("WideConvolution", arrays, [1, 2], group=2)
    assert isinstance(asked.variants(TACTIC, node, AMX), Reject)


@needs_unit
def test_epilogues_of_three_axes() -> None:
    arrays = [halves(1, 40, 3, 5, 6), halves(24, 40, 3, 3, 3), floats(24), floats(1, 24, 3, 5, 6)]
    nodes: Any = [
        ("WideConvolution", (0, 1, 2), {"pads": ALL}),
        ("Relu", (4,), {}),
        ("Add", (5, 3), {}),
        ("Cast", (6,), {"to": DType.BF16}),
    ]
    made = h.fused(arrays, nodes, [6, 7], 0, [1, 2])
    h.check(made, TACTIC, arrays, device=AMX, budget=h.BUDGETS[DType.BF16])


@needs_unit
def test_bands_join_without_a_seam() -> None:
    cases = [
        window((2, 40, 60, 61), (48, 40, 3, 3), {"pads": (1, 1, 1, 1)}),
        window((1, 3, 224, 224), (20, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
        window((1, 96, 59, 57), (17, 96, 1, 1), {}),
        window((1, 16, 91, 150), (16, 16, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ]
    for c in cases:
        work = work_of(c.node)
        assert isinstance(work, AmxConvWork)
        assert bands_for(work.win, work.linear, 32, 2).bands > 1
    h.check_all(cases)


@needs_unit
def test_lines_are_cut_into_rows() -> None:
    """Of which the first and last need pads, and the last has fewer pixels; groups; strides beyond
    the window.
    """
    cases = [
        window((2, 32, 1100), (32, 32, 3), {"pads": (1, 1)}),
        window((1, 40, 777), (17, 40, 11), {"pads": (25, 25), "dilations": (5,)}),
        window((1, 64, 600), (128, 32, 3), {"pads": (2, 0), "group": 2}),
        window((1, 32, 1300), (32, 32, 4), {"strides": (2,)}),
        window((1, 16, 4100), (16, 16, 3), {"strides": (5,), "pads": (1, 1)}),
        window((1, 16, 514), (16, 16, 3), {}),
        window((1, 16, 512), (16, 16, 3), {"pads": (600, 600), "dilations": (600,)}),
    ]
    for c in cases:
        work = work_of(c.node)
        assert isinstance(work, AmxConvWork)
        assert work.line > 0
        assert bands_for(work.win, work.linear, 32, 8, work.line).bands > 1
    h.check_all(cases)


def transposed(x: Any, w: Any, strides: tuple[int, ...]) -> tuple[Any, list[Any]]:
    arrays = [halves(*x), halves(*w), floats(w[1])]
    return h.node("WideConvTranspose", arrays, [1, 2], strides=strides), arrays


SPREADS: list[Any] = [
    ((1, 32, 14, 14), (32, 32, 2, 2), (2, 2)), ((2, 20, 13, 11), (20, 50, 2, 3), (2, 3)),
    ((2, 17, 37), (17, 9, 4), (4,)), ((2, 40, 5, 5), (40, 9, 1, 1), (1, 1)), ((1, 3, 9, 9), (3, 40, 2, 2), (2, 2)),
]  # fmt: skip


@needs_unit
def test_transposed_without_overlap() -> None:
    h.check_all([case(*transposed(*s)) for s in SPREADS])


def test_transposed_without_a_matrix_unit() -> None:
    h.check_all(
        [
            h.Case(*transposed(*s)[:1], SPREAD, None, budget=SUMS, device=d)
            for s in SPREADS[:3]
            for d in h.devices()
        ]
    )


@needs_unit
@pytest.mark.parametrize("name", ["WideConvolution", "WideConvTranspose"])
@pytest.mark.parametrize("shape", [(2, 40, 10, 12), (1, 40, 1, 1), (1, 1, 1, 1)])
def test_epilogues(name: str, shape: Any) -> None:
    spread = name == "WideConvTranspose"
    x, b = halves(2, 20, 5, 6) if spread else halves(2, 20, 10, 12), floats(40)
    w, fields = (
        (halves(20, 40, 2, 2), {"strides": (2, 2)}) if spread else (halves(40, 20, 1, 1), {})
    )
    r = halves(*shape)
    nodes: list[Any] = [
        (name, (0, 1, 2), fields), ("Cast", (3,), {"to": DType.FP32}), ("Add", (4, 5), {}), ("Relu", (6,), {}),
        ("Cast", (7,), {"to": DType.BF16}),
    ]  # fmt: skip
    constants = [1, 2] if shape[1:] == (40, 10, 12) else [1, 2, 3]
    node = h.fused([x, w, b, r], nodes, [7, 8], 0, constants)
    h.check_all([case(node, [x, w, b, r], budget=1e-2)])


@needs_unit
def test_symbolic_images() -> None:
    x, w = halves(3, 24, 9, 8), halves(20, 24, 3, 3)
    node = h.node("Convolution", [h.spec(x, ("n", 24, 9, 8)), w], [1], pads=(1, 1, 1, 1))
    h.check_all([h.Case(node, TACTIC, [x, w], env={"n": 3}, device=AMX)])


def test_few_channels_may_be_written_linear() -> None:
    few, many = (
        h.node("WideConvolution", [halves(1, 32, 8, 8), halves(co, 32, 1, 1)], [1])
        for co in (3, 17)
    )
    formats = [{v.output_format(0) for v in asked.variants(TACTIC, n, AMX)} for n in (few, many)]  # type: ignore[union-attr]
    assert formats == [{LINEAR, blocked(16)}, {blocked(16)}]


def test_what_they_leave_to_others() -> None:
    plain = replace(AMX, features=AMX.features - TILES)
    whole = h.node("WideConvolution", [halves(1, 32, 8, 8), halves(16, 32, 3, 3)], [1])
    grouped = h.node("WideConvolution", [halves(1, 32, 8, 8), halves(16, 16, 3, 3)], [1], group=2)
    small = h.node("WideConvolution", [halves(1, 32, 2, 2), halves(16, 32, 1, 1)], [1])
    overlapping = h.node(
        "WideConvTranspose", [halves(1, 32, 8, 8), halves(32, 16, 3, 3)], [1], strides=(2, 2)
    )
    assert isinstance(asked.variants(TACTIC, whole, plain), Reject)
    assert all(
        isinstance(asked.variants(TACTIC, n, AMX), Reject) for n in (grouped, small, overlapping)
    )
    assert isinstance(asked.variants(PLAIN, whole, AMX), Reject)
    assert not any(
        isinstance(asked.variants(PLAIN, n, d), Reject) for n, d in ((whole, plain), (small, AMX))
    )


def test_cost_grows_with_the_work() -> None:
    costs = []
    for c, size in ((32, 14), (64, 14), (64, 28), (128, 56)):
        node = h.node("WideConvolution", [halves(1, c, size, size), halves(64, c, 3, 3)], [1])
        (first, *_) = asked.variants(TACTIC, node, AMX)  # type: ignore[misc]
        costs.append(asked.cost(TACTIC, node, first, CompileContext(AMX)))
    assert None not in costs
    assert costs == sorted(costs, key=lambda c: c or 0.0)


WIDER, NARROWER = {"to": DType.FP32}, {"to": DType.BF16}
GATED: Parts = [
    ("Cast", (0,), WIDER),
    ("Mul", (3, 1), {}),
    ("Cast", (4,), NARROWER),
    ("WideConvolution", (5, 2), {}),
]
FLOATS: Parts = [
    ("Mul", (1, 0), {}),
    ("HardSwish", (3,), {}),
    ("Cast", (4,), NARROWER),
    ("WideConvolution", (5, 2), {}),
    ("Relu", (6,), {}),
]


def gate(x: Any, g: Any, w: Any, parts: Parts = GATED, **more: Any) -> h.Case:
    """Something pointwise before a convolution by single pixels."""
    found = gated(x, g, w, TACTIC, parts, budget=SUMS, device=AMX, nt=(1, 2, 3), **more)
    return replace(found, only=every_block(found.node))


@needs_unit
def test_what_stands_before_a_convolution_of_single_pixels() -> None:
    g, w = floats(2, 40, 1, 1), halves(50, 40, 1, 1)
    odd, even = halves(2, 40, 9, 7), halves(1, 64, 5, 6)
    h.check_all(
        [
            gate(odd, g, w),
            gate(odd, g[:1], w),
            gate(odd, halves(2, 40, 1, 1), w),
            gate(odd, floats(2, 40, 9, 7), w),
            gate(odd, floats(40, 1, 1), w, constants=(1, 2)),
            gate(even, floats(1, 64, 1, 1), halves(48, 64, 1, 1)),
            gate(floats(2, 40, 9, 7), g, w, FLOATS),
            gate(odd, g, w, symbols=(("n", 40, 9, 7), ("n", 40, 1, 1))),
            gate(halves(1, 33, 37), floats(1, 33, 1), halves(20, 33, 1)),
            gate(halves(1, 20, 3, 4, 5), floats(1, 20, 1, 1, 1), halves(17, 20, 1, 1, 1)),
            gate(halves(1, 320, 60, 50), floats(1, 320, 1, 1), halves(24, 320, 1, 1)),
        ]
    )


@pytest.mark.parametrize("case", ["window", "strides", "groups", "few"])
def test_what_cannot_stand_before_a_convolution(case: str) -> None:
    channels = 4 if case == "few" else 32
    x, g = halves(1, channels, 8, 8), floats(1, channels, 1, 1)
    w = halves(32, 16 if case == "groups" else channels, *([2, 2] if case == "window" else [1, 1]))
    fields = {"strides": (2, 2)} if case == "strides" else {}
    fields = {"group": 2} if case == "groups" else fields
    parts: Parts = [*GATED[:3], ("WideConvolution", (5, 2), fields)]
    found = asked.variants(TACTIC, gated(x, g, w, TACTIC, parts).node, AMX)
    assert isinstance(found, Reject)
    assert "before a convolution" in found.reason
