"""Winograd convolution with products of bfloat16 and float32 sums.

Patches and weights are turned in float32 and float64 and rounded to bfloat16, so that an output
rounds twice what a direct convolution of bfloat16 does: with F(2 x 2, 3 x 3) 4e-3 of the largest
output where that has 2.4e-3, along one axis 3e-3 to 4e-3 with patches of 4 and 5e-3 to 6e-3 with
patches of 6. F(4 x 4, 3 x 3) would be off by 5e-2 and patches of 8 along one axis by 1.5e-2, and
are left to products of float32, whose patches and weights are widened on the way. For 64 to 256
channels of normal numbers, in numpy.
"""

from __future__ import annotations

from dataclasses import replace

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, window
from tactix_cpu.tactics.conv.winograd import WinogradTactic, turnable
from tactix_cpu.tactics.conv.winograd_kernel import WinogradKernel
from tactix_cpu.tactics.dot_tile import HALVES, DotTile


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfWinogradTactic(), WidenedWinogradTactic()]


class HalfWinogradTactic(WinogradTactic):
    """bf16 with constant bf16 weights and results that are rounded to bf16; the rest as c_winograd
    has it.
    """

    key = "tactix.c_bf16_winograd@1"
    beyond = "it takes groups that fusing makes, whose results are rounded"
    implements = ("tactix.WideConvolution@1",)
    lengths = ((4, 6), (4,))

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        if not (device.has("avx512_bf16") and device.lanes == 16):
            return Reject("it needs AVX-512 with bfloat16")
        win = turnable(window(node, (DType.BF16,), axes=(1, 2, 3)), device, self.lengths)
        if isinstance(win, Reject):
            return win
        if any(v.spec.dtype is not DType.BF16 for v in node.outputs):
            return Reject("patches are rounded, so results are that are rounded, too")
        return Reject("the matrix unit is faster") if byte.has_tiles(device, HALVES) else win

    def compile(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return HalfWinogradKernel(win, variant, ctx).artifact()


class WidenedWinogradTactic(WinogradTactic):
    """bf16 with constant bf16 weights, and products of float32; the rest as c_winograd has it.

    It takes fewer products than those of bfloat16 do, with larger patches, and half the bytes of
    float32 images. On a Zen 4 it was the faster one for 16 to 64 channels.
    """

    key = "tactix.c_bf16_widened_winograd@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1",)

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        win = window(node, (DType.BF16,), axes=(1, 2, 3))
        if byte.has_tiles(device, HALVES):
            return Reject("the matrix unit is faster")
        wide = win if isinstance(win, Reject) else replace(win, dtype=DType.FP32)
        return turnable(wide, device, self.lengths)


class HalfWinogradKernel(WinogradKernel):
    """Its products take pairs of channels, on the register tiles of c_bf16_conv."""

    def _preludes(self) -> tuple[str, ...]:
        return byte.preludes()

    def _tile(self, size: int) -> tuple[list[str], str, list[str]]:
        offsets = tuple(m * self.lanes * HALVES.size for m in range(size))
        near, far = byte.ahead(self.blocks.results / self.tile.rows)
        tile = DotTile(HALVES, offsets, self.tile.vectors, self.lanes, near=near, far=far)
        begin = [tile.zero(), "const int8_t* pairs = (const int8_t*)w;"]
        cells = [
            "const uint8_t* row = (const uint8_t*)x;",
            tile.run(self.lanes // HALVES.group, "row", "pairs"),
        ]
        return begin, block("", *cells), tile.save("s")
