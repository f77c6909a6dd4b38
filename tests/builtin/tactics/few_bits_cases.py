"""Arrays of products with weights of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

RNG = np.random.default_rng(37)


def arrays_of(
    m: int, k: int, n: int, bits: int = 4, block: int = 32, zeros: str = "", scales: Any = "f4"
) -> list[Any]:
    """Rows, weights, scales and zero points: ``zeros`` is their dtype, none if empty."""
    blocks = -(-k // block)
    weights = RNG.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scale = RNG.uniform(0.01, 0.1, (n, blocks)).astype(scales)
    points = RNG.integers(0, 1 << bits, (n, blocks)).astype(zeros or "u1")
    return [RNG.standard_normal((m, k), np.float32), weights, scale, *([points] if zeros else [])]


def bytes_of(m: int, k: int, block: int = 32) -> Any:
    """Rows that 8 bits hold: of a block the largest is 127 times a power of two."""
    whole = RNG.integers(-127, 128, (m, k)).astype(np.float32)
    whole[:, ::block] = RNG.choice([-127, 127], whole[:, ::block].shape)
    powers = np.exp2(RNG.integers(-9, 3, (m, -(-k // block)))).astype(np.float32)
    return whole * np.repeat(powers, block, axis=1)[:, :k]
