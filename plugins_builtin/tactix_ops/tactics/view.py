"""Reshape as a view: the output is the input's memory, and nothing runs."""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant


class ViewTactic(Tactic[Node]):
    """Any device; linear format only."""

    key = "tactix.view@1"
    beyond = "its results are its inputs' memory, which an output of the network cannot be"
    implements: tuple[str, ...] = ("tactix.Reshape@1",)
    source = "view"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return Reject("an epilogue needs a kernel") if node.is_fused else node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float:
        return 0.0

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact("", alias=True)


def tactics() -> list[Tactic]:
    """The tactic of this file."""
    return [ViewTactic()]
