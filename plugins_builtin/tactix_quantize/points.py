"""Where a network can become integers: which layers, which tensors that they read.

Products with constant weights are what int8 makes faster. What else reads their tensors and only
moves or adds numbers joins them where that keeps tensors small: a max pooling before one of them,
the other term of a sum behind a convolution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition

INT8 = "int8"


@dataclass(frozen=True)
class WeightedProduct:
    """A layer that multiplies a tensor with constant weights. ``axis``: of the output channels in
    the weights.
    """

    node: Node
    axis: int

    @property
    def activation(self) -> Value:
        found = self.node.inputs[0]
        assert found is not None
        return found

    @property
    def weights(self) -> Value:
        return self.node.given[1]

    @property
    def constants(self) -> list[Value]:
        return [v for v in (self.weights, self.bias) if v is not None]

    @property
    def bias(self) -> Value | None:
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None


@dataclass(frozen=True)
class Points:
    """``reads``: of each tensor that becomes integers, the layers that read it so, and as which
    input. ``pooled``: tensors that have the range of another one, of which they are the maxima.
    """

    products: tuple[WeightedProduct, ...]
    reads: Mapping[Value, tuple[tuple[Node, int], ...]]
    pooled: Mapping[Value, Value]

    @property
    def observed(self) -> list[Value]:
        """Tensors whose ranges must be known."""
        return [v for v in self.reads if v not in self.pooled]

    def known(self, scales: Collection[Value]) -> Points:
        """Without tensors that have no scale, and products of these."""
        products = tuple(p for p in self.products if p.activation in scales)
        return Points(
            products, {v: uses for v, uses in self.reads.items() if v in scales}, self.pooled
        )


@dataclass(frozen=True)
class Wishes:
    """Which layers are to be int8, by patterns of their names; the last that fits counts.
    ``preferred``: patterns that need not be fulfilled.
    """

    precisions: Mapping[str, str]
    preferred: frozenset[str] = frozenset()

    def of(self, node: Node) -> str:
        """The precision that is wished for a layer; empty if none."""
        names = (node.name, *node.origin)
        fit = [p for p in self.precisions if any(fnmatchcase(n, p) for n in names)]
        return self.precisions[fit[-1]] if fit else ""

    def check(self, products: Collection[WeightedProduct]) -> None:
        """Raises ConfigError for a wish of int8 that no layer of them fulfils."""
        done = {p.node for p in products}
        for pattern, precision in self.precisions.items():
            alone = Wishes({pattern: precision})
            if (
                precision == INT8
                and pattern not in self.preferred
                and not any(alone.of(n) for n in done)
            ):
                why = (
                    "only products with constant float32 weights can be int8, and none is called so"
                )
                do = "Take the wish back, or give the name of such a layer"
                raise ConfigError("unfulfilled layer precision", who=pattern, why=why, do=do)


def unusable(network: NetworkDefinition) -> list[tuple[WeightedProduct, Value]]:
    """Products that stay float for what is not finite in their weights or bias, with that."""
    found = [p for n in network.nodes if (p := product_of(n)) is not None]
    return [(p, v) for p in found for v in p.constants if not np.isfinite(v.array).all()]


def product_of(node: Node) -> WeightedProduct | None:
    """The layer as a product that integers can compute; None if it is none."""
    name, inputs = node.layer.name, node.inputs
    if name not in ("Convolution", "Gemm", "MatMul") or any(v is None for v in inputs[:2]):
        return None
    floats = all(v.spec.dtype is DType.FP32 for v in node.given)
    x, w = node.given[:2]
    if not floats or x.const is not None or w.const is None or not w.const.size:
        return None
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is not None and bias.const is None:
        return None
    if name == "Convolution":
        return WeightedProduct(node, 0)
    a = node.attrs
    plain = name == "MatMul" or (not a.transA and a.alpha == 1 and a.beta == 1)
    if not plain or w.spec.rank != 2 or x.spec.rank < 2:
        return None
    return WeightedProduct(node, 0 if name == "Gemm" and a.transB else 1)


def is_quantized(network: NetworkDefinition) -> bool:
    """Whether the model says itself what is quantised."""
    return any(n.layer.name in ("QuantizeLinear", "DequantizeLinear") for n in network.nodes)


def points(network: NetworkDefinition, wishes: Wishes, left: Collection[str] = ()) -> Points:
    """Where this network becomes integers, but for layers of which another precision is wished and
    those whose names are ``left``. Raises ConfigError for wishes that cannot be fulfilled.
    """
    all_of_them = [p for n in network.nodes if (p := product_of(n)) is not None]
    broken = {p.node for p, _ in unusable(network)}
    products = tuple(
        p
        for p in all_of_them
        if wishes.of(p.node) in ("", INT8) and p.node.name not in left and p.node not in broken
    )
    wishes.check(products)
    reads: dict[Value, list[tuple[Node, int]]] = {}
    for p in products:
        reads.setdefault(p.activation, []).append((p.node, 0))
    pooled = dict(_pools(reads))
    for below in pooled.values():
        reads.setdefault(below, [])
    for v, below in pooled.items():
        assert v.producer is not None
        reads[below].append((v.producer, 0))
    made = {p.node for p in products if p.node.layer.name == "Convolution"}
    for node, i in _terms(network, made, reads):
        reads.setdefault(node.given[i], []).append((node, i))
    return Points(products, {v: tuple(uses) for v, uses in reads.items()}, pooled)


def _pools(read: Collection[Value]) -> Iterator[tuple[Value, Value]]:
    """Tensors made by a max pooling, with what they are the maxima of."""
    for v in read:
        pool = v.producer
        if pool is not None and pool.layer.name == "MaxPool" and len(pool.outputs) == 1:
            below = pool.given[0]
            if below.const is None and below.spec.dtype is DType.FP32:
                yield v, below


def _terms(
    network: NetworkDefinition, convolutions: Collection[Node], read: Collection[Value]
) -> Iterator[tuple[Node, int]]:
    """Sums of a convolution and a tensor that is integers anyway, or is another convolution's: the
    place of that tensor. The convolution that comes last computes the sum.
    """
    users = network.users()
    for node in network.nodes:
        if node.layer.name != "Add" or len({v.spec.shape for v in node.given}) != 1:
            continue
        behind = [v.producer if v.producer in convolutions else None for v in node.given]
        alone = [
            n is not None and len(users[v]) == 1 and not network.is_output(v)
            for n, v in zip(behind, node.given, strict=True)
        ]
        if not any(alone):
            continue
        last = max((i for i in (0, 1) if alone[i]), key=lambda i: _place(network, behind[i]))
        other = 1 - last
        if node.given[other] in read or behind[other] is not None:
            yield node, other


def _place(network: NetworkDefinition, node: Node | None) -> float:
    return -1.0 if node is None else network.position(node)
