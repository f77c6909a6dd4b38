"""Direct convolutions of bfloat16 in pairs of channels, over any axes and in groups, against the
references.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.conv import bf16_direct
from tactix_cpu.tactics.dot_tile import HALVES

DIRECT, JOINED = bf16_direct.tactics()
RNG = np.random.default_rng(43)
HALF = DType.BF16.numpy
FLUSHED = 2e-5
"""Budget of float32 sums: the instruction adds pairs without a rounding between, and flushes
subnormals.
"""
LANES = max(4, h.NATIVE.lanes)
PAIRS = replace(h.NATIVE, features=h.NATIVE.features - {"amx_tile"})
PADS: Any = {"pads": (1,) * 4}
CUBE: Any = {"pads": (1,) * 6}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(HALF)


def conv(
    shape: Any, weights: Any, symbols: Any = None, tactic: Any = DIRECT, **more: Any
) -> h.Case:
    """A case with a bias; ``symbols``: x's shape with names."""
    arrays = [halves(*shape), halves(*weights), floats(weights[0])]
    options = {k: more.pop(k) for k in ("nt",) if k in more}
    named = zip(symbols or (), shape, strict=False)
    env = {s: d for s, d in named if isinstance(s, str)}
    inputs = [h.spec(arrays[0], symbols) if symbols else arrays[0], *arrays[1:]]
    node = h.node("WideConvolution", inputs, [1, 2], **more)
    return h.Case(node, tactic, arrays, env=env, budget=FLUSHED, device=PAIRS, **options)


def test_every_offered_variant() -> None:
    h.check_all(
        [
            conv((1, 32, 14, 14), (32, 32, 3, 3), pads=(1,) * 4, nt=(1, 2, 5)),
            conv((2, 20, 13, 11), (40, 20, 3, 3), pads=(1, 0, 2, 1), strides=(2, 1)),
            conv((1, 33, 9, 9), (50, 33, 1, 1)),
            conv((1, 33, 9, 9), (50, 33, 1, 1), strides=(2, 3)),
            conv((1, 17, 4, 4), (33, 17, 3, 3), pads=(1,) * 4),
            conv((2, 17, 37), (33, 17, 5), pads=(2, 2), dilations=(3,)),
            conv((1, 512, 5, 5), (20, 512, 3, 3), pads=(1,) * 4, nt=(1, 3)),
        ]
    )


def test_three_axes() -> None:
    h.check_all(
        [
            conv((1, 32, 5, 8, 9), (32, 32, 3, 3, 3), nt=(1, 2, 5), **CUBE),
            conv((2, 19, 7, 9, 11), (21, 19, 2, 3, 2), strides=(2, 1, 2), dilations=(1, 2, 1)),
            conv((1, 48, 4, 9, 9), (32, 48, 1, 3, 3), pads=(0, 1, 1, 0, 1, 1), strides=(1, 2, 2)),
            conv((1, 5, 4, 9, 9), (20, 5, 1, 5, 5), pads=(0, 2, 2, 0, 2, 2), strides=(1, 2, 2)),
            conv((2, 18, 7, 5, 6), (35, 18, 3, 1, 1), pads=(2, 0, 0, 0, 0, 0), nt=(1, 2)),
            conv((1, 18, 9, 5, 6), (35, 18, 3, 1, 1), strides=(2, 1, 1), dilations=(2, 1, 1)),
            conv((1, 18, 6, 5, 6), (35, 18, 1, 1, 1), strides=(2, 1, 2)),
        ]
    )


def test_groups() -> None:
    """Of whole channel blocks, of halves of one, and of quarters where there are two channels."""
    block, half, quarter = LANES, LANES // 2, max(2, LANES // 4)
    h.check_all(
        [
            conv((1, 4 * block, 7, 7), (96, 2 * block, 3, 3), group=2, pads=(1,) * 4, nt=(1, 3)),
            conv((2, 3 * block, 4, 5, 6), (3 * block, block, 3, 3, 3), group=3, **CUBE),
            *(
                conv((2, n * each, *x), (n * each, each, *w), tactic=JOINED, group=n, **more)
                for each in {half, quarter}
                for n, x, w, more in (
                    (5, (7, 9), (3, 3), PADS),
                    (6, (8, 7), (3, 2), {"strides": (2, 1)}),
                    (3, (4, 5, 6), (3, 3, 3), CUBE),
                    (4, (9, 9), (1, 1), {"strides": (2, 2)}),
                    (2, (5, 4, 6), (3, 1, 1), {}),
                )
            ),
        ]
    )


@pytest.mark.parametrize("n", [0, 2])
def test_sizes_that_only_running_tells(n: int) -> None:
    half = LANES // 2
    h.check_all(
        [
            conv((n, 20, 9, 31), (24, 20, 3, 3), ("n", 20, "h", "w"), pads=(1, 2, 1, 0)),
            conv((n, 16, 7, 5, 33), (24, 16, 3, 3, 3), ("n", 16, "d", "h", "w"), **CUBE),
            conv((n, 16, 7, 5, 33), (24, 16, 3, 1, 1), ("n", 16, "d", "h", "w")),
            conv(
                (n, 3 * half, 9, 31),
                (3 * half, half, 3, 3),
                ("n", 3 * half, "h", "w"),
                JOINED,
                group=3,
            ),
        ]
    )


def test_extreme_values() -> None:
    case = conv((1, 32, 6, 6), (32, 32, 3, 3), pads=(1,) * 4)
    x, w, b = case.arrays
    x[0, 0, 2, 3], x[0, 1, 5, 5], w[3, 2, 1, 1], x[0, 4] = np.nan, np.inf, -np.inf, 1e30
    node = h.node("WideConvolution", [x, w, b], [1, 2], pads=(1,) * 4)
    with np.errstate(invalid="ignore"):
        h.check_all([replace(case, node=node)])


OPERANDS = [(2, 40, 5, 9, 9), (2, 40, 1, 1, 1), (1, 1, 5, 1, 9), (5, 1, 1), (5, 9, 9), (9,)]


@pytest.mark.parametrize("shape", OPERANDS)
def test_epilogue_operands_over_three_axes(shape: tuple[int, ...]) -> None:
    cases = []
    for window, pads in (((3, 3, 3), (1,) * 6), ((3, 1, 1), (1, 0, 0) * 2)):
        x, w, operand = halves(2, 20, 5, 9, 9), halves(40, 20, *window), halves(*shape)
        nodes = [
            ("WideConvolution", (0, 1), {"pads": pads}),
            ("Cast", (2,), {"to": DType.FP32}),
            ("Add", (3, 4), {}),
            ("Relu", (5,), {}),
            ("Cast", (6,), {"to": DType.BF16}),
        ]
        node = h.fused([x, w, operand], nodes, [7], 0, [1])
        cases.append(h.Case(node, DIRECT, [x, w, operand], device=PAIRS))
    h.check_all(cases)


def test_what_is_rejected() -> None:
    x, w = halves(1, 32, 8, 8), halves(32, 32, 3, 3)
    image, thirds = halves(1, 3, 8, 8), [halves(1, 18, 8, 8), halves(18, 6, 3, 3)]
    unit = replace(PAIRS, vector_bits=512, features=frozenset(HALVES.unit))
    for device, tactic, node in (
        (PAIRS, DIRECT, h.node("Convolution", [floats(1, 32, 8, 8), floats(32, 32, 3, 3)], [1])),
        (PAIRS, DIRECT, h.node("WideConvolution", thirds, [1], group=3)),
        (PAIRS, DIRECT, h.node("WideConvolution", [image, halves(32, 3, 3, 3)], [1])),
        (unit, DIRECT, h.node("WideConvolution", [x, w], [1])),
        (PAIRS, JOINED, h.node("WideConvolution", thirds, [1], group=3)),
        (PAIRS, JOINED, h.node("WideConvolution", [x, w], [1])),
    ):
        assert isinstance(asked.variants(tactic, node, device), Reject)
