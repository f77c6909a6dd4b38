"""The layer that a plugin is: what its outputs are follows from the plugin, asked once.

Every session finds it, so that nothing of TensorRT's API is imported before a plugin is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, TactixError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_tensorrt.plugin_steps import LAYER

if TYPE_CHECKING:
    from tactix_tensorrt.api.values import Array
    from tactix_tensorrt.plugin_steps.held import Held


BEYOND = "it holds a plugin of a program's, which no text says"
"""Why no example of it can be written down."""


@dataclass(frozen=True)
class PluginAttrs:
    """``shapes``, ``dtypes``: of the outputs."""

    plugin: Held
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[DType, ...] = ()


class PluginLayer(Layer[PluginAttrs]):
    """A program's plugin. No plan names the layer: steps say themselves which plugin they run."""

    key = LAYER
    Attrs = PluginAttrs
    beyond = BEYOND

    def infer(self, attrs: PluginAttrs, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        given = tuple(s.dtype for s in inputs if s is not None)
        if given != attrs.plugin.types:
            raise DTypeError("a plugin keeps its dtypes", who=attrs.plugin.view.who)
        pairs = zip(attrs.dtypes, attrs.shapes, strict=True)
        return [TensorSpec(dtype, shape) for dtype, shape in pairs]

    def reference(self, attrs: PluginAttrs, *inputs: Array | None) -> tuple[Array, ...]:
        """By the plugin itself, which runs its first tactic. Raises ExecutionError."""
        from tactix_tensorrt import device
        from tactix_tensorrt.plugin_steps.device_arrays import OnDevice, OnHost
        from tactix_tensorrt.plugin_steps.running import Task, computed

        held = attrs.plugin
        specs = [TensorSpec(*pair) for pair in zip(attrs.dtypes, attrs.shapes, strict=True)]
        task = Task(specs, held.sizes, held.aliases, held.workspace)
        place = OnDevice() if device.chosen() == "cuda" else OnHost()
        view = held.view.attached()
        view.choose(held.tactics[0] if held.tactics else 0)
        given = [x for x in inputs if x is not None]
        try:
            return tuple(computed(view, task, given, {}, place))
        finally:
            with suppress(TactixError):
                view.end()

    def races(self, attrs: PluginAttrs) -> bool:
        """Where there is something to choose: a plugin may read memory by its inputs' content."""
        return len(attrs.plugin.tactics) > 1
