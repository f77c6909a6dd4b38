"""Layers that move elements, in CUDA: reshape as a view, transpose, concatenate, split, slice,
expand, pad, tile.

Any dtype of 1, 2, 4 or 8 bytes. Concat, Split, Slice and Pad also work on nhwc storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.cuda import copies, text
from tactix_codegen.operations import move
from tactix_ops.tactics.view import ViewTactic


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaMoveTactic(), CudaViewTactic()]


class CudaViewTactic(ViewTactic):
    """Reshape, and reading bits as another dtype, without moving anything."""

    key = "tactix.cuda_view@1"
    implements = (*ViewTactic.implements, "tactix.BitCast@1")
    device = "cuda"


class CudaMoveTactic(Tactic[Node]):
    """One variant per format; all tensors of the node share it."""

    key = "tactix.cuda_move@1"
    implements = move.KINDS
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        return move.variants(node, (NHWC,), "CUDA")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        parts = move.copies(node, variant.output_format(0))
        return copies.kernel(text.CudaArgs(node), parts, node.given[0].spec.dtype.itemsize, ctx)
