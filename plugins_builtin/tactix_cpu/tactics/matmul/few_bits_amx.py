"""FewBitsMatMul of many rows on the AMX matrix unit, to the accuracy of float32.

A first launch writes all weights out in float32, into the workspace, beside cutting a into parts;
the rest is ``gemm_amx``. The plan holds the bits alone; while the layer runs its workspace has four
bytes for each weight.
"""

from __future__ import annotations

import numpy as np

from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block, comment, loop, split
from tactix_cpu.tactics.dot_tile import HALVES, has_tiles
from tactix_cpu.tactics.estimates import CLOCK, MEMORY
from tactix_cpu.tactics.matmul.few_bits import (
    WRITE,
    FewBitsProduct,
    PackedNumbers,
    few_bits_preludes,
    few_bits_product,
)
from tactix_cpu.tactics.matmul.gemm_amx import DEPTH, WIDTH, RowsKernel, seconds, slab_steps

FEWEST = 32
"""Rows of a below which writing all weights out takes longer than multiplying them. No measurement
of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [AmxFewBitsTactic()]


class AmxFewBitsTactic(Tactic[FewBitsProduct]):
    """float32 times constant finite weights, of a known number of rows."""

    key = "tactix.c_few_bits_amx@1"
    implements = ("tactix.FewBitsMatMul@1",)
    source = "c"
    by_signature = True
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> FewBitsProduct | Reject:
        if not has_tiles(device, HALVES):
            return Reject("it needs AMX with bfloat16, and AVX-512")
        p = few_bits_product(node)
        if isinstance(p, Reject):
            return p
        if not isinstance(p.m, int) or p.m < FEWEST:
            return Reject("there are few rows, or only running tells how many")
        if p.blocks * p.block > _padded(p.k):
            return Reject("the last block ends behind the steps of the matrix unit")
        if not all(np.isfinite(node.given[i].array).all() for i in p.inputs[2:] if i >= 0):
            return Reject("a weight is not finite")
        return p

    def cost(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> float | None:
        assert isinstance(p.m, int)
        vectors = p.n * p.k / 16
        writing = vectors * WRITE / CLOCK / max(1, ctx.threads) + 4 * p.n * p.k / MEMORY
        return seconds(p.m, p.n, p.k, ctx.threads) + writing

    def compile(self, p: FewBitsProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(p, ctx).artifact()


def _padded(k: int) -> int:
    """Rows of k that a panel has."""
    steps = -(-k // DEPTH)
    slab = slab_steps(steps)
    return -(-steps // slab) * slab * DEPTH


class _Kernel(RowsKernel):
    """Times weights that the first launch writes out."""

    def __init__(self, p: FewBitsProduct, ctx: CompileContext) -> None:
        super().__init__(p.node, ctx, p.lead, p.n, p.k, p.epi, p.inputs[0])
        self.p = p

    @property
    def preludes(self) -> tuple[str, ...]:
        return few_bits_preludes()

    def right_side(self, start: Dim) -> tuple[str, Dim]:
        numbers = PackedNumbers(self.p, self.args, WIDTH // 16, 16)
        self.functions.add("write", *numbers.writer())
        self.written, self.panel_count = self.args.workspace(start), numbers.panels
        return self.written, 4 * numbers.panels * _padded(self.p.k) * WIDTH

    def before(self) -> list[str]:
        deep = _padded(self.p.k)
        panel = [
            f"float* out = {self.written} + q * {deep * WIDTH};",
            f"TX_NAME(write)(a, out, q * {WIDTH}, 0, {self.k});",
            f"memset(out + {self.k * WIDTH}, 0, {(deep - self.k) * WIDTH * 4});",
        ]
        panels = [split(str(self.panel_count)), loop("q", "lo", "hi", *panel)]
        return [comment("weights in float32, zeros past the last k"), block("", *panels)]
