"""Layers that are plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.built_in_plugins import BuiltInPlugin
from tactix_tensorrt.api.enums import LayerType
from tactix_tensorrt.api.layer import ILayer

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.lowering import Lowering


class _PluginLayer(ILayer):
    """A plugin of a program's; a build runs clones of it."""

    @staticmethod
    def nameless(index: int, count: int) -> str:
        return f"_output_{index}"

    @property
    def plugin(self) -> object:
        """The program's own object."""
        return self.attributes["plugin"]

    def lower(self, emit: Lowering) -> Sequence[Value]:
        from tactix_tensorrt.plugin_steps.lowering import lowered
        from tactix_tensorrt.plugin_steps.views import view_of

        shapes = self.attributes.get("num_shape_inputs", 0)
        assert isinstance(shapes, int)
        tensors = len(self.inputs) - shapes
        given = [emit.input(i) for i in range(len(self.inputs))]
        if isinstance(self.plugin, BuiltInPlugin):
            return self.plugin.lower(emit, given)
        known = [emit.content(x, "sizes") for x in given[tensors:]]
        return lowered(view_of(self.plugin), given[:tensors], known, emit)


class IPluginV2Layer(_PluginLayer):
    TYPE = LayerType.PLUGIN_V2


class IPluginV3Layer(_PluginLayer):
    TYPE = LayerType.PLUGIN_V3
