"""Branches and loops as steps that hold a plan of each body."""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix_ops.layers.control import Control


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ControlTactic()]


class ControlTactic(Tactic[Node]):
    """One variant: the host decides, the bodies are plans with tactics of their own."""

    key = "tactix.control@1"
    beyond = "it runs branches and loops, whose bodies are networks"
    implements = ("tactix.If@1", "tactix.Loop@1", "tactix.Scan@1")
    source = "control"
    produces = True

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        assert isinstance(node.layer, Control)
        return KernelArtifact(launcher="tactix.control@1", params=node.layer.params(node.attrs))
