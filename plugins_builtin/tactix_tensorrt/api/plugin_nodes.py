"""Nodes of ONNX models that name a plugin: a converter for each creator that is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from tactix.base.dims import Dim
from tactix.base.errors import ModelImportError, TactixError
from tactix.contracts.importer import ANY_DOMAIN, Converter
from tactix_tensorrt.api.built_in_plugins import BuiltInCreator, read_as_plugins
from tactix_tensorrt.api.enums import (
    NetworkDefinitionCreationFlag,
    QuickPluginCreationRequest,
)
from tactix_tensorrt.api.plugin_fields import PluginField, PluginFieldCollection
from tactix_tensorrt.api.plugin_registry import get_plugin_registry

if TYPE_CHECKING:
    import onnx

    from tactix.base.dtypes import DType
    from tactix.contracts.graph import Value
    from tactix.contracts.layer import Layer
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.network import INetworkDefinition

FORMAT = "onnx"
Reader = Callable[..., object]
Shapes = Mapping[str, Sequence[Dim | str | None]]
PREFERENCES = {
    "PREFER_JIT_PYTHON_PLUGINS": QuickPluginCreationRequest.PREFER_JIT,
    "PREFER_AOT_PYTHON_PLUGINS": QuickPluginCreationRequest.PREFER_AOT,
}
"""What flags of a network say of plugins with two implementations."""
OWN = ("plugin_version", "plugin_namespace", "aot")
"""Attributes that say which plugin it is; all others may be fields."""


class NodeContext(Protocol):
    """What is used of what converters get."""

    op: str
    node: object
    inputs: Sequence[Value | None]

    def attr(self, name: str, default: object = None) -> object: ...
    def has_attr(self, name: str) -> bool: ...
    def ignore(self, *names: str) -> None: ...
    def unread(self) -> list[str]: ...
    def fail(self, why: str, do: str = "") -> NoReturn: ...
    def layers(
        self, layer: Layer, inputs: Sequence[Value | None], **fields: object
    ) -> tuple[Value, ...]: ...
    def cast(self, x: Value, dtype: DType, /) -> Value: ...


class PluginNodes:
    """Reads models for a network of TensorRT's."""

    def __init__(self, network: INetworkDefinition) -> None:
        self._network = network

    def read(
        self, source: str | bytes | onnx.ModelProto, reshaped: Shapes | None = None
    ) -> NetworkDefinition:
        """tactix's network of a model. ``reshaped``: shapes of inputs in place of the model's.
        Raises ModelImportError, TactixError.
        """
        native = self._network.builder.native
        return native.import_model(source, converters=self._converters(), reshaped=reshaped)

    def _converters(self) -> list[Converter]:
        """By names in any domain, so that no operator that tactix has becomes a plugin; but a
        program's own plugin is taken before one of TensorRT's that tactix reads.
        """
        own, built_in = _registered()
        readers = {**built_in, **dict.fromkeys(own, self._convert)}
        places = {(ANY_DOMAIN, name) for name in readers}
        places |= {(domain, name) for domain, name in read_as_plugins() if name in own}
        return [Converter(FORMAT, f"{d}::{name}", readers[name]) for d, name in sorted(places)]

    def _convert(self, ctx: NodeContext, node: object) -> list[Value]:
        """The outputs of the plugin that a node names. Raises ModelImportError."""
        from tactix_tensorrt.plugin_steps.lowering import lowered
        from tactix_tensorrt.plugin_steps.views import view_of

        given = [v for v in ctx.inputs if v is not None]
        if len(given) != len(ctx.inputs):
            ctx.fail("plugins have no optional inputs")
        try:
            view = view_of(self._plugin(ctx))
            return lowered(view, given, (), ctx)
        except ModelImportError:
            raise
        except TactixError as e:
            ctx.fail(str(e))

    def _plugin(self, ctx: NodeContext) -> object:
        from tactix_tensorrt.plugin_steps.identity import Identity, made_for_a_build

        version, namespace = ctx.attr("plugin_version", "1"), ctx.attr("plugin_namespace", "")
        identity = Identity(ctx.op, str(version), str(namespace))
        creator = identity.creator()
        declared: Sequence[PluginField] = getattr(creator, "field_names", ())
        fields = [_field(f, ctx.attr(f.name)) for f in declared if ctx.has_attr(f.name)]
        aot = bool(ctx.attr("aot")) if ctx.has_attr("aot") else None
        request = asked(self._network, aot)
        ctx.ignore(*OWN, *ctx.unread())
        return made_for_a_build(identity, creator, PluginFieldCollection(fields), request)


def _registered() -> tuple[set[str], dict[str, Reader]]:
    """Names of a program's own plugins; of TensorRT's own, with what reads a node of each."""
    creators = get_plugin_registry().all_creators
    built_in: dict[str, Reader] = {
        c.name: c.operator.from_node for c in creators if isinstance(c, BuiltInCreator)
    }
    return {c.name for c in creators if not isinstance(c, BuiltInCreator)}, built_in


def plugin_names() -> set[str]:
    """Of all creators that are registered."""
    return {c.name for c in get_plugin_registry().all_creators}


def asked(network: INetworkDefinition, aot: bool | None) -> QuickPluginCreationRequest:
    """Which implementation of a plugin: by its compiled kernels or not, else as the network's flags
    say.
    """
    if aot is not None:
        strict = QuickPluginCreationRequest
        return strict.STRICT_AOT if aot else strict.STRICT_JIT
    flags = NetworkDefinitionCreationFlag.__members__  # TensorRT 8 has no such flags
    said = (r for name, r in PREFERENCES.items() if name in flags and network.get_flag(flags[name]))
    return next(said, QuickPluginCreationRequest.UNKNOWN)


def _field(declared: PluginField, value: object) -> PluginField:
    """A node's attribute, in the type that the creator declares."""
    import numpy as np

    data = value.encode() if isinstance(value, str) else np.asarray(value).reshape(-1)
    return PluginField(declared.name, data, declared.type)
