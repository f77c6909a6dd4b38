"""The reference tactic: any node by its layers' numpy meaning. Always there, always slow."""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ReferenceTactic()]


class ReferenceTactic(Tactic[Node]):
    """One variant: linear formats, no knobs."""

    key = "tactix.numpy@1"
    implements = ("*",)
    source = "numpy"
    fallback = True
    produces = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return Reject("it runs other plans") if node.layer.bodies(node.attrs) else node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        """20 us a layer and 20 ns an element: more than any C kernel is thought to need."""
        total: Dim = 0
        for v in (*node.given, *node.outputs):
            total = total + v.spec.numel
        known = dims.symbols(total) <= set(ctx.opt)
        elements = dims.evaluate(total, ctx.opt) if known else 1 << 20
        return 20e-6 * len(node.body.nodes) + 20e-9 * elements

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact(launcher="tactix.numpy@1", params=node.meaning)
