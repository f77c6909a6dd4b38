"""Transposed convolution kernels against numpy: the one without overlap, and the general one."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np

from tactix.contracts.tactic import CompileContext, Reject, Tactic
from tactix_cpu.tactics.conv.general import GeneralConvTactic
from tactix_cpu.tactics.conv.transpose import ConvTransposeTactic

SPREAD, GENERAL = ConvTransposeTactic(), GeneralConvTactic()
RNG = np.random.default_rng(14)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def transposed(
    tactic: Tactic,
    x: Any,
    w: Any,
    b: Any = None,
    symbols: Any = None,
    constant: bool = True,
    **more: Any,
) -> h.Case:
    arrays = [x, w] if b is None else [x, w, b]
    env = (
        {}
        if symbols is None
        else {s: d for s, d in zip(symbols, x.shape, strict=True) if isinstance(s, str)}
    )
    inputs = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    device = more.pop("device", h.NATIVE)
    node = h.node("ConvTranspose", inputs, range(1, len(inputs)) if constant else [], **more)
    return h.Case(node, tactic, arrays, env=env, device=device)


def test_without_overlap() -> None:
    names = ("n", 24, "high", "wide")
    h.check_all(
        [
            transposed(
                SPREAD, floats(1, 32, 14, 14), floats(32, 32, 2, 2), floats(32), strides=(2, 2)
            ),
            transposed(
                SPREAD, floats(2, 20, 13, 11), floats(20, 50, 2, 3), floats(50), strides=(2, 3)
            ),
            transposed(
                SPREAD, floats(2, 24, 9, 9), floats(24, 33, 2, 2), symbols=names, strides=(2, 2)
            ),
            transposed(SPREAD, floats(2, 17, 37), floats(17, 9, 4), floats(9), strides=(4,)),
            transposed(SPREAD, floats(2, 17, 5, 5), floats(17, 9, 1, 1)),
        ]
    )


def test_without_overlap_epilogues() -> None:
    x, w, b = floats(1, 20, 5, 6), floats(20, 24, 2, 2), floats(24)
    conv = ("ConvTranspose", (0, 1, 2), {"strides": (2, 2)})
    cases = []
    for shape in ((1, 24, 10, 12), (1, 24, 1, 1), (1, 1, 10, 12)):
        operand = floats(*shape)
        nodes = [conv, ("Add", (4, 3), {}), ("Sigmoid", (5,), {})]
        node = h.fused([x, w, b, operand], nodes, anchor=0, constants=[1, 2])
        cases.append(h.Case(node, SPREAD, [x, w, b, operand]))
    h.check_all(cases)


def test_general() -> None:
    names = ("n", 4, "high", "wide")
    h.check_all(
        [
            transposed(
                GENERAL,
                floats(2, 4, 5, 7),
                floats(4, 3, 3, 3),
                floats(3),
                strides=(2, 2),
                pads=(1, 1, 1, 1),
                output_padding=(1, 0),
            ),
            transposed(
                GENERAL,
                floats(2, 4, 5, 7),
                floats(4, 3, 2, 3),
                floats(6),
                constant=False,
                strides=(3, 2),
                dilations=(1, 2),
                group=2,
                pads=(0, 1, 0, 2),
            ),
            transposed(
                GENERAL,
                floats(2, 4, 5, 7),
                floats(4, 3, 4, 4),
                symbols=names,
                strides=(2, 2),
                pads=(1, 1, 1, 1),
            ),
            transposed(GENERAL, floats(2, 4, 5, 3, 3), floats(4, 3, 2, 2, 2), strides=(2, 2, 1)),
            transposed(GENERAL, floats(2, 4, 5), floats(4, 30, 2), strides=(2,)),
            transposed(GENERAL, floats(2, 4, 5), floats(4, 3, 2), strides=(3,)),
        ]
    )


def test_general_of_weights_whose_axes_are_open() -> None:
    cases = []
    for x, w, b, attrs in (
        (floats(2, 4, 5, 7), floats(4, 3, 3, 3), floats(3), {"strides": (2, 2)}),
        (floats(1, 4, 5, 7), floats(4, 9, 2, 3), floats(18), {"group": 2, "dilations": (1, 2)}),
        (floats(2, 4, 9), floats(4, 3, 4), floats(3), {"strides": (3,), "pads": (1, 2)}),
        (floats(2, 4, 5), floats(4, 3, 2), floats(3), {"strides": (3,), "output_padding": (1,)}),
        (floats(0, 4, 5), floats(4, 3, 2), floats(3), {}),
        (floats(2, 0, 5), floats(0, 3, 2), floats(3), {}),
    ):
        for arrays in ([x, w, b], [x, w]):
            specs, env = h.opened(*arrays)
            made = h.node("ConvTranspose", specs, **attrs)
            cases.append(h.Case(made, GENERAL, arrays, env=env, nt=(1, 3)))
    h.check_all(cases)


def test_every_instruction_set() -> None:
    x, w, b = floats(1, 20, 5, 7), floats(20, 12, 2, 2), floats(12)
    h.check_all(
        [
            transposed(t, x, w, b, strides=(2, 2), device=d)
            for d in h.devices()
            for t in (SPREAD, GENERAL)
        ]
    )


def test_overlap_is_left_to_the_general_kernel() -> None:
    x = floats(1, 16, 5, 5)
    for kernel, attrs in (
        (3, {"strides": (2, 2)}),
        (2, {"strides": (2, 2), "pads": (1, 0, 0, 0)}),
        (2, {}),
    ):
        node = h.node("ConvTranspose", [x, floats(16, 16, kernel, kernel)], [1], **attrs)
        assert isinstance(asked.variants(SPREAD, node, h.NATIVE), Reject)
        assert not isinstance(asked.variants(GENERAL, node, h.NATIVE), Reject)


def test_costs_are_known_once_sizes_are() -> None:
    case = transposed(
        SPREAD, floats(1, 16, 5, 6), floats(16, 16, 2, 2), symbols=("n", 16, "h", 6), strides=(2, 2)
    )
    variant = asked.variants(SPREAD, case.node, h.NATIVE)[0]  # type: ignore[index]
    assert asked.cost(SPREAD, case.node, variant, CompileContext(h.NATIVE)) is None
    assert (
        asked.cost(SPREAD, case.node, variant, CompileContext(h.NATIVE, {"n": 1, "h": 5})) or 0
    ) > 0
