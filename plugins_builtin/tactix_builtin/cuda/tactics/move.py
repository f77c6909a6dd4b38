"""Layers that move elements, in CUDA: reshape as a view, transpose, concatenate, split, slice, expand, pad, tile.

Any dtype of 1, 2, 4 or 8 bytes. Concat, Split, Slice and Pad also work on nhwc storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.errors import ShapeError
from tactix.words.tensor import LINEAR, NHWC
from tactix_builtin.cuda.tactics import copies, text
from tactix_builtin.tactics import c_copy, c_move
from tactix_builtin.tactics.view import ViewTactic


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [MoveTactic(), CudaViewTactic()]


class CudaViewTactic(ViewTactic):
    """Reshape without moving anything."""

    key = "tactix.cuda_view@1"
    device = "cuda"


class MoveTactic(Tactic):
    """One variant per format; all tensors of the node share it."""

    key = "tactix.cuda_move@1"
    implements = c_move.MoveTactic.implements
    device = "cuda"
    source = "cuda_c"
    native = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        if node.is_fused:
            return Reject("elements are moved, not computed: no epilogue")
        if not c_copy.movable(node.given[0].spec.dtype):
            return Reject(f"no elements of {node.given[0].spec.dtype.value} in CUDA")
        axis_wise = node.layer.name in c_move._AXIS_WISE and node.outputs[0].spec.rank > 2
        found, reason = [], ""
        for f in (LINEAR, NHWC) if axis_wise else (LINEAR,):
            try:
                c_move._copies(node, f)
            except ShapeError as e:
                reason = reason or e.what
            else:
                found.append(Variant.of([f] * len(node.given), [f] * len(node.outputs)))
        return found or Reject(reason)

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        parts = c_move._copies(node, variant.output_format(0))
        return copies.kernel(text.Args(node), parts, node.given[0].spec.dtype.itemsize, ctx)
