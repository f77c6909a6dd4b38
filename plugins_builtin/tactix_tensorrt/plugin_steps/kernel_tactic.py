"""Kernels that a plugin compiles in a build: steps that need the plugin no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tactix.base.dims import Dim
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    scalar,
    tensor_in,
    tensor_out,
)
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_tensorrt.plugin_steps import KERNELS, LAYER
from tactix_tensorrt.plugin_steps.layer import BEYOND, PluginAttrs
from tactix_tensorrt.plugin_steps.ptx import unstated

if TYPE_CHECKING:
    from tactix_tensorrt.plugin_steps.held import Held
    from tactix_tensorrt.quick.kernels import KernelLaunchParams
    from tactix_tensorrt.quick.sizes import SymIntExpr
    from tactix_tensorrt.quick.template import QuickKernelPlugin
    from tactix_tensorrt.quick.tensors import TensorDesc

CUBIN = "tactix.cuda.cubin@1"
"""The launcher, which loads PTX as well: the driver compiles it."""


@dataclass(frozen=True)
class Compiled:
    """A plugin and its node."""

    held: Held
    plugin: QuickKernelPlugin
    node: Node


class KernelTactic(Tactic[Compiled]):
    """PTX of a program's, by its ``aot_impl``."""

    key = KERNELS
    implements = (LAYER,)
    beyond = BEYOND
    device = "cuda"
    source = "tensorrt_plugin"
    breadth = 100

    def match(self, node: Node, device: DeviceProperties) -> Compiled | Reject:
        attrs = node.attrs
        held = attrs.plugin if isinstance(attrs, PluginAttrs) else None
        if held is None or not held.view.kernels:
            return Reject("it compiles no kernels")
        if held.sizes or held.aliases:
            return Reject("kernels of aot_impl have memory of their own, and tell no sizes")
        return Compiled(held, cast("QuickKernelPlugin", held.view.plugin), node)

    def variants(self, work: Compiled, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(tactic=t) for t in work.held.tactics] or [Variant()]

    def compile(self, work: Compiled, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        tactic = variant.number("tactic") if variant.knobs else 0
        node = work.node
        inputs, outputs = map(_described, node.given), map(_described, node.outputs)
        made = work.plugin.compiled([*inputs], [*outputs], tactic)
        reads = (tensor_in(i) for i in range(len(node.given)))
        writes = (tensor_out(i) for i in range(len(node.outputs)))
        numbers = (scalar(_known(n)) for n in made.numbers)
        arguments = (*reads, *numbers, *writes)
        nulls = (scalar(0),) * unstated(made.code, made.name, len(arguments))
        launch = _launch(made.launch)
        started = Launch((*arguments, *nulls), launch[:3], launch[3:6], (), launch[6])
        code = Binary(made.code + b"\0", made.name)
        return KernelArtifact(CUBIN, (started,), code)


def _described(value: Value) -> TensorDesc:
    from tactix_tensorrt.api.values import FROM_NATIVE
    from tactix_tensorrt.plugin_steps.held import ranged
    from tactix_tensorrt.quick.sizes import ShapeExpr, ShapeExprs
    from tactix_tensorrt.quick.tensors import TensorDesc

    sizes = ShapeExprs.from_tuple(ShapeExpr.of(d) for d in value.spec.shape)
    out = TensorDesc(sizes, FROM_NATIVE[value.spec.dtype])
    out.tell(ranged(value.spec, {}))
    return out


def _launch(params: KernelLaunchParams) -> tuple[Dim, ...]:
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")
    return tuple(_known(getattr(params, name)) for name in names)


def _known(number: SymIntExpr) -> Dim:
    """Raises ValueError for a fake one."""
    if number.size is None:
        raise ValueError("a number of a launch is fake: compute it of the sizes that it is given")
    return number.size
