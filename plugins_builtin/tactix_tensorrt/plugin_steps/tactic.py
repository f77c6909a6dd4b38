"""A plugin's own tactics as variants of one of tactix's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_tensorrt.plugin_steps import CUDA, HOST, LAYER
from tactix_tensorrt.plugin_steps.layer import BEYOND, PluginAttrs

if TYPE_CHECKING:
    from tactix_tensorrt.plugin_steps.held import Held


class PluginTactic(Tactic["Held"]):
    """Addresses of the host for a program's plugin."""

    key = HOST
    implements = (LAYER,)
    beyond = BEYOND
    source = "tensorrt_plugin"
    produces = True
    breadth = 100

    def match(self, node: Node, device: DeviceProperties) -> Held | Reject:
        attrs = node.attrs
        if not isinstance(attrs, PluginAttrs):
            return Reject("it runs a plugin alone")
        return Reject("its kernels are compiled") if attrs.plugin.view.kernels else attrs.plugin

    def variants(self, held: Held, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(tactic=t) for t in held.tactics] or [Variant()]

    def compile(self, held: Held, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        tactic = variant.number("tactic") if variant.knobs else 0
        sizes = [[s.output, s.symbol, dims.to_json(s.upper)] for s in held.sizes]
        params: dict[str, object] = {**held.saved.to_json(), "tactic": tactic}
        params |= {"in_place": held.aliases, "sizes": sizes, "workspace": held.workspace}
        own = 0 if sizes else held.workspace
        return KernelArtifact(self.key, params=params, workspace=own)


class CudaPluginTactic(PluginTactic):
    """Addresses of a GPU, and a stream."""

    key = CUDA
    device = "cuda"
