"""A plugin into a network: asked for its outputs' dtypes and sizes, and for what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tactix.base.dims import Dim, Shape, learn
from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix_tensorrt.api.enums import DataType
from tactix_tensorrt.api.plugin_fields import DynamicPluginTensorDesc
from tactix_tensorrt.api.plugin_sizes import DimsExprs, IDimensionExpr, IExprBuilder
from tactix_tensorrt.api.values import FROM_NATIVE, NATIVE
from tactix_tensorrt.plugin_steps import LAYER
from tactix_tensorrt.plugin_steps.calling import PluginFailure
from tactix_tensorrt.plugin_steps.held import Held, Range, check_sizes, ranged
from tactix_tensorrt.plugin_steps.layer import PluginAttrs, PluginLayer

if TYPE_CHECKING:
    from tactix.base.dtypes import DType
    from tactix.config import OptimizationProfile
    from tactix.contracts.graph import Node, Value
    from tactix.contracts.layer import Layer
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.plugin_steps.views import PluginView


class Adding(Protocol):
    """What adds tactix's layers in place of a plugin."""

    def layers(
        self, layer: Layer, inputs: Sequence[Value | None], **fields: object
    ) -> tuple[Value, ...]: ...

    def cast(self, x: Value, dtype: DType, /) -> Value: ...


def lowered(
    plugin: PluginView, inputs: Sequence[Value], shapes: Sequence[Sequence[Dim]], add: Adding
) -> list[Value]:
    """The outputs of a clone of the plugin. ``shapes``: the content of shape inputs.

    Where it does not take its inputs' dtypes, but 16-bit floats in place of 32-bit ones, it gets
    these. Raises NetworkError, PluginFailure.
    """
    view = plugin.clone()
    types = [FROM_NATIVE[v.spec.dtype] for v in inputs]
    made = view.output_types(types, [v.spec.rank for v in inputs])
    sizes = IExprBuilder(f"{view.identity.name}_{'_'.join(v.name for v in inputs)}")
    given = [_exprs(v.spec.shape) for v in inputs]
    found = view.output_sizes(given, [_exprs(s) for s in shapes], sizes)
    outputs = [_shape(view, exprs) for exprs in found]
    taken = _taken(view, inputs, outputs, [*types, *made])
    casted = [add.cast(v, NATIVE[t]) for v, t in zip(inputs, taken, strict=False)]
    runs = tuple(NATIVE[t] for t in taken[len(inputs) :])
    held = Held(view, [v.spec.dtype for v in casted], sizes.declared)
    attrs = PluginAttrs(held, tuple(outputs), runs)
    values = add.layers(PluginLayer(), casted, attrs=attrs)
    return [add.cast(v, NATIVE[t]) for v, t in zip(values, made, strict=True)]


def _exprs(shape: Sequence[Dim]) -> DimsExprs:
    return DimsExprs([IDimensionExpr(d) for d in shape])


def _shape(view: PluginView, exprs: object) -> Shape:
    """Raises PluginFailure for what is no list of sizes, and for one below 0."""
    if not isinstance(exprs, list | tuple) or not all(isinstance(e, IDimensionExpr) for e in exprs):
        what = f"a shape that its {view.SIZES} gave is {exprs!r:.80}"
        raise PluginFailure(what, who=view.who, do="Give a DimsExprs for each output")
    shape = tuple(e.size for e in exprs)
    check_sizes(view, shape)
    return shape


def _taken(
    view: PluginView, inputs: Sequence[Value], outputs: Sequence[Shape], types: Sequence[DataType]
) -> Sequence[DataType]:
    """The dtypes to run it at, inputs first. Raises NetworkError."""
    shapes = [*(v.spec.shape for v in inputs), *outputs]
    for asked in _choices(types):
        pairs = zip(asked, shapes, strict=True)
        ranges = [_ranged(TensorSpec(NATIVE[t], shape)) for t, shape in pairs]
        if view.takes(ranges, len(inputs)):
            return asked
    tried = " or ".join(", ".join(str(t) for t in asked) for asked in _choices(types))
    raise NetworkError(
        f"it takes no linear tensors of {tried}",
        who=view.who,
        why="its supports_format_combination says so",
        do="Let it take TensorFormat.LINEAR in these, or cast its inputs",
    )


def _ranged(spec: TensorSpec) -> DynamicPluginTensorDesc:
    return ranged(spec, {})


def _choices(types: Sequence[DataType]) -> Iterator[Sequence[DataType]]:
    yield types
    narrow = [DataType.HALF if t is DataType.FLOAT else t for t in types]
    if narrow != list(types):
        yield narrow


def held_in(network: NetworkDefinition) -> list[tuple[Node, Held]]:
    """Plugins of a network."""
    nodes = [n for n in network.nodes if n.layer.key == LAYER]
    return [(n, n.attrs.plugin) for n in nodes if isinstance(n.attrs, PluginAttrs)]


def configure(network: NetworkDefinition, profiles: Sequence[OptimizationProfile]) -> list[Held]:
    """Configure each plugin for a build at these sizes. Raises PluginFailure."""
    plugins = held_in(network)
    ranges = _ranges(network, profiles) if plugins else {}
    for node, held in plugins:
        held.configure(node, ranges)
    return [held for _, held in plugins]


def _ranges(
    network: NetworkDefinition, profiles: Sequence[OptimizationProfile]
) -> dict[str, Range]:
    """What sizes the inputs' symbols have: the widest range, the first profile's to tune for."""
    found: dict[str, Range] = {}
    for profile in profiles:
        rows: list[dict[str, int]] = [{}, {}, {}]
        for value in network.inputs:
            for row, sizes in zip(rows, profile.shapes.get(value.name, ()), strict=False):
                learn(value.spec.shape, sizes, row)
        for symbol in rows[0]:
            low, opt, high = (row[symbol] for row in rows)
            before = found.get(symbol, (low, opt, high))
            found[symbol] = (min(low, before[0]), before[1], max(high, before[2]))
    return found
