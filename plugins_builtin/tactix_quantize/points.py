"""Where a network can become numbers of 8 bits: which layers, which tensors that they read.

Products with constant weights are what 8 bits make faster. What else reads their tensors and only
moves or adds numbers joins them where that keeps tensors small: a max pooling before one of them,
the other term of a sum behind a convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix_quantize.numbers import INTEGERS, NarrowNumbers

KINDS = frozenset({
    "Convolution", "ConvTranspose", "DeformConv", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN",
})  # fmt: skip
"""Layers that multiply and add: those are counted of which some read 8 bits."""
NOT_FINITE = "its weights are not finite"
NO_RANGE = "its input has no range"


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
    """``reads``: of each tensor that becomes 8 bits, the layers that read it so, and as which
    input. ``pooled``: tensors that have the range of another one, of which they are the maxima.
    ``wide``: why other products stay float, by their names.
    """

    products: tuple[WeightedProduct, ...]
    reads: Mapping[Value, tuple[tuple[Node, int], ...]]
    pooled: Mapping[Value, Value]
    wide: Mapping[str, str] = field(default_factory=dict)

    @property
    def observed(self) -> list[Value]:
        """Tensors whose ranges must be known."""
        return [v for v in self.reads if v not in self.pooled]

    def known(self, scales: Collection[Value]) -> Points:
        """Without tensors that have no scale, and products of these."""
        products = tuple(p for p in self.products if p.activation in scales)
        reads = {v: uses for v, uses in self.reads.items() if v in scales}
        lost = {p.node.name: NO_RANGE for p in self.products if p.activation not in scales}
        return replace(self, products=products, reads=reads, wide={**self.wide, **lost})


@dataclass(frozen=True)
class Wishes:
    """Which layers are to be of 8 bits, by patterns of their names; the last that fits counts.
    ``preferred``: patterns that need not be fulfilled. ``narrow``: the precision of 8 bits that the
    build allows, int8 or fp8.
    """

    precisions: Mapping[str, str]
    preferred: frozenset[str] = frozenset()
    narrow: str = INTEGERS.name

    def of(self, node: Node) -> str:
        """The precision that is wished for a layer; empty if none."""
        names = (node.name, *node.origin)
        fit = [p for p in self.precisions if any(fnmatchcase(n, p) for n in names)]
        return self.precisions[fit[-1]] if fit else ""

    def against(self, node: Node) -> str:
        """Why a layer is not to be of 8 bits; empty if it may."""
        wished = self.of(node)
        return "" if wished in ("", self.narrow) else f"it is wished to be {wished}"

    def forces(self, node: Node) -> bool:
        """Whether a layer is to be of 8 bits."""
        return self.of(node) == self.narrow

    def check(self, products: Collection[WeightedProduct]) -> None:
        """Raises ConfigError for a wish of 8 bits that no layer of them fulfils."""
        done = {p.node for p in products}
        for pattern, precision in self.precisions.items():
            alone = Wishes({pattern: precision})
            if (
                precision == self.narrow
                and pattern not in self.preferred
                and not any(alone.of(n) for n in done)
            ):
                why = (
                    "only products with constant float32 weights whose input has a range can be "
                    f"{self.narrow}, and none is called so"
                )
                do = "Take the wish back, or give the name of such a layer"
                raise ConfigError("unfulfilled layer precision", who=pattern, why=why, do=do)


def unusable(
    network: NetworkDefinition, numbers: NarrowNumbers = INTEGERS
) -> list[tuple[WeightedProduct, Value]]:
    """Products that stay float for what is not finite in their weights or bias, with that."""
    found = [p for n in network.nodes if (p := product_of(n, numbers)) is not None]
    return [(p, v) for p in found for v in p.constants if not np.isfinite(v.array).all()]


def why_float(node: Node, numbers: NarrowNumbers = INTEGERS) -> str:
    """Why a layer is no product of such numbers; empty if it can be one."""
    name, inputs = node.layer.name, node.inputs
    if name not in numbers.products:
        return f"there is no {name} of {numbers.plural}"
    if other := next((v for v in node.given if v.spec.dtype is not DType.FP32), None):
        return f"it computes with {other.spec.dtype.value}"
    x, w = node.given[:2]
    if x.const is not None and w.const is None:
        return "its constant is the left factor"
    if x.const is not None or w.const is None or not w.const.size:
        return "its weights are not constant"
    if len(inputs) > 2 and (bias := inputs[2]) is not None and bias.const is None:
        return "its bias is not constant"
    return "" if name == "Convolution" else _why_float_matrix(node, x, w)


def _why_float_matrix(node: Node, x: Value, w: Value) -> str:
    if w.spec.rank != 2 or x.spec.rank < 2:
        return f"its weights have {w.spec.rank} axes, its input {x.spec.rank}"
    a = node.attrs
    if node.layer.name == "Gemm" and (a.transA or a.alpha != 1 or a.beta != 1):
        return "its input is transposed" if a.transA else "its sum is scaled"
    return ""


def product_of(node: Node, numbers: NarrowNumbers = INTEGERS) -> WeightedProduct | None:
    """The layer as a product of such numbers; None if it can be none."""
    if node.layer.name not in KINDS or why_float(node, numbers):
        return None
    rows = node.layer.name == "Convolution" or (node.layer.name == "Gemm" and node.attrs.transB)
    return WeightedProduct(node, 0 if rows else 1)


def is_quantized(network: NetworkDefinition) -> bool:
    """Whether the model says itself what is quantised."""
    return any(n.layer.name in ("QuantizeLinear", "DequantizeLinear") for n in network.nodes)


def points(
    network: NetworkDefinition,
    wide: Callable[[Node], str] = lambda node: "",
    numbers: NarrowNumbers = INTEGERS,
) -> Points:
    """Where this network becomes such numbers. ``wide``: why a product stays float that need not;
    empty if it does not.
    """
    broken = {p.node for p, _ in unusable(network, numbers)}
    stay = {
        n: (NOT_FINITE if n in broken else why_float(n, numbers) or wide(n))
        for n in network.nodes
        if n.layer.name in KINDS
    }
    found = (product_of(n, numbers) for n, why in stay.items() if not why)
    products = tuple(p for p in found if p is not None)
    reads: dict[Value, list[tuple[Node, int]]] = {}
    for p in products:
        reads.setdefault(p.activation, []).append((p.node, 0))
    pooled = dict(_pools(reads)) if "Convolution" in numbers.products else {}
    for below in pooled.values():
        reads.setdefault(below, [])
    for v, below in pooled.items():
        assert v.producer is not None
        reads[below].append((v.producer, 0))
    made = {p.node for p in products if p.node.layer.name == "Convolution"}
    for node, i in _terms(network, made, reads):
        reads.setdefault(node.given[i], []).append((node, i))
    return Points(
        products,
        {v: tuple(uses) for v, uses in reads.items()},
        pooled,
        {n.name: why for n, why in stay.items() if why},
    )


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
