"""Matrices of few bits in blocks: numbers, scales that 16 bits hold, and how they are packed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array

AT_ONCE = 1 << 22
"""Weights that are rounded at a time: 16 MiB of float32, of which there are a few copies."""
LEAST_NORMAL = np.float32(2.0**-14)
"""Of float16."""


@dataclass(frozen=True)
class FewBits:
    """``bits``: 4 or 8. ``block``: elements along K that share a scale, 16 or more, a power of two.
    ``symmetric``: the zero point is the middle of the integers; otherwise every block has its own.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = True

    @property
    def high(self) -> int:
        """The largest integer; the lowest is 0."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class WeightBlocks:
    """``packed``: uint8 (N, blocks, bytes), of two numbers in a byte the lower first. ``scales``:
    float32 (N, blocks), which float16 holds exactly where it can. ``zeros``: packed as well, uint8
    (N, bytes); None: they are the middle.
    """

    packed: Array
    scales: Array
    zeros: Array | None


@dataclass(frozen=True)
class BlockSteps:
    """``scales`` and ``zeros`` of blocks, float32 of one shape: q stands for scale (q - zero)."""

    scales: Array
    zeros: Array


def steps_of(x: Array, kind: FewBits) -> BlockSteps:
    """Of blocks (..., block), float32: such that the furthest numbers are integers."""
    if not kind.symmetric:
        low, top = np.minimum(x.min(axis=-1), 0), np.maximum(x.max(axis=-1), 0)
        scales = in_16_bits((top - low) / np.float32(kind.high))
        return BlockSteps(scales, np.clip(np.rint(-low / scales), 0, kind.high))
    middle = 1 << kind.bits - 1  # of the integers, of which there is one more below it
    furthest = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], -1)[..., 0]
    scales = in_16_bits(furthest / np.float32(-middle))
    return BlockSteps(scales, np.full(furthest.shape, middle, np.float32))


def in_16_bits(scales: Array) -> Array:
    """Scales as float16 holds them, in float32; those of zeros are 1. Small ones are rounded up, as
    16 bits hold few of these; a matrix with a scale that is too large for it keeps float32.
    """
    known = np.where(np.abs(scales) > np.finfo(np.float32).tiny, scales, np.float32(1))
    known = known.astype(np.float32)
    with np.errstate(over="ignore"):
        half = known.astype(np.float16)
    if not np.isfinite(half).all():
        return known
    wide = half.astype(np.float32)
    short = (np.abs(wide) < np.abs(known)) & (np.abs(wide) < LEAST_NORMAL)
    away = np.nextafter(half, np.copysign(np.float16(np.inf), known.astype(np.float16)))
    return np.where(short, away.astype(np.float32), wide)


def integers(x: Array, steps: BlockSteps, high: int) -> Array:
    """Numbers (..., block) as the nearest integers, uint8."""
    whole = np.rint(x / steps.scales[..., None]) + steps.zeros[..., None]
    out: Array = np.clip(whole, 0, high).astype(np.uint8)
    return out


def in_blocks(w: Array, kind: FewBits) -> WeightBlocks:
    """Weights (K, N), float, rounded to the nearest."""
    k, n = w.shape
    blocks = -(-k // kind.block)
    whole = np.empty((n, blocks, kind.block), np.uint8)
    scales, zeros = (np.empty((n, blocks), np.float32) for _ in range(2))
    at_once = max(1, AT_ONCE // (blocks * kind.block))
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        x = as_blocks(w[:, part], kind.block)
        steps = steps_of(x, kind)
        whole[part] = integers(x, steps, kind.high)
        scales[part], zeros[part] = steps.scales, steps.zeros
    return packed_blocks(whole, BlockSteps(scales, zeros), kind)


def as_blocks(w: Array, block: int) -> Array:
    """Weights (K, n) as float32 (n, blocks, block), zeros behind the last."""
    k, n = w.shape
    padded = np.zeros((n, -(-k // block) * block), np.float32)
    padded[:, :k] = w.T
    return padded.reshape(n, -1, block)


def packed_blocks(whole: Array, steps: BlockSteps, kind: FewBits) -> WeightBlocks:
    """Integers (N, blocks, block) as they are stored."""
    zeros = None if kind.symmetric else _packed(steps.zeros.astype(np.uint8), kind.bits)
    return WeightBlocks(_packed(whole, kind.bits), steps.scales, zeros)


def _packed(numbers: Array, bits: int) -> Array:
    """Numbers of 8 bits, or two of 4 bits in a byte."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    out: Array = numbers[..., ::2] | numbers[..., 1::2] << 4
    return out
