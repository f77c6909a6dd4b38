"""Reformat in CUDA: between linear and nhwc, and plain copies; any dtype of 1, 2, 4 or 8 bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.cuda import copies, text
from tactix_cpu.tactics.move import reformat as c_reformat


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ReformatTactic()]


class ReformatTactic(Tactic):
    """The formats are those of the node's attributes; channels and pixels swap in tiles."""

    key = "tactix.cuda_reformat@1"
    implements = ("tactix.Reformat@1",)
    device = "cuda"
    source = "cuda_c"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        spec, a = node.given[0].spec, node.attrs
        if spec.dtype.on_host or not c_copy.movable(spec.dtype):
            return Reject(f"no elements of {spec.dtype.value} in CUDA")
        if not a.source.fits(spec.rank) or not a.target.fits(spec.rank):
            return Reject(f"a tensor of rank {spec.rank} cannot be {a.source.name} or {a.target.name}")
        if a.source != a.target and max(a.source.lanes, a.target.lanes) > 1:
            return Reject(f"no reformat from {a.source.name} to {a.target.name}")
        return [Variant.of([a.source], [a.target])]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        spec, a = node.given[0].spec, node.attrs
        part = c_reformat._plain(node, a.source, a.target)
        return copies.kernel(text.Args(node), [part], spec.dtype.itemsize, ctx)
