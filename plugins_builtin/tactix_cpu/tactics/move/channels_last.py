"""Transpose between an image in ``cB`` and tokens, in C: channels go last, or come from there.

Neighbours of one pixel lie together on both sides, so that it is the change of format between
``cB`` and nhwc: one pass, where a Transpose of linear tensors needs a change of format beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.tensor import LINEAR, NHWC, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.operations.reformat import ReformatWork
from tactix_cpu.tactics.move.reformat import BlockedCopy


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ChannelsLastTactic()]


class ChannelsLastTactic(Tactic[Node]):
    """From ``cB`` to linear where channels go last, from linear to ``cB`` where they come back."""

    key = "tactix.c_channels_last@1"
    implements = ("tactix.Transpose@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if node.is_fused:
            return Reject("elements are moved, not computed: no epilogue")
        if not c_copy.movable(node.given[0].spec.dtype):
            return Reject(f"no elements of {node.given[0].spec.dtype.value} in C")
        if not (_goes_last(node) or _comes_back(node)):
            return Reject("channels do not go last, nor come back from there")
        return node

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant]:
        image = blocked(device.lanes)
        pair = (image, LINEAR) if _goes_last(node) else (LINEAR, image)
        return [Variant.of(pair[:1], pair[1:])]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        source, target = variant.input_format(0), variant.output_format(0)
        if target.is_linear:
            work = ReformatWork(node, node.given[0].spec, source, NHWC, None)
        else:
            work = ReformatWork(node, node.outputs[0].spec, NHWC, target, None)
        args = c_text.Args(node)
        body = BlockedCopy(args, work).text(ctx.device.lanes)
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes())


def _goes_last(node: Node) -> bool:
    rank = node.given[0].spec.rank
    return rank > 2 and node.attrs.perm == (0, *range(2, rank), 1)


def _comes_back(node: Node) -> bool:
    rank = node.given[0].spec.rank
    return rank > 2 and node.attrs.perm == (0, rank - 1, *range(1, rank - 1))
