"""Layers that move elements, in C: reshape, transpose, concatenate, split, slice, expand, pad,
tile.

Any dtype of 1, 2, 4 or 8 bytes. Concat, Split, Slice and Pad also work on nhwc and ``cB`` storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.tensor import NHWC, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.operations import move


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuMoveTactic()]


class CpuMoveTactic(Tactic[Node]):
    """One variant per format; all tensors of the node share it."""

    key = "tactix.c_move@1"
    implements = (*move.KINDS, "tactix.BitCast@1")
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        return move.variants(node, (blocked(device.lanes), NHWC), "C")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(node)
        width = node.given[0].spec.dtype.itemsize
        body = c_copy.statements(args, move.copies(node, variant.output_format(0)), width, ctx)
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes())
