"""Convolutions of single pixels with something pointwise before them."""

from __future__ import annotations

from typing import Any

import harness as h
import numpy as np

from tactix.contracts.tactic import Tactic

RNG = np.random.default_rng(17)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


Parts = list[tuple[str, tuple[int, ...], dict[str, Any]]]
GATED: Parts = [("Mul", (0, 1), {}), ("Convolution", (3, 2), {})]


def gated(
    x: Any,
    g: Any,
    w: Any,
    tactic: Tactic,
    parts: Parts = GATED,
    symbols: Any = None,
    constants: tuple[int, ...] = (2,),
    **more: Any,
) -> h.Case:
    """Something pointwise before the convolution of ``x`` and what is beside it."""
    arrays = [x, g, w]
    anchor = next(k for k, (name, _, _) in enumerate(parts) if name.endswith("Convolution"))
    symbols = symbols or (None, None)
    specs = [h.spec(a, s) if s else a for a, s in zip((x, g), symbols, strict=True)]
    named = zip(symbols[0] or (), x.shape, strict=False)
    env = {s: d for s, d in named if isinstance(s, str)}
    node = h.fused([*specs, w], parts, anchor=anchor, constants=constants)
    return h.Case(node, tactic, arrays, env=env, **more)


def prepared_cases(tactic: Tactic, **more: Any) -> list[h.Case]:
    """Whatever may stand before a convolution of single pixels."""
    x, g, w = floats(2, 40, 9, 7), floats(2, 40, 1, 1), floats(50, 40, 1, 1)
    whole = floats(1, 32, 5, 6), floats(1, 32, 1, 1), floats(48, 32, 1, 1)
    clipped: Parts = [("Mul", (1, 0), {}), ("HardSwish", (3,), {}), ("Convolution", (4, 2), {})]
    behind: Parts = [*GATED, ("Relu", (4,), {})]
    infinite: Parts = [("Reciprocal", (0,), {}), ("Mul", (3, 1), {}), ("Convolution", (4, 2), {})]
    lines = floats(1, 33, 37), floats(1, 33, 1), floats(20, 33, 1)
    deep = floats(1, 20, 3, 4, 5), floats(1, 20, 1, 1, 1), floats(17, 20, 1, 1, 1)
    unknown = ("n", 40, "high", "wide"), ("n", 40, 1, 1)
    return [
        gated(x, g, w, tactic, **more),
        gated(x, g, w, tactic, symbols=unknown, **more),
        gated(x, g[:1], w, tactic, clipped, symbols=(unknown[0], None), **more),
        gated(x, floats(40, 1, 1), w, tactic, clipped, constants=(1, 2), **more),
        gated(x, floats(1, 40, 1, 7), w, tactic, **more),
        gated(x, np.abs(x) + 1, w, tactic, **more),
        gated(*whole, tactic, behind, **more),
        gated(np.abs(x) + 1, g, w, tactic, infinite, **more),
        gated(*lines, tactic, **more),
        gated(*deep, tactic, **more),
    ]
