"""Reshape as a view: the output is the input's memory, and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.tensor import LINEAR, NHWC, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant


class ViewTactic(Tactic[Node]):
    """Any device. Beside linear also nhwc and ``cB``, where spatial axes alone are joined or
    split.
    """

    key = "tactix.view@1"
    beyond = "its results are its inputs' memory, which an output of the network cannot be"
    implements: tuple[str, ...] = ("tactix.Reshape@1",)
    source = "view"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return Reject("an epilogue needs a kernel") if node.is_fused else node

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant]:
        if not _keeps_channels(node):
            return [Variant()]
        blocks = (blocked(device.lanes),) if device.lanes > 1 else ()
        return [Variant.of([f], [f]) for f in (LINEAR, NHWC, *blocks)]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float:
        return 0.0

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact("", alias=True)


def _keeps_channels(node: Node) -> bool:
    """Whether both have the same samples and channels, and so the same pixels in another shape."""
    own, out = node.given[0].spec.shape, node.outputs[0].spec.shape
    return min(len(own), len(out)) > 1 and own[:2] == out[:2]


def tactics() -> list[Tactic]:
    """The tactic of this file."""
    return [ViewTactic()]
