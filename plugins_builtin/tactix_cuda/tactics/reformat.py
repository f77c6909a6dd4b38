"""Reformat in CUDA: between linear and nhwc, and plain copies; any dtype of 1, 2, 4 or 8 bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.cuda import copies, text
from tactix_codegen.operations.reformat import ReformatWork, work_of


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaReformatTactic()]


class CudaReformatTactic(Tactic[ReformatWork]):
    """The formats are those of the node's attributes; channels and pixels swap in tiles."""

    key = "tactix.cuda_reformat@1"
    implements = ("tactix.Reformat@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> ReformatWork | Reject:
        work = work_of(node, "CUDA")
        if isinstance(work, Reject) or work.copy is not None:
            return work
        return Reject(f"no reformat from {work.source.name} to {work.target.name}")

    def variants(self, work: ReformatWork, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of([work.source], [work.target])]

    def cost(self, work: ReformatWork, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(work.node, variant, ctx)

    def compile(self, work: ReformatWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        assert work.copy is not None
        return copies.kernel(text.CudaArgs(work.node), [work.copy], work.spec.dtype.itemsize, ctx)
