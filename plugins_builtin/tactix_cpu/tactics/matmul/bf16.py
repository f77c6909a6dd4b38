"""Products of bfloat16 matrices with float32 sums, on the register tiles of c_int8_gemm."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic
from tactix_cpu.tactics.dot_tile import HALVES
from tactix_cpu.tactics.matmul.int8 import ByteGemmTactic


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfGemmTactic()]


class HalfGemmTactic(ByteGemmTactic):
    """bf16 times constant bf16; any sizes, rows may be symbolic."""

    key = "tactix.c_bf16_gemm@1"
    implements = ("tactix.WideMatMul@1", "tactix.MatMul@1", "tactix.Gemm@1")
    dot = HALVES
