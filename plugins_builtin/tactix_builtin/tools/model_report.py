"""What is in an ONNX file, before anything is built: io, operators, and every one that no plugin gives a meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tactix_builtin.onnx_importer.catalog import Catalog, domain_of, opsets_of
from tactix_builtin.onnx_importer.importer import read

if TYPE_CHECKING:
    import onnx

    from tactix.plugins.session import Session

NAMED = 5
"""So many nodes of an operator are named."""


def report(path: str, session: Session) -> dict[str, Any]:
    """JSON: io, opsets, counts, operators with ``supported`` and their first nodes. Raises ModelImportError."""
    model, _ = read(path)
    catalog = Catalog(session.converters, session.layers.values(), model.functions)
    opsets = opsets_of(model.opset_import)
    rows: dict[str, dict[str, Any]] = {}
    for node in _nodes(model):
        name = f"{domain_of(node.domain)}::{node.op_type}"
        if name not in rows:
            rows[name] = {"operator": name, "count": 0, "supported": catalog.knows(node, opsets), "nodes": []}
        row = rows[name]
        row["count"] += 1
        if len(row["nodes"]) < NAMED:
            row["nodes"].append(node.name or (node.output[0] if node.output else ""))
    operators = sorted(rows.values(), key=lambda r: (r["supported"], -r["count"], r["operator"]))
    weights = {t.name for t in model.graph.initializer}
    return {
        "kind": "model",
        "file": path,
        "name": model.graph.name,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": opsets,
        "inputs": [_io(v) for v in model.graph.input if v.name not in weights],
        "outputs": [_io(v) for v in model.graph.output],
        "nodes": sum(r["count"] for r in operators),
        "parameters": sum(math.prod(t.dims) for t in model.graph.initializer),
        "operators": operators,
        "unsupported": [r["operator"] for r in operators if not r["supported"]],
    }


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes of the graph, of its subgraphs, and of the model's own functions."""
    yield from _walk(model.graph.node)
    for f in model.functions:
        yield from _walk(f.node)


def _walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for n in nodes:
        yield n
        for a in n.attribute:
            for graph in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from _walk(graph.node)


def _io(value: onnx.ValueInfoProto) -> dict[str, Any]:
    from tactix_builtin.onnx_importer.weights import ONNX_DTYPES

    tensor = value.type.tensor_type
    known = ONNX_DTYPES.get(tensor.elem_type)
    dims = tensor.shape.dim
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
    return {"name": value.name, "dtype": known.value if known else "?", "shape": shape}
