"""Sizes that the content of an input on the host tells: they are known before a run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.base.dims import symbol_name
from tactix.base.dtypes import DType
from tactix_tensorrt.cuda_stand_in import addresses

if TYPE_CHECKING:
    from tactix.contracts.graph import Node, Value
    from tactix.network.definition import NetworkDefinition

SIZES = {"DynamicReshape": 1, "DynamicExpand": 1, "DynamicFill": 0}
"""Which input of a layer is the shape of its output."""
SAME = ("Cast", "Identity", "Reshape")
"""Layers that keep the elements of a vector, and their order."""
INTEGERS = {DType.INT32: ctypes.c_int32, DType.INT64: ctypes.c_int64}


@dataclass(frozen=True)
class ToldSize:
    """An element of an input."""

    name: str
    index: int

    def read(self, address: int, dtype: DType) -> int:
        """What lies there, 0 where nothing does. ``address``: the input's."""
        kind = INTEGERS[dtype]
        place = address + self.index * ctypes.sizeof(kind)
        if not address or not addresses.is_mapped(place, ctypes.sizeof(kind)):
            return 0
        return kind.from_address(place).value


def of(network: NetworkDefinition) -> dict[str, ToldSize]:
    """By symbol. What is -1 or 0 tells no size."""
    return {s: found for node in network.nodes for s, found in _of_node(network, node)}


def _of_node(network: NetworkDefinition, node: Node) -> Iterator[tuple[str, ToldSize]]:
    at = SIZES.get(node.layer.name)
    if at is None:
        return
    sizes, shape = node.given[at], node.outputs[0].spec.shape
    count = sizes.spec.numel
    if not isinstance(count, int):
        return
    for i, d in enumerate(shape):
        symbol, own = symbol_name(d), i - len(shape) + count
        found = _element(network, sizes, own) if symbol and own >= 0 else None
        if symbol and found and not _broadcast(node, i):
            yield symbol, found


def _broadcast(node: Node, axis: int) -> bool:
    """Whether the size may be that of the data, which is open, where a 1 is told."""
    if node.layer.name != "DynamicExpand":
        return False
    shape, own = node.outputs[0].spec.shape, node.given[0].spec.shape
    i = axis - len(shape) + len(own)
    return i >= 0 and own[i] != 1


def _element(network: NetworkDefinition, value: Value, i: int) -> ToldSize | None:
    """Where an element of a vector comes from, None unless it is an input's."""
    node = value.producer
    if node is None:
        given = value in network.inputs and value.spec.dtype in INTEGERS
        return ToldSize(value.name, i) if given else None
    if node.layer.name in SAME:
        return _element(network, node.given[0], i)
    if node.layer.name == "Concat":
        for part in node.given:
            count = part.spec.numel
            if not isinstance(count, int):
                return None
            if i < count:
                return _element(network, part, i)
            i -= count
    return None


def entry(sizes: Mapping[str, ToldSize]) -> dict[str, list[object]]:
    """Of a plan's facts."""
    return {symbol: [size.name, size.index] for symbol, size in sizes.items()}
