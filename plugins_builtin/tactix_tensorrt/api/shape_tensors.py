"""Which tensors tell layers sizes and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import LayerType

if TYPE_CHECKING:
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.tensor import ITensor

TOLD: Mapping[LayerType, Sequence[int]] = {
    LayerType.SHUFFLE: (1,),
    LayerType.SLICE: (1, 2, 3, 5),
    LayerType.RESIZE: (1,),
    LayerType.TOPK: (1,),
    LayerType.FILL: (0,),
}
"""Inputs of layers that are sizes or bounds."""


def tells_sizes(layers: Sequence[ILayer], tensor: ITensor) -> bool:
    """Whether a layer takes sizes or bounds from it, be it by a cast."""
    for layer in layers:
        if any(t is tensor for t in _told(layer)):
            return True
        cast = layer.type is LayerType.CAST and layer.inputs[0] is tensor
        if cast and tells_sizes(layers, layer.outputs[0]):
            return True
    return False


def _told(layer: ILayer) -> Sequence[ITensor | None]:
    """Of tactix's layers that are told sizes, which a parser adds, the inputs after the data are
    these.
    """
    node = layer.parsed_node
    if node is None:
        return [layer.get_input(i) for i in TOLD.get(layer.type, ())]
    if not node.layer.name.startswith("Dynamic"):
        return ()
    return layer.inputs[1:] or layer.inputs
