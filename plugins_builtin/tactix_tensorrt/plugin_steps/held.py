"""A plugin in a network: what it said of itself before a build."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Scoped
from tactix_tensorrt.api.plugin_fields import DynamicPluginTensorDesc, described
from tactix_tensorrt.api.plugin_sizes import SizeTensor
from tactix_tensorrt.api.values import FROM_NATIVE, Dims
from tactix_tensorrt.plugin_steps.calling import PluginFailure
from tactix_tensorrt.plugin_steps.identity import Saved
from tactix_tensorrt.plugin_steps.views import PluginView

if TYPE_CHECKING:
    from tactix.contracts.graph import Node

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
        for value in node.outputs:
            check_sizes(self.view, tuple(_at(d, known) for d in value.spec.shape))
        self._saved = None
        self.view.configure(inputs, outputs)
        self.tactics = self.view.tactics()
        self.workspace = self.view.workspace(inputs, outputs)

    @property
    def aliases(self) -> list[list[int]]:
        """Outputs that have the memory of an input, with that."""
        pairs = [[i, self.view.aliased_input(i)] for i in range(self.view.num_outputs)]
        return [pair for pair in pairs if pair[1] >= 0]


def check_sizes(view: PluginView, shape: Shape) -> None:
    """Raises PluginFailure for a shape of an output that cannot be."""
    if any(isinstance(d, int) and d < 0 for d in shape):
        what = f"its {view.SIZES} gave the shape ({', '.join(map(str, shape))})"
        raise PluginFailure(what, who=view.who, do="Give sizes of 0 or more")


def _at(dim: Dim, ranges: Mapping[str, Range]) -> Dim:
    """A size at those that are tuned for; as it is where a symbol has none."""
    known = dims.symbols(dim) <= set(ranges)
    return _size(dim, ranges, ROWS.index("opt")) if known else dim


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
