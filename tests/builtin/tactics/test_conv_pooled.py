"""Convolutions and the pooling behind them in one kernel, against numpy."""

from __future__ import annotations

from typing import Any

import harness as h
import numpy as np

from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.conv.pooled import CpuPooledConvTactic

POOLED = CpuPooledConvTactic()
RNG = np.random.default_rng(21)
SAME = {"pads": (1, 1, 1, 1)}
HALF = {"kernel_shape": (2, 2), "strides": (2, 2)}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def pooled(
    x: Any,
    co: int,
    kernel: tuple[int, int],
    conv: dict[str, Any],
    pool: dict[str, Any],
    **more: Any,
) -> h.Case:
    """A convolution with a bias, Relu, and what pools its results; ``symbols``: of the input."""
    symbols = more.pop("symbols", None)
    arrays = [x, floats(co, x.shape[1] // conv.get("group", 1), *kernel), floats(co)]
    given = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    parts = [("Convolution", (0, 1, 2), conv), ("Relu", (3,), {}), ("MaxPool", (4,), pool)]
    node = h.fused(given, parts, anchor=2, constants=(1, 2))
    env = {s: d for s, d in zip(symbols or (), x.shape, strict=False) if isinstance(s, str)}
    return h.Case(node, POOLED, arrays, env=env, **more)


def test_windows() -> None:
    stem = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    h.check_all(
        [
            pooled(floats(1, 3, 18, 22), 40, (7, 7), {"strides": (2, 2), "pads": (3,) * 4}, stem),
            pooled(floats(2, 3, 9, 7), 16, (3, 3), SAME, HALF),
            pooled(floats(1, 20, 9, 46), 24, (3, 3), SAME, {**HALF, "ceil_mode": True}),
            pooled(
                floats(1, 16, 6, 6), 16, (1, 3), {}, {"kernel_shape": (1, 4), "strides": (3, 1)}
            ),
            pooled(floats(1, 32, 8, 9), 32, (3, 3), {"group": 2}, {"kernel_shape": (3, 2)}),
            pooled(
                floats(1, 5, 12, 5), 5, (3, 3), SAME, {"kernel_shape": (2, 2), "strides": (5, 3)}
            ),
        ]
    )


def test_sizes_that_only_running_tells() -> None:
    symbols = ("n", 7, "h", "w")
    shapes = ((2, 7, 9, 11), (1, 7, 2, 40), (0, 7, 4, 4))
    h.check_all([pooled(floats(*s), 24, (3, 3), SAME, HALF, symbols=symbols) for s in shapes])


def test_every_processor() -> None:
    x = floats(1, 9, 9, 13)
    h.check_all([pooled(x, 20, (3, 3), SAME, HALF, device=d) for d in h.devices()])


def test_what_stands_behind_the_pooling_is_left_to_others() -> None:
    x, w = floats(1, 4, 6, 6), floats(4, 4, 3, 3)
    parts = [("Convolution", (0, 1), SAME), ("MaxPool", (2,), HALF), ("Relu", (3,), {})]
    behind = h.fused([x, w], parts, anchor=1, constants=(1,))
    alone = h.node("MaxPool", [x], **HALF)
    for node in (behind, alone):
        assert isinstance(POOLED.match(node, h.NATIVE), Reject)
