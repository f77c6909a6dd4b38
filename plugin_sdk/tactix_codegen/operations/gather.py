"""Gather, GatherElements and GatherND: which slices of the data the indices choose.

Any movable dtype, any integer indices, linear format.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.copy import movable
from tactix_codegen.c.text import has_ctype

KINDS = ("tactix.Gather@1", "tactix.GatherElements@1", "tactix.GatherND@1")
"""Kinds of nodes that take slices so."""


@dataclass(frozen=True)
class GatherWork:
    """``slices`` of ``inner`` elements each, which lie together in the data and in the output.

    Indices stand for ``depth`` axes of the data, those from ``axis`` on; before them lie ``outer``
    places, for each of which ``each`` slices are taken. GatherElements takes single elements; along
    its other axes they keep their place.
    """

    node: Node
    layer: str
    data: TensorSpec
    indices: TensorSpec
    axis: int
    depth: int
    slices: Dim
    inner: Dim

    @property
    def outer(self) -> Dim:
        return dims.prod(self.data.shape[: self.axis])

    @property
    def each(self) -> Dim:
        if self.layer == "GatherND":
            return dims.prod(self.indices.shape[self.axis : -1])
        return self.indices.numel

    @property
    def sizes(self) -> Shape:
        """Of the axes that indices stand for."""
        return self.data.shape[self.axis : self.axis + self.depth]

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return self.data.dtype.itemsize


def work_of(node: Node, language: str) -> GatherWork | Reject:
    """What a node takes, or why a kernel cannot; ``language``: of the kernels."""
    data, indices = (v.spec for v in node.given[:2])
    if node.is_fused:
        return Reject("elements are moved, not computed: no epilogue")
    if not movable(data.dtype):
        return Reject(f"no elements of {data.dtype.value} in {language}")
    if not indices.dtype.is_int or not has_ctype(indices.dtype):
        return Reject(f"no indices of {indices.dtype.value} in {language}")
    return _work(node, data, indices)


def _work(node: Node, data: TensorSpec, indices: TensorSpec) -> GatherWork:
    layer = node.layer.name
    if layer == "GatherND":
        axis, depth = node.attrs.batch_dims, int(indices.shape[-1])  # type: ignore[arg-type]
        slices, inner = dims.prod(indices.shape[:-1]), dims.prod(data.shape[axis + depth :])
        return GatherWork(node, layer, data, indices, axis, depth, slices, inner)
    axis = node.attrs.axis % data.rank
    if layer == "GatherElements":
        return GatherWork(node, layer, data, indices, axis, 1, indices.numel, 1)
    slices, inner = dims.prod(data.shape[:axis]) * indices.numel, dims.prod(data.shape[axis + 1 :])
    return GatherWork(node, layer, data, indices, axis, 1, slices, inner)
