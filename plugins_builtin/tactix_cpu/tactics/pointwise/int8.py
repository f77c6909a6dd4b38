"""Pointwise groups that give bytes of sums, as c_pointwise, but rounded after every operation, so
that bytes come out equal.
"""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cpu.tactics.dot_tile import rounds_sums, without_fma
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic, PointwiseWork


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [BytePointwiseTactic()]


class BytePointwiseTactic(CpuPointwiseTactic):
    """The variants of c_pointwise, for groups that make bytes of sums of floats."""

    key = "tactix.c_int8_pointwise@1"
    beyond = "it takes groups that fusing makes"

    def match(self, node: Node, device: DeviceProperties) -> PointwiseWork | Reject:
        work = super().match(node, device)
        if isinstance(work, Reject) or rounds_sums(work.group.program.results):
            return work
        return Reject("it makes no bytes of sums")

    def compile(self, work: PointwiseWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return without_fma(super().compile(work, variant, ctx))
