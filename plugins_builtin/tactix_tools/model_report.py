"""What is in a model, before anything is built: io, operators, and of ONNX every node that cannot
be imported.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError, punctuated
from tactix.builder import Builder
from tactix.contracts.graph import Value
from tactix.network.definition import NetworkDefinition
from tactix_onnx.catalog import Catalog, domain_of, opsets_of
from tactix_onnx.importer import OnnxImporter, fill, locate, read
from tactix_onnx.survey import Refusal, Survey
from tactix_onnx.weights import RANK, Array, WeightReader, dtype_of
from tactix_tools.inspect_shapes import inferred
from tactix_tools.pack_info import packs

if TYPE_CHECKING:
    import onnx

    from tactix.plugins.session import Session

NAMED = 5
"""So many nodes of an operator are named."""

LARGEST = 1 << 31
"""Most elements of a tensor that zeros may stand for."""


def report(path: str, session: Session) -> dict[str, Any]:
    """JSON: io, opsets, counts, operators with ``supported`` and their first nodes, and what
    ``survey`` tells.

    Of a format that a pack imports: the layers that its importer makes. Raises ModelImportError for
    a file that is no model, or whose graph is none, and what that importer raises.
    """
    builder = Builder(session=session)
    importer = builder.importer_of(path)
    if importer is None and OnnxImporter.key not in session.importers:
        builder.import_model(path)  # says why there is none
    if importer is not None and importer.key != OnnxImporter.key:
        return layers(path, importer.format, builder.import_model(path))
    model, folder = read(path)
    catalog = Catalog(session.active_converters(), session.layers.values(), model.functions)
    opsets = opsets_of(model.opset_import)
    operators = _operators(model, catalog, opsets)
    weights = {t.name for t in model.graph.initializer}
    facts = {
        "kind": "model",
        "format": "onnx",
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
    return facts | survey(path, model, folder, session)


def layers(path: str, format: str, network: NetworkDefinition) -> dict[str, Any]:
    """The same JSON of a network that an importer made."""
    rows: dict[str, dict[str, Any]] = {}
    for node in network.nodes:
        key = node.layer.key
        row = rows.setdefault(key, {"operator": key, "count": 0, "supported": True, "nodes": []})
        row["count"] += 1
        if len(row["nodes"]) < NAMED:
            row["nodes"].append(node.name)
    outputs = zip(network.output_names, network.outputs, strict=True)
    return {
        "kind": "model",
        "format": format,
        "file": path,
        "name": network.name,
        "producer": "",
        "opsets": {},
        "inputs": [_value(v.name, v) for v in network.inputs],
        "outputs": [_value(name, v) for name, v in outputs],
        "nodes": len(network.nodes),
        "parameters": sum(int(v.array.size) for v in network.constants),
        "operators": sorted(rows.values(), key=lambda r: (-r["count"], r["operator"])),
        "unsupported": [],
        "refused": [],
        "refused_count": 0,
        "not_reached": 0,
        "unreadable": {},
        "packs_not_in_use": {},
    }


def _value(name: str, value: Value) -> dict[str, Any]:
    shape = [d if isinstance(d, int) else str(d) for d in value.spec.shape]
    return {"name": name, "dtype": value.spec.dtype.value, "shape": shape}


def _operators(
    model: onnx.ModelProto, catalog: Catalog, opsets: dict[str, int]
) -> list[dict[str, Any]]:
    """A row per operator, unknown ones first."""
    rows: dict[str, dict[str, Any]] = {}
    for node in _nodes(model):
        name = f"{domain_of(node.domain)}::{node.op_type}"
        if name not in rows:
            rows[name] = {
                "operator": name,
                "count": 0,
                "supported": catalog.knows(node, opsets),
                "nodes": [],
            }
        row = rows[name]
        row["count"] += 1
        if len(row["nodes"]) < NAMED:
            row["nodes"].append(node.name or (node.output[0] if node.output else ""))
    return sorted(rows.values(), key=lambda r: (r["supported"], -r["count"], r["operator"]))


def survey(
    path: str, model: onnx.ModelProto, folder: Path | None, session: Session
) -> dict[str, Any]:
    """JSON: ``refused`` nodes with places and reasons, how many, nodes ``not_reached``,
    ``unreadable`` weights.

    Imports the model into a network that is thrown away; the model loses its weights.
    """
    found = Survey(functools.partial(locate, path), functools.partial(inferred, path))
    weights = Lenient(folder, path)
    try:
        fill(
            NetworkDefinition(session.layers),
            model,
            session.active_converters(),
            weights,
            found,
            path,
        )
    except ModelImportError:
        if not found.count:
            raise
    refusals = found.refusals()
    unknown = any(not r.supported for r in refusals)
    return {
        "refused": [_row(r) for r in refusals],
        "refused_count": found.count,
        "not_reached": found.unreached,
        "unreadable": weights.unreadable,
        "packs_not_in_use": _idle(session) if unknown else {},
    }


def _row(r: Refusal) -> dict[str, Any]:
    names = ("node", "operator", "opset", "index", "graph", "offset", "supported", "reason", "do")
    return {name: getattr(r, name) for name in names}


def _idle(session: Session) -> dict[str, str]:
    """Packs installed that give nothing, or lack keys that another one has, too; and why."""
    out = ("disabled", "incompatible", "failed", "clashing")
    return {p.namespace: punctuated((p.reason, p.cure)) for p in packs(session) if p.status in out}


class Lenient(WeightReader):
    """Gives zeros for weights whose data cannot be read, and remembers why: operators are judged
    without them.
    """

    def __init__(self, folder: Path | None, file: str) -> None:
        super().__init__(folder, owned=True, file=file)
        self.unreadable: dict[str, str] = {}

    def initializer(self, t: Any, again: bool = False) -> Array:
        try:
            return super().initializer(t, again)
        except ModelImportError as e:
            return self._zeros(t, e)

    def _zeros(self, t: Any, e: ModelImportError) -> Array:
        """One zero seen as the tensor's shape; the error if it has none."""
        values = getattr(t, "values", t)
        dtype = dtype_of(values.data_type, e.who)
        if (
            dtype is DType.STRING
            or any(d < 0 for d in t.dims)
            or len(t.dims) > RANK
            or math.prod(t.dims) > LARGEST
        ):
            raise e
        self.unreadable[values.name] = f"{e.what}: {e.why}" if e.why else e.what
        return np.broadcast_to(np.zeros((), dtype.numpy), tuple(t.dims))


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
    from tactix_onnx.weights import ONNX_DTYPES

    tensor = value.type.tensor_type
    known = ONNX_DTYPES.get(tensor.elem_type)
    dims = tensor.shape.dim
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
    return {"name": value.name, "dtype": known.value if known else "?", "shape": shape}
