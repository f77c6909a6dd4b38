"""The layer that a plugin is: what its outputs are follows from the plugin, asked once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, ExecutionError, TactixError
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Scoped
from tactix.contracts.layer import Layer
from tactix_tensorrt import device
from tactix_tensorrt.api.plugin_fields import DynamicPluginTensorDesc, described
from tactix_tensorrt.api.plugin_sizes import SizeTensor
from tactix_tensorrt.api.values import FROM_NATIVE, Dims
from tactix_tensorrt.plugin_steps import LAYER
from tactix_tensorrt.plugin_steps.identity import Saved
from tactix_tensorrt.plugin_steps.views import PluginView

if TYPE_CHECKING:
    from numpy.random import Generator

    from tactix.contracts.graph import Node
    from tactix_tensorrt.api.values import Array

ROWS = ("min", "opt", "max")

Range = tuple[int, int, int]
"""Lowest, tuned for, highest size."""


class Held(Scoped):
    """A plugin in a network. ``types``: dtypes that its inputs have; ``sizes``: what its outputs
    tell; ``tactics``, ``workspace``: what it said when it was configured, before a build.
    """

    def __init__(self, view: PluginView, types: Sequence[DType], sizes: Sequence[SizeTensor]):
        self.view, self.types, self.sizes = view, tuple(types), tuple(sizes)
        self.tactics: list[int] = []
        self.workspace = 0
        self._saved: Saved | None = None
        self._own = uuid.uuid4().hex

    @property
    def saved(self) -> Saved:
        """The plugin as data, asked for once a build. Raises PluginFailure."""
        if self._saved is None:
            self._saved = self.view.saved()
        return self._saved

    @property
    def name(self) -> str:
        """By which timings are found again: without an id for that they are of this object alone,
        as a program's code may have changed.
        """
        return f"{self.saved.digest} {self.view.timing_id or self._own}"

    def symbols(self) -> frozenset[str]:
        return frozenset()

    def at(self, env: Mapping[str, int]) -> Held:
        return self

    def configure(self, node: Node, ranges: Mapping[str, Range]) -> None:
        """Tell it the sizes that it will run at, and ask for tactics and memory. Raises
        PluginFailure.
        """
        known = {**ranges, **_told(self.sizes, ranges)}
        inputs = [ranged(v.spec, known) for v in node.given]
        outputs = [ranged(v.spec, known) for v in node.outputs]
        self._saved = None
        self.view.configure(inputs, outputs)
        self.tactics = self.view.tactics()
        self.workspace = max(0, self.view.workspace(inputs, outputs))

    @property
    def aliases(self) -> list[list[int]]:
        """Outputs that have the memory of an input, with that."""
        pairs = [[i, self.view.aliased_input(i)] for i in range(self.view.num_outputs)]
        return [pair for pair in pairs if pair[1] >= 0]


def _told(sizes: Sequence[SizeTensor], ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges of what size tensors tell."""
    return {s.symbol: (0, _size(s.opt, ranges, 1), _size(s.upper, ranges, 2)) for s in sizes}


def _size(dim: Dim, ranges: Mapping[str, Range], row: int) -> int:
    """-1 where a symbol has no range."""
    if not dims.symbols(dim) <= set(ranges):
        return -1
    return dims.evaluate(dim, {s: ranges[s][row] for s in dims.symbols(dim)})


def ranged(spec: TensorSpec, ranges: Mapping[str, Range]) -> DynamicPluginTensorDesc:
    """A tensor as a plugin is told of it in a build."""
    out = DynamicPluginTensorDesc()
    fixed = [-1 if dims.symbols(d) else dims.evaluate(d, {}) for d in spec.shape]
    out.desc = described(fixed, FROM_NATIVE[spec.dtype])
    for row, name in enumerate(ROWS):
        setattr(out, name, Dims([_size(d, ranges, row) for d in spec.shape]))
    return out


@dataclass(frozen=True)
class PluginAttrs:
    """``shapes``, ``dtypes``: of the outputs."""

    plugin: Held
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[DType, ...] = field(default=())


class PluginLayer(Layer[PluginAttrs]):
    """A program's plugin. No plan names the layer: steps say themselves which plugin they run."""

    key = LAYER
    Attrs = PluginAttrs

    def infer(self, attrs: PluginAttrs, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        given = tuple(s.dtype for s in inputs if s is not None)
        if given != attrs.plugin.types:
            raise DTypeError("a plugin keeps its dtypes", who=attrs.plugin.view.who)
        pairs = zip(attrs.dtypes, attrs.shapes, strict=True)
        return [TensorSpec(dtype, shape) for dtype, shape in pairs]

    def reference(self, attrs: PluginAttrs, *inputs: Array | None) -> tuple[Array, ...]:
        """By the plugin itself, which runs its first tactic. Raises ExecutionError."""
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

    def sample(
        self, attrs: PluginAttrs, inputs: Sequence[TensorSpec | None], rng: Generator
    ) -> list[object]:
        """Random, where there is something to choose: a plugin may read memory by its inputs'
        content. Raises ExecutionError for one without tactics.
        """
        if len(attrs.plugin.tactics) < 2:
            raise ExecutionError("there is one tactic: nothing to time", who=attrs.plugin.view.who)
        return super().sample(attrs, inputs, rng)
