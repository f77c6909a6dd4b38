"""What no kernel can do runs on the host: a layer's reference (but under ``NO_FALLBACK``), branches
and loops.

Such a step copies its inputs to the host and its results back (``host_launcher.py``); consecutive
ones share copies.
"""

from __future__ import annotations

from dataclasses import replace

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix_cuda.host_launcher import CROSSING_BANDWIDTH, CROSSING_SECONDS, HostLauncher
from tactix_ops.tactics.control import ControlTactic
from tactix_ops.tactics.reference import ReferenceTactic


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HostTactic(), HostControlTactic()]


class HostTactic(ReferenceTactic):
    """Any layer by its numpy meaning, asked where no kernel is left."""

    key = "tactix.cuda_host@1"
    device = "cuda"
    source = "cuda_host"
    crosses = True

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        """The reference's own, and a copy of each tensor over the bus."""
        own, tensors = super().cost(node, variant, ctx), (*node.given, *node.outputs)
        moved: Dim = sum((v.spec.nbytes() for v in tensors if not v.spec.dtype.on_host), 0)
        if own is None or not dims.symbols(moved) <= set(ctx.opt):
            return own
        return (
            own
            + len(tensors) * CROSSING_SECONDS
            + dims.evaluate(moved, ctx.opt) / CROSSING_BANDWIDTH
        )

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return replace(super().compile(node, variant, ctx), launcher=HostLauncher.key)


class HostControlTactic(ControlTactic):
    """The host decides, the bodies are plans for the device."""

    key = "tactix.cuda_control@1"
    device = "cuda"
    source = "cuda_host"
    crosses = True

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return replace(super().compile(node, variant, ctx), launcher=HostLauncher.key)
