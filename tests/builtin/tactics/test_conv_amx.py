"""AMX convolutions of float32 against numpy: taps, borders, channels beside a step, images,
epilogues, infinities.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from prepared_cases import prepared_cases

from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.conv.amx import AmxConvTactic
from tactix_cpu.tactics.matmul import gemm_amx as c_gemm_amx

AMX = AmxConvTactic()
RNG = np.random.default_rng(31)
DEVICE = replace(
    h.NATIVE, features=h.NATIVE.features | set(AmxConvTactic.requires), vector_bits=512
)
runs = h.needs(*AmxConvTactic.requires)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def conv(
    x: Any,
    w: Any,
    b: Any = None,
    symbols: Any = None,
    nt: Any = (1, 3),
    budget: Any = None,
    **more: Any,
) -> h.Case:
    """A case; ``symbols``: x's shape with names."""
    arrays = [x, w] if b is None else [x, w, b]
    env = (
        {}
        if symbols is None
        else {s: d for s, d in zip(symbols, x.shape, strict=True) if isinstance(s, str)}
    )
    inputs = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    node = h.node("Convolution", inputs, range(1, len(inputs)), **more)
    return h.Case(node, AMX, arrays, env=env, device=DEVICE, nt=nt, budget=budget)


@runs
def test_three_axes() -> None:
    x, w = floats(2, 40, 5, 6, 7), floats(50, 40, 3, 2, 3)
    sized: Any = {"pads": (1, 0, 2, 0, 1, 1), "strides": (2, 1, 2), "dilations": (1, 2, 1)}
    h.check_all(
        [
            conv(x, w, floats(50)),
            conv(x, w, **sized),
            conv(x, w, symbols=("n", 40, "d", "h", 7), **sized),
            conv(x, floats(20, 40, 1, 1, 1), floats(20)),
            conv(x, floats(20, 40, 1, 1, 1), strides=(2, 1, 1)),
            conv(x, floats(20, 40, 3, 1, 1), pads=(1, 0, 0, 1, 0, 0)),
        ]
    )
    arrays = [x, w, floats(2, 50, 3, 5, 5), floats(2, 50, 1, 1, 1), floats(1, 1, 3, 1, 5)]
    nodes: Any = [
        ("Convolution", (0, 1), {}),
        ("Add", (5, 2), {}),
        ("Mul", (6, 3), {}),
        ("Add", (7, 4), {}),
    ]
    h.check(h.fused(arrays, nodes, anchor=0, constants=[1]), AMX, arrays, device=DEVICE)


@runs
def test_pointwise_windows_of_any_channels_and_images() -> None:
    h.check_all(
        [
            conv(floats(1, 64, 7, 7), floats(96, 64, 1, 1), floats(96)),
            conv(floats(3, 24, 5, 7), floats(50, 24, 1, 1), floats(50)),
            conv(floats(2, 17, 19, 15), floats(7, 17, 1, 1)),
            conv(floats(1, 72, 37), floats(33, 72, 1), floats(33)),
            conv(floats(2, 40, 11, 9), floats(50, 40, 1, 1), floats(50), strides=(2, 3)),
            conv(floats(1, 16, 4, 4), floats(9, 16, 1, 1), pads=(1, 1, 1, 1)),
        ]
    )


@runs
def test_windows_of_several_taps() -> None:
    h.check_all(
        [
            conv(floats(1, 64, 7, 7), floats(64, 64, 3, 3), floats(64), pads=(1, 1, 1, 1)),
            conv(
                floats(2, 20, 13, 11),
                floats(40, 20, 3, 3),
                floats(40),
                pads=(1, 0, 2, 1),
                strides=(2, 1),
            ),
            conv(floats(2, 48, 13, 11), floats(40, 48, 3, 2), pads=(1, 1, 2, 1), dilations=(2, 2)),
            conv(floats(2, 17, 37), floats(33, 17, 5), floats(33), pads=(2, 2), strides=(2,)),
            conv(floats(1, 32, 28, 28), floats(32, 32, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2)),
        ]
    )


@runs
def test_depth_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_gemm_amx, "L2_BYTES", 1 << 16)
    h.check_all([conv(floats(2, 96, 18, 17), floats(40, 96, 3, 3), pads=(1, 1, 1, 1))])


@runs
def test_symbolic_sizes_and_epilogues() -> None:
    x, w = floats(2, 40, 9, 8), floats(24, 40, 3, 3)
    cases = [conv(x, w, floats(24), symbols=("n", 40, "high", "wide"), pads=(1, 1, 1, 1))]
    residual, scale = floats(2, 24, 9, 8), floats(24, 1, 1)
    pads = {"pads": (1, 1, 1, 1)}
    nodes = [
        ("Convolution", (0, 1, -1), pads),
        ("Mul", (4, 3), {}),
        ("Add", (5, 2), {}),
        ("Relu", (6,), {}),
    ]
    node = h.fused([x, w, residual, scale], nodes, anchor=0, constants=[1, 3])
    h.check_all([*cases, h.Case(node, AMX, [x, w, residual, scale], device=DEVICE)])


@runs
def test_infinities_and_nans_stay_where_windows_see_them() -> None:
    x, w = floats(2, 32, 20, 20), floats(48, 32, 3, 3)
    x[0, 3, 7, 2], x[1, 31, 0, 19] = np.inf, np.nan
    h.check_all([conv(x, w, pads=(1, 1, 1, 1))])


@runs
def test_groups_of_whole_blocks() -> None:
    x, w, pads = floats(2, 96, 9, 7), floats(144, 32, 3, 3), {"pads": (1, 1, 1, 1)}
    bad = floats(2, 96, 20, 20)
    bad[0, 70, 7, 2] = np.inf
    h.check_all(
        [
            conv(floats(1, 64, 40), floats(128, 16, 1), floats(128), group=4),
            conv(floats(2, 48, 9, 7), floats(48, 16, 1, 1), floats(48), group=3),
            conv(x, w, floats(144), group=3, **pads),
            conv(x, w, group=3, symbols=("n", 96, "high", "wide"), strides=(2, 1), **pads),
            conv(bad, w, group=3, **pads),
            conv(floats(1, 96, 19, 17), floats(64, 48, 3, 3), group=2),
            conv(floats(2, 64, 4, 5, 6), floats(96, 32, 2, 1, 3), floats(96), group=2),
        ]
    )
    arrays = [x, w, floats(2, 144, 9, 7), floats(144, 1, 1)]
    nodes: Any = [
        ("Convolution", (0, 1, -1), {"group": 3, **pads}),
        ("Mul", (4, 3), {}),
        ("Add", (5, 2), {}),
        ("Relu", (6,), {}),
    ]
    h.check(h.fused(arrays, nodes, anchor=0, constants=[1, 3]), AMX, arrays, device=DEVICE)


@runs
def test_groups_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_gemm_amx, "L2_BYTES", 1 << 16)
    case = conv(floats(2, 96, 18, 17), floats(96, 48, 3, 3), group=2, pads=(1, 1, 1, 1))
    h.check_all([replace(case, device=replace(DEVICE, facts={}))])


@runs
def test_it_is_as_accurate_as_float32() -> None:
    x, w = np.abs(floats(1, 64, 12, 12)), np.abs(floats(48, 64, 3, 3))
    h.check_all([conv(x, w, pads=(1, 1, 1, 1), budget=2e-6)])


def test_what_it_does_not_take() -> None:
    x, w = floats(1, 32, 9, 9), floats(16, 32, 1, 1)
    bad = w.copy()
    bad[3, 4] = np.inf
    taken = h.node("Convolution", [x, w], [1])
    nodes = (
        h.node("Convolution", [x, w]), h.node("Convolution", [x, bad], [1]),
        h.node("Convolution", [x[:, :8], w[:, :8]], [1]), h.node("Convolution", [x[..., :2, :2], w], [1]),
        h.node("Convolution", [x, w[:, :16]], [1], group=2),
    )  # fmt: skip
    assert all(isinstance(asked.variants(AMX, n, DEVICE), Reject) for n in nodes)
    (variant,) = asked.variants(AMX, taken, DEVICE)  # type: ignore[misc]
    cost = asked.cost(AMX, taken, variant, CompileContext(DEVICE))
    assert cost is not None
    assert 0 < cost < 1e-3


@runs
def test_what_stands_before_a_convolution_of_single_pixels() -> None:
    h.check_all(prepared_cases(AMX, device=DEVICE, nt=(1, 3)))
