"""Convolution of bfloat16 with float32 sums, on the register tiles of c_int8_conv."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cpu.tactics.conv import int8 as conv
from tactix_cpu.tactics.conv.bf16_amx import suits
from tactix_cpu.tactics.conv.int8_window import dot_window
from tactix_cpu.tactics.dot_tile import HALVES


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfConvTactic()]


class HalfConvTactic(Tactic):
    """bf16 with constant bf16 weights, one or two spatial axes of known size, one group."""

    key = "tactix.c_bf16_conv@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        win = dot_window(node, HALVES)
        if isinstance(win, Reject):
            return win
        return (
            Reject("the matrix unit is faster")
            if suits(win, device)
            else conv.offered(node, win, device)
        )

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        win = dot_window(node, HALVES)
        assert not isinstance(win, Reject)
        return conv.seconds(win, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        win = dot_window(node, HALVES)
        assert not isinstance(win, Reject)
        return conv.DotConvKernel(node, win, variant, ctx).artifact()
