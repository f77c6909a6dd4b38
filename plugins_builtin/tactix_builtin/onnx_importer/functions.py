"""Helpers of the walk: function bodies with their attributes filled in, operators without meaning, attribute values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tactix.contracts import attrs as attribute
from tactix.contracts.graph import Node, Value
from tactix.words.errors import ModelImportError, UnsupportedOperator
from tactix_builtin.onnx_importer.catalog import Catalog, Function, Opsets, domain_of
from tactix_builtin.onnx_importer.order import Numbered, name_of

if TYPE_CHECKING:
    import onnx

    from tactix_builtin.onnx_importer.graph import Scope
    from tactix_builtin.onnx_importer.weights import Weights


SMALLEST = 16
"""About the bytes of the smallest node."""


class Binder:
    """Copies bodies of functions, so many bytes and nodes at most: both may double with every level of calls."""

    def __init__(self, most_bytes: int, most_nodes: int) -> None:
        self._bytes, self._nodes = most_bytes, most_nodes

    def body(self, call: onnx.NodeProto, function: Function) -> list[onnx.NodeProto]:
        """The function's nodes with references to its attributes replaced by the call's, or by the defaults.

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
                "calls of functions repeat too much", why="their bodies would be copied too often",
                do="Give functions their tensors as inputs",
            )  # fmt: skip


SHOWN = 200
"""So many nodes without a meaning are named."""


def check_supported(catalog: Catalog, nodes: Iterable[Numbered], scope: Scope) -> None:
    """Raises UnsupportedOperator that lists every node without a meaning, inside function bodies too."""
    found: list[str] = []
    domains: set[str] = set()
    _collect(catalog, nodes, scope.opsets, scope.prefix, found, domains)
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UnsupportedOperator(
            f"{len(found)} nodes have an operator that no installed plugin provides",
            why="; ".join(found[:SHOWN]) + more,
            do=f"Install a pack with converters or layers for {', '.join(sorted(domains))}",
        )


def _collect(
    catalog: Catalog, nodes: Iterable[Numbered], opsets: Opsets, prefix: str, found: list[str], domains: set[str]
) -> None:
    """Each function is searched once, or functions that call functions would take exponential time."""
    for index, node in nodes:
        domain = domain_of(node.domain)
        version = opsets.get(domain, 1)
        name = prefix + name_of(index, node)
        if not catalog.knows(node, opsets):
            found.append(f"node {name!r}: {domain}::{node.op_type} (opset {version})")
            domains.add(f"{domain}::{node.op_type}")
        elif catalog.claim(domain, node.op_type, version) is None:
            body = catalog.function(node, version)
            key = (domain, node.op_type, node.overload, version)
            if body is not None and key not in catalog.supported:
                catalog.supported.add(key)
                _collect(catalog, enumerate(body.proto.node), body.opsets, f"{name}/", found, domains)


_SCALARS = {1: "f", 2: "i"}
_LISTS = {6: "floats", 7: "ints"}


def attribute_value(a: onnx.AttributeProto, weights: Weights) -> Any:
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
    raise UnsupportedOperator(
        f"attribute {a.name!r} is of a kind without meaning here", why=kinds.AttributeType.Name(a.type)
    )


LARGEST = 1 << 20
"""Most elements of a tensor on the way to a small result."""

LONGEST = 64
"""Most layers on that way."""


def compute(v: Value) -> Any:
    """The array of a value that follows from constants alone, by the references; None if it does not.

    None, too, where the way there is long or large: a file of a few bytes may ask for any number of elements.
    """
    return _compute(v, {})


def _compute(v: Value, known: dict[Node, Sequence[Any] | None]) -> Any:
    node = v.producer
    if node is None:
        return v.const
    if node not in known:
        known[node] = None
        if len(known) > LONGEST or not _is_light(node):
            return None
        inputs = [None if x is None else _compute(x, known) for x in node.inputs]
        if any(x is not None and a is None for x, a in zip(node.inputs, inputs, strict=True)):
            return None
        known[node] = node.layer.reference(attribute.resolve_fields(node.attrs, {}), *inputs)
    results = known[node]
    return None if results is None else results[v.index]


def _is_light(node: Node) -> bool:
    """Whether results, and what attributes such as pads may add meanwhile, are few elements."""
    fields = [getattr(node.attrs, f.name) for f in dataclasses.fields(node.attrs)]
    lists = [[n for n in f if isinstance(n, int)] for f in fields if isinstance(f, tuple)]
    sizes = [v.spec.numel for v in node.outputs] + [math.prod(1 + abs(n) for n in ints) for ints in lists]
    return all(isinstance(n, int) and n <= LARGEST for n in sizes)
