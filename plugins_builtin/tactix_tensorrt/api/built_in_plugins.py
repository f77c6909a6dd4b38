"""TensorRT's own plugins in the registry: what programs make of them becomes layers of tactix's.

What knows the operators imports tactix_onnx and numpy: that waits for a program that asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import PluginFieldType
from tactix_tensorrt.api.plugin_fields import PluginField, PluginFieldCollection
from tactix_tensorrt.api.plugins import IPluginCreator, IPluginV2DynamicExt, IPluginV3

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.lowering import Lowering
    from tactix_trtops.operator import Field, PluginOperator

TYPES = {
    "float": PluginFieldType.FLOAT32,
    "floats": PluginFieldType.FLOAT32,
    "int": PluginFieldType.INT32,
    "ints": PluginFieldType.INT32,
    "text": PluginFieldType.CHAR,
}
"""Of fields by what they are."""


class BuiltInPlugin(IPluginV2DynamicExt, IPluginV3):
    """A plugin that tactix has layers for: nothing in it is called."""

    def __init__(
        self, operator: PluginOperator, name: str, version: str, fields: Mapping[str, Field]
    ) -> None:
        super().__init__()
        self.operator, self.fields = operator, fields
        self.plugin_type, self.plugin_version = name, version
        self.num_outputs = operator.count(fields)

    def clone(self) -> BuiltInPlugin:
        """Itself: it has no state."""
        return self

    def lower(self, emit: Lowering, inputs: list[Value]) -> list[Value]:
        """The outputs of layers in place of it. Raises TactixError."""
        from tactix_trtops.node import added

        return emit.by(lambda net, name: added(net, self.operator, name, inputs, self.fields))


class BuiltInCreator(IPluginCreator):
    """Makes plugins of one name and version, by ``add_plugin_v2`` and ``add_plugin_v3`` alike."""

    def __init__(self, operator: PluginOperator, name: str, version: str) -> None:
        super().__init__()
        self.operator, self.name, self.plugin_version = operator, name, version
        self.field_names = PluginFieldCollection(
            PluginField(field, None, TYPES[kind]) for field, kind in operator.fields.items()
        )

    def create_plugin(
        self, name: str, field_collection: PluginFieldCollection, phase: object = None
    ) -> BuiltInPlugin:
        """Fields of other names are passed over, as by TensorRT. ``phase``: what plugins of version
        3 are told, too.
        """
        kinds = self.operator.fields
        given = {f.name: f for f in field_collection if f.name in kinds and f.data is not None}
        fields = {n: _value(f, kinds[n]) for n, f in given.items()}
        return BuiltInPlugin(self.operator, self.name, self.plugin_version, fields)


def _value(field: PluginField, kind: str) -> Field:
    import numpy as np

    data = field.data
    assert data is not None
    if kind == "text":
        return data.tobytes().decode().rstrip("\0")
    if field.type in (PluginFieldType.UNKNOWN, PluginFieldType.CHAR):  # bytes of TensorRT's type
        data = np.frombuffer(data.tobytes(), np.float32 if "float" in kind else np.int32)
    if kind == "floats":
        return data.astype(np.float32)
    numbers = [(float if kind == "float" else int)(n) for n in data]
    return numbers if kind == "ints" else numbers[0]


def creators() -> Iterator[BuiltInCreator]:
    """Those of every plugin of TensorRT's own that is known."""
    from tactix_trtops import operators

    for operator in operators():
        for name in operator.own:
            for version in operator.versions:
                yield BuiltInCreator(operator, name, version)


def read_as_plugins() -> set[tuple[str, str]]:
    """Domains and names of nodes that tactix reads as plugins of TensorRT."""
    from tactix_trtops import operators

    return {(d, name) for o in operators() for d in o.domains for name in o.names}
