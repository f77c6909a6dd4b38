"""Convolution of bfloat16 by the loops of c_conv, in pairs of channels: any axes, groups, sizes
that only running tells, and no copy of the input where borders can be left out.

On a Zen 4 with ``vdpbf16ps`` windows of 3 x 3 took half of c_conv's time in float32, and 4 to 17 %
less than kernels that copied the input with its pads (``ResNet-50``'s, 64 to 512 channels); groups
of 8 and 16 channels at 56 x 56 to 7 x 7 pixels half of it, too.
"""

from __future__ import annotations

from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject, Tactic
from tactix_cpu.tactics.conv.direct import CpuConvTactic, DirectConvolution
from tactix_cpu.tactics.conv.int8_window import FEW_CHANNELS, dot_window, fills_tiles
from tactix_cpu.tactics.conv.kernel import gathered
from tactix_cpu.tactics.conv.window import joined_window, window
from tactix_cpu.tactics.dot_tile import HALVES


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfDirectConvTactic(), HalfJoinedConvTactic()]


class HalfDirectConvTactic(CpuConvTactic):
    """bf16 with constant bf16 weights, up to three spatial axes; groups of whole channel blocks."""

    key = "tactix.c_bf16_direct_conv@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")

    def match(self, node: Node, device: DeviceProperties) -> DirectConvolution | Reject:
        win = window(node, HALVES.dtypes, axes=(1, 2, 3))
        if isinstance(win, Reject):
            return win
        lanes = max(4, device.lanes)
        if win.group > 1 and (win.c // win.group % lanes or win.co // win.group % lanes):
            return Reject("groups of whole channel blocks only")
        known = dot_window(node, HALVES, axes=(1, 2, 3))
        if not isinstance(known, Reject) and fills_tiles(known, device):
            return Reject("the matrix unit is faster")
        if win.c <= FEW_CHANNELS:
            return Reject("images of few channels would have to be brought into blocks")
        return DirectConvolution(win, gathered(win))


class HalfJoinedConvTactic(CpuConvTactic):
    """bf16 with groups of a part of a vector, as c_joined_conv takes them."""

    key = "tactix.c_bf16_joined_conv@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")

    def match(self, node: Node, device: DeviceProperties) -> DirectConvolution | Reject:
        win = joined_window(node, max(4, device.lanes), HALVES.dtypes)
        return win if isinstance(win, Reject) else DirectConvolution(win, win)
