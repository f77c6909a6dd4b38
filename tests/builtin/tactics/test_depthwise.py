"""Depthwise convolution kernels against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.conv.depthwise import CpuDepthwiseTactic

DEPTHWISE = CpuDepthwiseTactic()
RNG = np.random.default_rng(13)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(DType.BF16.numpy)


def depthwise(
    x: Any,
    kernel: tuple[int, ...],
    bias: bool = True,
    symbols: Any = None,
    kind: str = "Convolution",
    **more: Any,
) -> h.Case:
    """``kind``: of bfloat16 ``WideConvolution`` has float32 biases and results, ``Convolution`` has
    none.
    """
    c = x.shape[1]
    b = floats(c) if kind == "WideConvolution" else floats(c).astype(x.dtype)
    arrays = [x, floats(c, 1, *kernel).astype(x.dtype), *([b] if bias else [])]
    env = (
        {}
        if symbols is None
        else {s: d for s, d in zip(symbols, x.shape, strict=True) if isinstance(s, str)}
    )
    inputs = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    device = more.pop("device", h.NATIVE)
    node = h.node(kind, inputs, range(1, len(inputs)), group=c, **more)
    return h.Case(node, DEPTHWISE, arrays, env=env, device=device)


def test_windows() -> None:
    h.check_all(
        [
            depthwise(floats(1, 32, 14, 14), (3, 3), pads=(1, 1, 1, 1)),
            depthwise(floats(2, 48, 13, 45), (5, 5), False, pads=(2, 1, 0, 2), strides=(2, 1)),
            depthwise(floats(2, 32, 13, 11), (5, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
            depthwise(floats(2, 32, 37), (5,), pads=(2, 2)),
            depthwise(floats(2, 20, 13, 11), (3, 3), pads=(1, 0, 2, 1), strides=(2, 2)),
            depthwise(floats(2, 20, 13, 45), (5, 5), False, pads=(2, 2, 2, 2)),
            depthwise(floats(1, 20, 13, 11), (5, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
            depthwise(floats(2, 24, 9, 9), (1, 1)),
            depthwise(floats(1, 16, 2, 2), (7, 7), pads=(3, 3, 3, 3)),
            depthwise(floats(2, 17, 37), (5,), pads=(2, 2)),
        ]
    )


def test_bfloat16() -> None:
    cases = []
    for kind in ("WideConvolution", "Convolution"):
        cases += [
            depthwise(halves(1, 32, 14, 14), (3, 3), kind=kind, pads=(1, 1, 1, 1)),
            depthwise(
                halves(2, 20, 13, 45), (5, 5), False, kind=kind, pads=(2, 2, 2, 2), strides=(2, 2)
            ),
            depthwise(halves(2, 17, 37), (5,), kind=kind, pads=(2, 2)),
        ]
    for c in (24, 32):
        names = ("n", c, "high", "wide")
        x = halves(2, c, 9, 33)
        cases.append(depthwise(x, (3, 3), symbols=names, kind="WideConvolution", pads=(1, 1, 1, 1)))
    cases += [
        depthwise(halves(1, c, 7, 9), (3, 3), kind="WideConvolution", pads=(1, 1, 1, 1), device=d)
        for d in h.devices()
        for c in (19, 32)
    ]
    h.check_all(cases)


@pytest.mark.parametrize("c", [20, 32])
def test_bfloat16_results(c: int) -> None:
    x, w, b, gate = halves(2, c, 9, 9), halves(c, 1, 3, 3), floats(c), floats(2, c, 1, 1)
    nodes = [
        ("WideConvolution", (0, 1, 2), {"pads": (1, 1, 1, 1), "group": c}),
        ("Mul", (4, 3), {}),
        ("Clip", (5,), {"min": 0.0, "max": 6.0}),
        ("Cast", (6,), {"to": DType.BF16}),
    ]
    h.check(h.fused([x, w, b, gate], nodes, [7], 0, [1, 2]), DEPTHWISE, [x, w, b, gate])
    h.check(
        h.fused([x, w, b, gate], nodes, [6, 7], 0, [1, 2]), DEPTHWISE, [x, w, b, gate], budget=1e-2
    )


def test_symbolic_sizes() -> None:
    cases = []
    for n, c, high, wide in ((1, 24, 4, 3), (2, 24, 9, 33), (2, 32, 9, 33)):
        x, names = floats(n, c, high, wide), ("n", c, "high", "wide")
        cases.append(depthwise(x, (3, 3), symbols=names, pads=(1, 1, 1, 1)))
        cases.append(depthwise(x, (3, 3), symbols=names, strides=(2, 2), pads=(1, 1, 0, 0)))
    h.check_all(cases)


@pytest.mark.parametrize("c", [20, 32])
def test_epilogues(c: int) -> None:
    x, w, b, residual, scale = (
        floats(2, c, 9, 9),
        floats(c, 1, 3, 3),
        floats(c),
        floats(2, c, 9, 9),
        floats(2, c, 1, 1),
    )
    conv = ("Convolution", (0, 1, 2), {"pads": (1, 1, 1, 1), "group": c})
    factor = floats(c, 1, 1)
    scaled = h.fused([x, w, b, factor], [conv, ("Mul", (4, 3), {})], anchor=0, constants=[1, 2, 3])
    clip = h.fused(
        [x, w, b], [conv, ("Clip", (3,), {"min": 0.0, "max": 6.0})], anchor=0, constants=[1, 2]
    )
    added = [conv, ("Add", (5, 3), {}), ("Mul", (6, 4), {})]
    node = h.fused([x, w, b, residual, scale], added, anchor=0, constants=[1, 2])
    sigmoid = h.fused(
        [x, w, b], [conv, ("Sigmoid", (3,), {}), ("Mul", (3, 4), {})], [4, 5], 0, [1, 2]
    )
    h.check_all(
        [
            h.Case(clip, DEPTHWISE, [x, w, b]),
            h.Case(scaled, DEPTHWISE, [x, w, b, factor]),
            h.Case(node, DEPTHWISE, [x, w, b, residual, scale]),
            h.Case(sigmoid, DEPTHWISE, [x, w, b]),
        ]
    )


def test_every_instruction_set() -> None:
    h.check_all(
        [
            depthwise(floats(1, c, 7, 9), (3, 3), pads=(1, 1, 1, 1), device=d)
            for d in h.devices()
            for c in (19, 32)
        ]
    )


def test_nhwc_is_read_and_written_where_channels_are_whole_vectors() -> None:
    for c, formats in ((17, 1), (32, 2)):
        node = depthwise(floats(1, c, 7, 9), (3, 3)).node
        found = asked.variants(DEPTHWISE, node, h.NATIVE)
        assert not isinstance(found, Reject)
        assert len({v.input_format(0) for v in found}) == formats


def test_tiles_of_nhwc_take_all_channels_of_few_pixels() -> None:
    pads = {"pads": (1, 1, 1, 1)}
    for case in (
        depthwise(floats(2, 80, 9, 37), (3, 3), **pads),
        depthwise(floats(2, 48, 9, 9), (3, 3), symbols=("n", 48, "high", "wide"), **pads),
    ):
        offered = asked.variants(DEPTHWISE, case.node, case.device)
        assert not isinstance(offered, Reject)
        last = [v for v in offered if v.input_format(0) == NHWC]
        assert last
        assert all(v.number("rows") <= 7 for v in last)
        h.check_all([replace(case, only=last, nt=(1, 2, 3, 7))])


def test_it_wants_one_output_channel_for_each_input_channel() -> None:
    node = h.node("Convolution", [floats(1, 16, 8, 8), floats(32, 1, 3, 3)], [1], group=16)
    assert isinstance(asked.variants(DEPTHWISE, node, h.NATIVE), Reject)


def test_cost_grows_with_the_window() -> None:
    costs = []
    for k in (3, 5):
        case = depthwise(floats(1, 32, 14, 14), (k, k), pads=(k // 2,) * 4)
        variant = asked.variants(DEPTHWISE, case.node, h.NATIVE)[0]  # type: ignore[index]
        costs.append(asked.cost(DEPTHWISE, case.node, variant, CompileContext(h.NATIVE)) or 0.0)
    assert 0 < costs[0] < costs[1]


def with_mean(
    x: Any, kernel: int, symbols: Any = None, follow: Any = "Relu", **more: Any
) -> h.Case:
    """What an activation makes of a convolution, and its mean over the pixels."""
    c, rank, nt = x.shape[1], x.ndim - 2, more.pop("nt", (1, 2, 5))
    w, b = floats(c, 1, *(kernel,) * rank), floats(c)
    attrs = {"group": c, "pads": (kernel // 2,) * 2 * rank, **more}
    parts: Any = [("Convolution", (0, 1, 2), attrs), *([(follow, (3,), {})] if follow else [])]
    made = 2 + len(parts)
    parts.append(("GlobalAveragePool", (made,), {}))
    source = h.spec(x, symbols) if symbols else x
    node = h.fused([source, w, b], parts, (made, made + 1), anchor=0, constants=(1, 2))
    named = zip(symbols or (), x.shape, strict=False)
    env = {s: d for s, d in named if isinstance(s, str)}
    return h.Case(node, DEPTHWISE, [x, w, b], env=env, nt=nt)


def test_means_of_results() -> None:
    h.check_all(
        [
            with_mean(floats(1, 32, 14, 14), 3),
            with_mean(floats(2, 20, 13, 11), 3, follow="Sigmoid"),
            with_mean(floats(2, 40, 9, 7), 5, strides=(2, 1), follow=""),
            with_mean(floats(3, 17, 6, 5), 3, symbols=("n", 17, 6, 5), follow="Swish"),
            with_mean(floats(1, 16, 1, 1), 3),
            with_mean(floats(2, 33, 37), 3),
            with_mean(floats(1, 24, 40, 300), 7, pads=(3, 0, 2, 6)),
            with_mean(floats(2, 24, 90), 15, pads=(21, 21), dilations=(3,)),
        ]
    )


@pytest.mark.parametrize("rounded", [False, True])
def test_means_of_halves(rounded: bool) -> None:
    x, w, b = halves(2, 40, 9, 7), halves(40, 1, 3, 3), floats(40)
    parts: Any = [
        ("WideConvolution", (0, 1, 2), {"group": 40, "pads": (1,) * 4}),
        ("Relu", (3,), {}),
    ]
    mean = "GlobalAveragePool"
    if rounded:
        parts.append(("Cast", (4,), {"to": DType.BF16}))
        mean = "WideGlobalAveragePool"
    made = 2 + len(parts)
    parts.append((mean, (made,), {}))
    node = h.fused([x, w, b], parts, (made, made + 1), anchor=0, constants=(1, 2))
    h.check(node, DEPTHWISE, arrays=[x, w, b])


def test_threads_share_the_lines_of_few_channels() -> None:
    """Four parts for each, whose sums a vector holds."""
    case = with_mean(floats(1, 16, 23, 9), 3)
    (variant, *_) = asked.variants(DEPTHWISE, case.node, case.device)
    work = DEPTHWISE.match(case.node, case.device)
    assert not isinstance(work, Reject)
    sums = [
        DEPTHWISE.compile(work, variant, CompileContext(case.device, {}, threads=n)).workspace
        for n in (1, 4)
    ]
    blocks = -(-16 // case.device.lanes)
    assert sums == [16 * 4, 16 * 4 * -(-16 // blocks)]


@pytest.mark.parametrize("case", ["unknown size", "two results", "bf16"])
def test_means_that_are_not_taken_on_the_way(case: str) -> None:
    x = floats(1, 16, 6, 5)
    group = with_mean(x, 3, symbols=(1, 16, "h", 5) if case == "unknown size" else None)
    if case == "two results":
        w, attrs = floats(16, 1, 3, 3), {"group": 16, "pads": (1, 1, 1, 1)}
        parts = [
            ("Convolution", (0, 1), attrs),
            ("Relu", (2,), {}),
            ("GlobalAveragePool", (2,), {}),
        ]
        group = h.Case(h.fused([x, w], parts, (2, 3, 4), anchor=0, constants=(1,)), DEPTHWISE)
    if case == "bf16":
        w, attrs = halves(16, 1, 3, 3), {"group": 16, "pads": (1, 1, 1, 1)}
        parts = [("Convolution", (0, 1), attrs), ("GlobalAveragePool", (2,), {})]
        node = h.fused([halves(1, 16, 6, 5), w], parts, (2, 3), anchor=0, constants=(1,))
        group = h.Case(node, DEPTHWISE)
    assert isinstance(DEPTHWISE.match(group.node, group.device), Reject)
