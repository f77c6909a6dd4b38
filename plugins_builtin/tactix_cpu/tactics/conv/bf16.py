"""Convolution of bfloat16 with float32 sums, on the register tiles of c_int8_conv."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic
from tactix_cpu.tactics.conv.int8 import ByteConvTactic
from tactix_cpu.tactics.dot_tile import HALVES


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfConvTactic()]


class HalfConvTactic(ByteConvTactic):
    """bf16 with constant bf16 weights, one or two spatial axes of known size, one group."""

    key = "tactix.c_bf16_conv@1"
    beyond = "it takes groups that fusing makes"
    implements = ("tactix.WideConvolution@1", "tactix.Convolution@1")
    dot = HALVES
