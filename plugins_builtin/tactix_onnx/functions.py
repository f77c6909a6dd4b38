"""Helpers of the walk: function bodies with their attributes filled in, operators without meaning,
attribute values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix.contracts.graph import Node, Value, run_node
from tactix.network.definition import inner_networks
from tactix_onnx.catalog import Catalog, Function, Opsets, domain_of
from tactix_onnx.order import Numbered, name_of, subgraphs
from tactix_onnx.origins import origin_of
from tactix_onnx.survey import Refusal, Survey
from tactix_onnx.wellformed import DEPTH
from tactix_ops.layers.control import Work, WorkSpent, limited

if TYPE_CHECKING:
    import onnx

    from tactix_onnx.weights import WeightReader


SMALLEST = 16
"""About the bytes of the smallest node."""


class Binder:
    """Copies bodies of functions, so many bytes and nodes at most: both may double with every level
    of calls.
    """

    def __init__(self, most_bytes: int, most_nodes: int) -> None:
        self._bytes, self._nodes = most_bytes, most_nodes

    def body(self, call: onnx.NodeProto, function: Function) -> list[onnx.NodeProto]:
        """The function's nodes with references to its attributes replaced by the call's, or by the
        defaults.

        Raises ModelImportError.
        """
        given = {**function.defaults, **{a.name: a for a in call.attribute}}
        return [self._bound(n, given) for n in function.proto.node]

    def _bound(self, node: onnx.NodeProto, given: Any) -> onnx.NodeProto:
        import onnx

        self._take(node)
        out = onnx.NodeProto()
        out.CopyFrom(node)
        del out.attribute[:]
        for a in node.attribute:
            source = given.get(a.ref_attr_name) if a.ref_attr_name else a
            if source is None:
                continue
            if source is not a:
                self._take(source, has_graphs=bool(source.graphs) or source.HasField("g"))
            copied = out.attribute.add()
            copied.CopyFrom(source)
            copied.name = a.name
            if source is a:
                self._bind_graphs(copied, given)
        return out

    def _bind_graphs(self, a: onnx.AttributeProto, given: Any) -> None:
        for graph in (*a.graphs, *([a.g] if a.HasField("g") else ())):
            nodes = [self._bound(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)

    def _take(self, message: Any, has_graphs: bool = False) -> None:
        size = message.ByteSize()
        self._bytes -= size
        self._nodes -= size // SMALLEST if has_graphs else 1
        if self._bytes < 0 or self._nodes < 0:
            raise ModelImportError(
                "calls of functions repeat too much",
                why="their bodies would be copied too often",
                do="Give functions their tensors as inputs",
            )


class Search:
    """Finds nodes without a meaning before the walk gets to them, inside function bodies too.

    ``layers``: those of the network. Each function is searched once, or functions that call
    functions would take exponential time.
    """

    def __init__(self, catalog: Catalog, layers: Any, survey: Survey) -> None:
        self.catalog, self.layers, self.survey = catalog, layers, survey
        self._origins: dict[tuple[str, str, int], tuple[str, str]] = {}

    def nodes(self, nodes: Iterable[Numbered], opsets: Opsets, prefix: str, depth: int = 0) -> None:
        """Tell the survey of each."""
        for index, node in nodes:
            if not self.catalog.knows(node, opsets):
                self.survey.expect(self._refusal(index, node, opsets, prefix))
                continue
            domain = domain_of(node.domain)
            version = opsets.get(domain, 1)
            key = (domain, node.op_type, node.overload, version)
            if (
                key in self.catalog.supported
                or self.catalog.claim(domain, node.op_type, version) is not None
            ):
                continue
            body = self.catalog.function(node, version)
            if body is not None and depth < DEPTH:
                self.catalog.supported.add(key)
                inner = f"{prefix}{name_of(index, node)}/"
                self.nodes(enumerate(body.proto.node), body.opsets, inner, depth + 1)

    def subgraphs(self, index: int, node: onnx.NodeProto, opsets: Opsets, prefix: str) -> None:
        """Tell the survey of those in graphs of a node that the walk does not reach."""
        for graph in subgraphs(node):
            inner = f"{prefix}{name_of(index, node)}/"
            self.nodes(enumerate(graph.node), opsets, inner)
            for i, n in enumerate(graph.node):
                self.subgraphs(i, n, opsets, inner)

    def _refusal(self, index: int, node: onnx.NodeProto, opsets: Opsets, prefix: str) -> Refusal:
        domain = domain_of(node.domain)
        key = (domain, node.op_type, opsets.get(domain, 1))
        if key not in self._origins:
            self._origins[key] = origin_of(*key, self.layers)
        why, do = self._origins[key]
        return replace(refusal(index, node, opsets, prefix), what=why, do=do, supported=False)


def refusal(index: int, node: onnx.NodeProto, opsets: Opsets, prefix: str) -> Refusal:
    """A refusal that gives no reason yet."""
    domain = domain_of(node.domain)
    name = prefix + name_of(index, node)
    return Refusal(
        name, f"{domain}::{node.op_type}", opsets.get(domain, 1), index, prefix.rstrip("/"), ""
    )


_SCALARS = {1: "f", 2: "i"}
_LISTS = {6: "floats", 7: "ints"}


def attribute_value(a: onnx.AttributeProto, weights: WeightReader) -> Any:
    """An attribute's value: tensors as arrays, lists as tuples, text as str, graphs as they are."""
    import onnx

    kinds = onnx.AttributeProto
    if a.type in _SCALARS:
        return getattr(a, _SCALARS[a.type])
    if a.type in _LISTS:
        return tuple(getattr(a, _LISTS[a.type]))
    if a.type == kinds.STRING:
        return a.s.decode("utf-8", "replace")
    if a.type == kinds.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in a.strings)
    if a.type == kinds.TENSOR:
        return weights.array(a.t)
    if a.type == kinds.SPARSE_TENSOR:
        return weights.sparse(a.sparse_tensor)
    if a.type == kinds.GRAPH:
        return a.g
    if a.type == kinds.TYPE_PROTO:
        return a.tp
    raise UnsupportedOperator(
        f"attribute {a.name!r} is of a kind without meaning here",
        why=kinds.AttributeType.Name(a.type),
    )


LARGEST = 1 << 20
"""Most elements of a tensor on the way to a small result."""

LONGEST = 64
"""Most layers on that way."""

LOOPS = 1 << 24
"""Most work that bodies of loops and branches over constants do while a model is imported, in
elements: 16,000 layers on a few numbers each, about a second.
"""


def compute(v: Value, work: Work) -> Any:
    """The array of a value that follows from constants alone, by the references; None if it does
    not.

    None, too, where the way there is long or large, or takes more than the ``work`` that is left
    for bodies: a file of a few bytes may ask for any number of elements or iterations.
    """
    try:
        with limited(work):
            return _compute(v, {})
    except WorkSpent:
        return None


def _compute(v: Value, known: dict[Node, Sequence[Any] | None]) -> Any:
    node = v.producer
    if node is None:
        return v.const
    if node not in known:
        known[node] = None
        if len(known) > LONGEST or not _is_foldable(node):
            return None
        inputs = [None if x is None else _compute(x, known) for x in node.inputs]
        if any(x is not None and a is None for x, a in zip(node.inputs, inputs, strict=True)):
            return None
        known[node] = run_node(node, inputs, {})
    results = known[node]
    return None if results is None else results[v.index]


def _is_foldable(node: Node) -> bool:
    """Whether it is small and constant, and so are all layers of its bodies."""
    inner = (n for body in inner_networks(node) for n in body.nodes)
    return _is_light(node) and _is_constant(node) and all(map(_is_foldable, inner))


def _is_constant(node: Node) -> bool:
    """Whether every run gives the same, and arrays of numbers."""
    return not node.layer.name.startswith("Random") and all(
        v.spec.dtype is not DType.STRING for v in node.outputs
    )


def _is_light(node: Node) -> bool:
    """Whether results, and what attributes such as pads may add meanwhile, are few elements."""
    fields = [getattr(node.attrs, f.name) for f in dataclasses.fields(node.attrs)]
    lists = [[n for n in f if isinstance(n, int)] for f in fields if isinstance(f, tuple)]
    sizes = [v.spec.numel for v in node.outputs] + [
        math.prod(1 + abs(n) for n in ints) for ints in lists
    ]
    return all(isinstance(n, int) and n <= LARGEST for n in sizes)
