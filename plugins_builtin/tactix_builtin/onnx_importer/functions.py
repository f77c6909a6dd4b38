"""Helpers of the walk: function bodies with their attributes filled in, operators without meaning, attribute values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tactix.contracts import attrs as attribute
from tactix.contracts.graph import Node, Value
from tactix.words.errors import UnsupportedOperator
from tactix_builtin.onnx_importer.catalog import Catalog, Function, Opsets, domain_of
from tactix_builtin.onnx_importer.order import Numbered, name_of

if TYPE_CHECKING:
    import onnx

    from tactix_builtin.onnx_importer.graph import Scope
    from tactix_builtin.onnx_importer.weights import Weights


def bound_body(call: onnx.NodeProto, function: Function) -> list[onnx.NodeProto]:
    """The function's nodes with references to its attributes replaced by the call's, or by the defaults."""
    given = {**function.defaults, **{a.name: a for a in call.attribute}}
    return [_bound(n, given) for n in function.proto.node]


def _bound(node: onnx.NodeProto, given: Any) -> onnx.NodeProto:
    import onnx

    out = onnx.NodeProto()
    out.CopyFrom(node)
    del out.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            copied = out.attribute.add()
            copied.CopyFrom(a)
            _bind_graphs(copied, given)
        elif a.ref_attr_name in given:
            copied = out.attribute.add()
            copied.CopyFrom(given[a.ref_attr_name])
            copied.name = a.name
    return out


def _bind_graphs(a: onnx.AttributeProto, given: Any) -> None:
    for graph in (*a.graphs, *([a.g] if a.HasField("g") else ())):
        nodes = [_bound(n, given) for n in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)


def check_supported(catalog: Catalog, nodes: Iterable[Numbered], scope: Scope) -> None:
    """Raises UnsupportedOperator that lists every node without a meaning, inside function bodies too."""
    found: list[str] = []
    domains: set[str] = set()
    _collect(catalog, nodes, scope.opsets, scope.prefix, found, domains, set())
    if found:
        raise UnsupportedOperator(
            f"{len(found)} nodes have an operator that no installed plugin provides",
            why="; ".join(found),
            do=f"Install a pack with converters or layers for {', '.join(sorted(domains))}",
        )


def _collect(
    catalog: Catalog, nodes: Iterable[Numbered], opsets: Opsets, prefix: str, found: list[str], domains: set[str],
    seen: set[tuple[str, str, str]],
) -> None:  # fmt: skip
    for index, node in nodes:
        domain = domain_of(node.domain)
        version = opsets.get(domain, 1)
        name = prefix + name_of(index, node)
        if not catalog.knows(node, opsets):
            found.append(f"node {name!r}: {domain}::{node.op_type} (opset {version})")
            domains.add(f"{domain}::{node.op_type}")
        elif catalog.claim(domain, node.op_type, version) is None:
            body = catalog.function(node, version)
            key = (domain, node.op_type, node.overload)
            if body is not None and key not in seen:
                inner = enumerate(body.proto.node)
                _collect(catalog, inner, body.opsets, f"{name}/", found, domains, seen | {key})


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


def compute(v: Value) -> Any:
    """The array of a value that follows from constants alone, by the references; None if it does not."""
    return _compute(v, {})


def _compute(v: Value, known: dict[Node, Sequence[Any]]) -> Any:
    if v.producer is None:
        return v.const
    node = v.producer
    if node not in known:
        inputs = [None if x is None else _compute(x, known) for x in node.inputs]
        if any(x is not None and a is None for x, a in zip(node.inputs, inputs, strict=True)):
            return None
        known[node] = node.layer.reference(attribute.resolve_fields(node.attrs, {}), *inputs)
    return known[node][v.index]
