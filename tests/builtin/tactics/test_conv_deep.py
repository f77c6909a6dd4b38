"""Convolutions over three axes race: the direct kernel, and the matrix unit's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np

from tactix.contracts.tactic import CompileContext
from tactix_cpu.tactics.conv import amx, direct

DIRECT = direct.CpuConvTactic()
(PARTS,) = amx.tactics()
WIDEST = replace(h.NATIVE, features=h.NATIVE.features | {*PARTS.requires}, vector_bits=512)
PADS = (1, 1, 1, 1, 1, 1)


def convolution(x: tuple[int, ...], w: tuple[int, ...], **fields: Any) -> Any:
    arrays = [np.zeros(x, np.float32), np.zeros(w, np.float32)]
    return h.node("Convolution", arrays, [1], **fields)


def test_estimates_know_that_parts_of_large_images_go_to_memory() -> None:
    ctx = CompileContext(WIDEST)

    def first(x: tuple[int, ...], w: tuple[int, ...], **fields: Any) -> Any:
        node, costs = convolution(x, w, **fields), {}
        for tactic in (DIRECT, PARTS):
            offered: Any = asked.variants(tactic, node, WIDEST)
            costs[tactic.key] = asked.cost(tactic, node, offered[0], ctx)
        return min(costs, key=lambda k: costs[k])

    large = first((1, 64, 8, 28, 28), (64, 64, 3, 3, 3), pads=PADS)
    small = first((1, 256, 4, 7, 7), (256, 256, 3, 3, 3), pads=PADS)
    assert (large, small) == (DIRECT.key, PARTS.key)
