"""Images of bfloat16 with float32 sums, on the register tiles of c_int8_conv."""

from __future__ import annotations

from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject, Tactic
from tactix_cpu.tactics.conv.int8 import ByteConvTactic
from tactix_cpu.tactics.conv.int8_window import FEW_CHANNELS, DotWindow
from tactix_cpu.tactics.dot_tile import HALVES


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfImageConvTactic()]


class HalfImageConvTactic(ByteConvTactic):
    """bf16 of few channels with constant bf16 weights, one or two spatial axes of known size, one
    group.
    """

    key = "tactix.c_bf16_conv@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")
    dot = HALVES

    def match(self, node: Node, device: DeviceProperties) -> DotWindow | Reject:
        win = super().match(node, device)
        if isinstance(win, DotWindow) and win.c > FEW_CHANNELS:
            return Reject("images of few channels only")
        return win
