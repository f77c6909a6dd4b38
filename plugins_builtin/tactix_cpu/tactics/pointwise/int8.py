"""Pointwise groups that give bytes, as c_pointwise, but rounded after every operation, so that
bytes come out equal.
"""

from __future__ import annotations

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_cpu.tactics.dot_tile import without_fma
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic, PointwiseWork


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [BytePointwiseTactic()]


class BytePointwiseTactic(CpuPointwiseTactic):
    """The variants of c_pointwise, for groups with a result of bytes that are made of floats."""

    key = "tactix.c_int8_pointwise@1"
    beyond = "it takes groups that fusing makes"

    def match(self, node: Node, device: DeviceProperties) -> PointwiseWork | Reject:
        bytes_ = any(v.spec.dtype in (DType.INT8, DType.UINT8) for v in node.outputs)
        if not bytes_ or len(node.body.nodes) < 2:
            return Reject("it makes bytes of floats by several steps")
        return super().match(node, device)

    def compile(self, work: PointwiseWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return without_fma(super().compile(work, variant, ctx))
