"""Products of bfloat16 matrices with float32 sums, on the register tiles of c_int8_gemm."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cpu.tactics.dot_tile import HALVES
from tactix_cpu.tactics.matmul import int8 as gemm


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfGemmTactic()]


class HalfGemmTactic(Tactic):
    """bf16 times constant bf16; any sizes, rows may be symbolic."""

    key = "tactix.c_bf16_gemm@1"
    implements = ("tactix.WideMatMul@1", "tactix.MatMul@1", "tactix.Gemm@1")
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        p = gemm.dot_product(node, HALVES)
        return p if isinstance(p, Reject) else gemm.offered(p, device)

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        p = gemm.dot_product(node, HALVES)
        assert not isinstance(p, Reject)
        return gemm.seconds(p, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        p = gemm.dot_product(node, HALVES)
        assert not isinstance(p, Reject)
        return gemm.DotGemmKernel(p, node, variant, ctx).artifact()
