"""Convolutions of few channels along lines, in the linear format, against numpy."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.conv.lines import LinesConvTactic

LINES = LinesConvTactic()
RNG = np.random.default_rng(31)
PADS: Any = {"pads": (1, 1, 1, 1)}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def conv(
    x: Any, w: Any, b: Any = None, symbols: Any = None, constant: bool = True, **more: Any
) -> h.Case:
    """A case; ``symbols``: x's shape with names; what the harness does not know is an attribute."""
    arrays = [x, w] if b is None else [x, w, b]
    options = {k: more.pop(k) for k in ("device", "nt") if k in more}
    env = {s: d for s, d in zip(symbols or (), x.shape, strict=False) if isinstance(s, str)}
    inputs = [h.spec(x, symbols), *arrays[1:]]
    node = h.node("Convolution", inputs, range(1, len(inputs)) if constant else [], **more)
    return h.Case(node, LINES, arrays, env=env, **options)


@pytest.mark.parametrize("device", h.devices(), ids=lambda d: d.name)
def test_windows(device: Any) -> None:
    """Depthwise, groups and few channels; strides, dilations, pads; lines and columns that tiles,
    bands and parts do not divide.
    """
    cases = [
        conv(floats(2, 5, 14, 19), floats(5, 1, 3, 3), floats(5), group=5, **PADS),
        conv(floats(1, 3, 13, 33), floats(6, 1, 3, 3), group=3, strides=(2, 2), **PADS),
        conv(floats(1, 3, 9, 40), floats(3, 1, 5, 4), group=3, strides=(1, 3), pads=(2, 1, 0, 2)),
        conv(floats(2, 4, 11, 17), floats(6, 2, 3, 3), floats(6), group=2, dilations=(2, 3)),
        conv(floats(1, 2, 9, 37), floats(3, 2, 3, 3), strides=(3, 2), pads=(4, 4, 3, 2)),
        conv(floats(1, 3, 7, 9), floats(8, 3, 2, 2), pads=(1, -1, -2, 3)),
        conv(floats(1, 2, 150, 101), floats(2, 1, 3, 3), group=2, nt=(1, 3), **PADS),
        conv(floats(1, 3, 2500), floats(2, 3, 9), floats(2), nt=(1, 3), pads=(4, 4)),
        conv(floats(2, 3, 37), floats(3, 1, 5), group=3, strides=(2,), pads=(9, 2)),
        conv(floats(1, 2, 1, 1), floats(2, 1, 3, 3), group=2, **PADS),
        conv(floats(1, 8, 6, 70), floats(8, 8, 1, 3)),
        conv(floats(2, 3, 6, 7), floats(3, 1, 3, 3), constant=False, group=3, **PADS),
        conv(floats(1, 2, 9, 40), floats(19, 2, 3, 3), floats(19), **PADS),
        conv(floats(2, 13, 5, 17), floats(19, 13, 1, 1), floats(19), nt=(1, 3)),
        conv(floats(2, 6, 3, 4, 5), floats(10, 3, 1, 1, 1), group=2),
        conv(floats(1, 20, 1100), floats(8, 20, 1), nt=(1, 3)),
    ]
    h.check_all([h.replace(c, device=device) for c in cases])


def test_sizes_that_only_running_tells() -> None:
    cases = []
    for n, high, wide in ((0, 4, 3), (1, 4, 3), (2, 9, 1100)):
        for strides in ((1, 1), (2, 2)):
            x, names = floats(n, 3, high, wide), ("n", 3, "high", "wide")
            more = {"symbols": names, "group": 3, "strides": strides, **PADS}
            cases.append(conv(x, floats(3, 1, 3, 3), floats(3), **more))
        x, names = floats(n, 3, high, wide), ("n", 3, "high", "wide")
        cases.append(conv(x, floats(3, 3, 1, 1), symbols=names))
    cases.append(conv(floats(1, 2, 0), floats(2, 2, 3), symbols=(1, 2, "wide"), pads=(2, 2)))
    h.check_all(cases)


def test_epilogues() -> None:
    """Cheap ones, others, operands of all shapes, and two results."""
    x, w, residual = floats(2, 6, 7, 19), floats(6, 1, 3, 3), floats(2, 6, 7, 19)
    nodes = [
        ("Convolution", (0, 1), {"group": 6, **PADS}),
        ("Add", (4, 2), {}),
        ("Mul", (5, 3), {}),
    ]
    cases = []
    for shape in ((2, 6, 7, 19), (6, 1, 1), (7, 1), (1, 1, 1, 19), ()):
        operand = floats(*shape)
        given = [x, w, residual, operand]
        cases.append(h.Case(h.fused(given, nodes, [5, 6], anchor=0), LINES, given))
    point = floats(6, 6, 1, 1)
    for shape in ((2, 6, 7, 19), (6, 1, 1), (7, 1), ()):
        given = [x, point, residual, floats(*shape)]
        single = [("Convolution", (0, 1), {}), *nodes[1:]]
        cases.append(h.Case(h.fused(given, single, [5, 6], anchor=0), LINES, given))
    gelu = [("Convolution", (0, 1), {"pads": (1, 1), "group": 2}), ("Gelu", (2,), {})]
    x, w = floats(1, 4, 50), floats(4, 2, 3)
    cases.append(h.Case(h.fused([x, w], gelu, anchor=0), LINES, [x, w]))
    h.check_all(cases)


def test_what_it_leaves_to_others() -> None:
    many = h.node("Convolution", [floats(1, 16, 8, 8), floats(16, 16, 3, 3)], [1])
    large = h.node("Convolution", [floats(1, 80, 8, 8), floats(80, 80, 1, 1)], [1])
    deep = h.node("Convolution", [floats(1, 2, 4, 4, 4), floats(2, 2, 3, 3, 3)], [1])
    halves = [TensorSpec(DType.FP16, (1, 2, 8, 8)), TensorSpec(DType.FP16, (2, 2, 3, 3))]
    for node in (many, large, deep, h.node("Convolution", halves)):
        assert isinstance(asked.variants(LINES, node, h.NATIVE), Reject)
