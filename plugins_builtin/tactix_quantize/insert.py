"""QuantizeLinear and DequantizeLinear put into a network, as a model could have brought them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tactix.base.arrays import Array
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix_quantize.numbers import INTEGERS, NarrowNumbers, NarrowScale, NarrowWeights
from tactix_quantize.points import Points, WeightedProduct


@dataclass(frozen=True)
class ProductConstants:
    """Weights of a product in the ``numbers`` that it reads, and its bias as it was."""

    weights: NarrowWeights
    bias: Array | None
    numbers: NarrowNumbers


def constants_of(
    p: WeightedProduct, numbers: NarrowNumbers = INTEGERS, per_channel: bool = True
) -> ProductConstants:
    """``per_channel``: whether each output channel has a scale."""
    bias = None if p.bias is None else p.bias.array
    weights = numbers.weights(p.weights.array, p.axis, per_channel)
    return ProductConstants(weights, bias, numbers)


def insert(
    network: NetworkDefinition,
    found: Points,
    scales: Mapping[Value, NarrowScale],
    constants: Callable[[WeightedProduct], ProductConstants] = constants_of,
) -> dict[str, list[str]]:
    """Let the points of a network, which is changed, read 8 bits; ``scales``: of every tensor that
    becomes so. Gives the layers that each product became, by its name: itself, and the
    rounding of its input at the first that reads it.
    """
    made = {p.node.name: [p.node.name] for p in found.products}
    for p in found.products:
        _weigh(network, p, constants(p), scales[p.activation])
    for v, uses in found.reads.items():
        read = _there_and_back(network, v, scales[v], uses[0][0])
        first = next((node.name for node, _ in uses if node.name in made), None)
        if first is not None:
            made[first] += [n.name for n in _roundings(read)]
        for node, i in uses:
            _read(node, i, read)
    return made


def _there_and_back(network: NetworkDefinition, v: Value, a: NarrowScale, before: Node) -> Value:
    """The tensor rounded to its numbers of 8 bits."""
    scale = network.add_constant(np.asarray(a.scale), f"{v.name}/scale")
    zero = network.add_constant(np.asarray(a.zero, a.dtype.numpy), f"{v.name}/zero")
    place = network.position(before)
    (whole,) = network.add_layer(
        "tactix.QuantizeLinear",
        [v, scale, zero],
        f"{v.name}/quantize",
        before.origin,
        position=place,
        dtype=a.dtype,
    )
    (out,) = network.add_layer(
        "tactix.DequantizeLinear",
        [whole, scale, zero],
        f"{v.name}/dequantize",
        before.origin,
        position=place,
    )
    return out


def _roundings(read: Value) -> Iterator[Node]:
    """What made a tensor of ``_there_and_back``."""
    v = read
    for _ in range(2):
        assert v.producer is not None
        yield v.producer
        v = v.producer.given[0]


def _weigh(
    network: NetworkDefinition, p: WeightedProduct, constants: ProductConstants, a: NarrowScale
) -> None:
    """Weights of 8 bits, and the bias as int32 where it is that."""
    made, bias = constants.weights, constants.bias
    _read(p.node, 1, _stored(network, p.weights.name, made.stored, made.scales, p))
    if p.bias is None or bias is None:
        return
    units = made.scales * a.scale
    if (
        bias.shape == made.stored.shape[p.axis : p.axis + 1]
        and (whole := constants.numbers.bias(bias, units)) is not None
    ):
        _read(p.node, 2, _stored(network, p.bias.name, whole, units, p, axis=0))


def _stored(
    network: NetworkDefinition,
    name: str,
    narrow: Array,
    scales: Array,
    p: WeightedProduct,
    axis: int | None = None,
) -> Value:
    """A constant, read as float32."""
    stored = network.add_constant(narrow, f"{name}/{narrow.dtype}")
    scale = network.add_constant(scales, f"{stored.name}/scale")
    (out,) = network.add_layer(
        "tactix.DequantizeLinear",
        [stored, scale],
        f"{stored.name}/dequantize",
        p.node.origin,
        position=network.position(p.node),
        axis=p.axis if axis is None else axis,
    )
    return out


def _read(node: Node, i: int, v: Value) -> None:
    node.inputs = (*node.inputs[:i], v, *node.inputs[i + 1 :])
