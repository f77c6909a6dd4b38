"""What holds of a model before its graph is walked: versions, names that are text, nesting and
functions that end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix_onnx.catalog import MAIN, Catalog, domain_of, opsets_of
from tactix_onnx.order import subgraphs

if TYPE_CHECKING:
    import onnx

DEPTH = 64
"""Deepest nesting of functions and subgraphs."""

EXPANDED = 1 << 17
"""Most nodes that calls of the model's functions may stand for."""

COPIED = 256 << 20
"""Most bytes of nodes that calls of functions may copy."""

_SECTIONS = ("input", "output", "initializer")


def check(model: onnx.ModelProto) -> None:
    """Raises ModelImportError, or UnsupportedOperator for versions that the installed onnx does not
    describe.
    """
    if not model.HasField("graph") or not model.opset_import:
        raise ModelImportError(
            "not an ONNX model",
            why="it has no graph or imports no operator set",
            do="Export it again",
        )
    _check_ir(model.ir_version)
    opsets = _checked_opsets(model.opset_import, "the model")
    _check_graph(model.graph, opsets)
    for f in model.functions:
        domain = text(f.domain, "the domain of a function")
        who = f"function {domain}::{text(f.name, 'the name of a function')}"
        _check_texts(f.input, who)
        _check_texts(f.output, who)
        _check_nodes(f.node, _checked_opsets(f.opset_import, who) or opsets)


def text(value: Any, what: str) -> str:
    """The value, if its bytes in the file are UTF-8. Raises ModelImportError."""
    if isinstance(value, str):
        return value
    raise ModelImportError(
        f"{what} is not text",
        why=f"{bytes(value[:40])!r} is not UTF-8",
        do="The file is damaged: export it again",
    )


def _check_texts(values: Iterable[Any], who: str) -> None:
    for v in values:
        if not isinstance(v, str):
            text(v, f"a name in {who}")


def _check_ir(version: int) -> None:
    import onnx

    if not 1 <= version <= onnx.IR_VERSION:
        raise UnsupportedOperator(
            f"IR version {version} is unknown",
            why=f"the installed onnx knows versions 1 to {onnx.IR_VERSION}",
            do="Export the model with a released version of ONNX, or install a newer onnx",
        )


def _checked_opsets(imports: Sequence[onnx.OperatorSetIdProto], who: str) -> dict[str, int]:
    import onnx.defs

    newest = int(onnx.defs.onnx_opset_version())
    for o in imports:
        domain = domain_of(text(o.domain, f"a domain that {who} imports"))
        limit = newest if domain == MAIN else (1 << 31) - 1
        if not 1 <= o.version <= limit:
            raise UnsupportedOperator(
                f"operator set {o.version} of {domain} is unknown",
                who=who,
                why=f"there are versions 1 to {limit}",
                do="Export the model for one of these, or install a newer onnx",
            )
    return opsets_of(imports)


def _check_graph(graph: onnx.GraphProto, opsets: Mapping[str, int], depth: int = 0) -> None:
    who = f"graph {text(graph.name, 'the name of a graph')!r}"
    for section in _SECTIONS:
        _check_texts((x.name for x in getattr(graph, section)), who)
    _check_texts((t.values.name for t in graph.sparse_initializer), who)
    dims = (d for v in graph.input for d in v.type.tensor_type.shape.dim)
    _check_texts((d.dim_param for d in dims if d.HasField("dim_param")), who)
    _check_nodes(graph.node, opsets, depth)


def _check_nodes(
    nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int], depth: int = 0
) -> None:
    if depth > DEPTH:
        raise ModelImportError(
            "subgraphs are nested too deeply",
            why=f"more than {DEPTH} levels",
            do="Flatten the model",
        )
    for i, n in enumerate(nodes):
        who = f"node {text(n.name, f'the name of node {i}') or i!r}"
        _check_texts((n.op_type, n.domain, n.overload), who)
        _check_texts(n.input, who)
        _check_texts(n.output, who)
        if MAIN not in opsets and domain_of(n.domain) == MAIN:
            raise ModelImportError(
                f"its operator {n.op_type!r} has no version",
                who=who,
                why=f"no operator set of {MAIN} is imported",
                do="Add it to opset_import",
            )
        _check_texts((s for a in n.attribute for s in (a.name, a.ref_attr_name)), who)
        for graph in subgraphs(n):
            _check_graph(graph, opsets, depth + 1)


# -- functions -----------------------------------------------------------------------------------

Key = tuple[str, str, str]


def check_expansion(model: onnx.ModelProto, catalog: Catalog) -> None:
    """Raises ModelImportError if functions of the model call themselves, or stand for too many
    nodes.
    """
    bodies = {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}
    versions = opsets_of(model.opset_import)
    calls = {
        k: list(_calls(f.node, opsets_of(f.opset_import) or versions, catalog, bodies))
        for k, f in bodies.items()
    }
    own = {k: len(f.node) for k, f in bodies.items()}
    size: dict[Key, int] = {}
    for key in bodies:
        _measure(key, calls, own, size)
    if sum(size[k] for k in _calls(model.graph.node, versions, catalog, bodies)) > EXPANDED:
        raise ModelImportError(
            "calls of the model's functions are too many",
            why=f"they stand for more than {EXPANDED} nodes",
            do="Export the model with its functions inlined, if it is sound",
        )


def _calls(
    nodes: Iterable[onnx.NodeProto],
    opsets: Mapping[str, int],
    catalog: Catalog,
    bodies: Mapping[Key, Any],
) -> Iterator[Key]:
    """Functions that nodes call, once per call, those in subgraphs included; converters and layers
    come first.
    """
    for n in nodes:
        domain = domain_of(n.domain)
        key = (domain, n.op_type, n.overload)
        if key in bodies and catalog.claim(domain, n.op_type, opsets.get(domain, 1)) is None:
            yield key
        for graph in subgraphs(n):
            yield from _calls(graph.node, opsets, catalog, bodies)


def _measure(
    start: Key, calls: Mapping[Key, list[Key]], own: Mapping[Key, int], size: dict[Key, int]
) -> None:
    """Nodes that a call stands for, those of the functions that it calls first. A path on a stack:
    it may be long.
    """
    path, active = [(start, iter(calls[start]))], {start}
    while path:
        key, rest = path[-1]
        todo = next((k for k in rest if k not in size), None)
        if todo is None:
            size[key] = min(EXPANDED + 1, own[key] + sum(size[k] for k in calls[key]))
            active.discard(path.pop()[0])
        elif todo in active:
            raise recursion(todo)
        else:
            path.append((todo, iter(calls[todo])))
            active.add(todo)


def recursion(key: Key) -> ModelImportError:
    return ModelImportError(
        f"function {key[0]}::{key[1]} calls itself",
        why="ONNX allows no recursion",
        do="Export the model again",
    )
