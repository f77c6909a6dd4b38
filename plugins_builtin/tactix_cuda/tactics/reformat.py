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


class CudaReformatTactic(Tactic):
    """The formats are those of the node's attributes; channels and pixels swap in tiles."""

    key = "tactix.cuda_reformat@1"
    implements = ("tactix.Reformat@1",)
    device = "cuda"
    source = "cuda_c"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        work = work_of(node, "CUDA")
        if isinstance(work, Reject):
            return work
        if work.copy is None:
            return Reject(f"no reformat from {work.source.name} to {work.target.name}")
        return [Variant.of([work.source], [work.target])]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        work = work_of(node, "CUDA")
        assert isinstance(work, ReformatWork)
        assert work.copy is not None
        return copies.kernel(text.CudaArgs(node), [work.copy], work.spec.dtype.itemsize, ctx)
