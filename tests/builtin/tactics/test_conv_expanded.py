"""Convolutions of single pixels and depthwise ones behind them in one kernel, against numpy."""

from __future__ import annotations

from typing import Any

import harness as h
import numpy as np

from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.conv.expanded import CpuExpandedConvTactic

EXPANDED = CpuExpandedConvTactic()
RNG = np.random.default_rng(22)
SAME = {"pads": (1, 1, 1, 1)}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def expanded(x: Any, co: int, kernel: tuple[int, ...], deep: dict[str, Any], **more: Any) -> h.Case:
    """Both with a bias and an activation behind it. ``means``: with those of the results, too;
    ``symbols``: of the input.
    """
    symbols, means = more.pop("symbols", None), more.pop("means", False)
    ones = (1,) * len(kernel)
    arrays = [x, floats(co, x.shape[1], *ones), floats(co), floats(co, 1, *kernel), floats(co)]
    given = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    parts: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("Convolution", (0, 1, 2), {}),
        ("Relu", (5,), {}),
        ("Convolution", (6, 3, 4), {"group": co, **deep}),
        ("Sigmoid", (7,), {}),
    ]
    results = [8]
    if means:
        parts.append(("GlobalAveragePool", (8,), {}))
        results.append(9)
    node = h.fused(given, parts, results, anchor=2, constants=(1, 2, 3, 4))
    env = {s: d for s, d in zip(symbols or (), x.shape, strict=False) if isinstance(s, str)}
    return h.Case(node, EXPANDED, arrays, env=env, **more)


def test_windows() -> None:
    h.check_all(
        [
            expanded(floats(1, 16, 10, 31), 40, (3, 3), SAME),
            expanded(floats(2, 20, 9, 7), 24, (5, 5), {"pads": (2,) * 4, "strides": (2, 2)}),
            expanded(floats(1, 8, 7, 45), 16, (3, 5), {"pads": (0, 1, 2, 3)}),
            expanded(floats(1, 5, 6, 9), 19, (2, 3), {"strides": (3, 1), "dilations": (1, 2)}),
            expanded(floats(1, 16, 40), 32, (3,), {"pads": (1, 1)}),
        ]
    )


def test_means() -> None:
    h.check_all(
        [
            expanded(floats(2, 16, 9, 17), 40, (3, 3), SAME, means=True),
            expanded(floats(1, 24, 7, 7), 19, (3, 3), {**SAME, "strides": (2, 2)}, means=True),
        ]
    )


def test_sizes_that_only_running_tells() -> None:
    symbols = ("n", 12, "h", "w")
    shapes = ((2, 12, 9, 33), (1, 12, 2, 1), (0, 12, 4, 4))
    h.check_all([expanded(floats(*s), 24, (3, 3), SAME, symbols=symbols) for s in shapes])


def test_every_processor() -> None:
    x = floats(1, 9, 8, 21)
    h.check_all(
        [expanded(x, 20, (3, 3), SAME, device=d, means=m) for d in h.devices() for m in (0, 1)]
    )


def test_what_reads_the_tensor_between_is_left_to_others() -> None:
    x, w, d = floats(1, 4, 6, 6), floats(8, 4, 1, 1), floats(8, 1, 3, 3)
    parts = [
        ("Convolution", (0, 1), {}),
        ("Convolution", (3, 2), {"group": 8, **SAME}),
        ("Add", (4, 3), {}),
    ]
    node = h.fused([x, w, d], parts, anchor=1, constants=(1, 2))
    alone = h.node("Convolution", [x, w], [1])
    for n in (node, alone):
        assert isinstance(EXPANDED.match(n, h.NATIVE), Reject)
