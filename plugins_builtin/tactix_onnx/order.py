"""Order of a graph's nodes: those that outputs need, producers first, and otherwise as the file has
them.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import ModelImportError

if TYPE_CHECKING:
    import onnx

Numbered = tuple[int, "onnx.NodeProto"]


LONGEST = 1000
"""Longest name of a node that is kept whole, in characters: names are joined as functions nest."""


def name_of(index: int, node: onnx.NodeProto) -> str:
    """The node's name, or one from its operator and position."""
    return (node.name or f"{node.op_type}_{index}")[:LONGEST]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node has as attributes."""
    for a in node.attribute:
        yield from a.graphs
        if a.HasField("g"):
            yield a.g


def reads(node: onnx.NodeProto) -> list[str]:
    """Names of the tensors that a node needs: of the graph around its subgraphs, and of a gradient,
    too.
    """
    out = [name for name in node.input if name]
    if node.op_type == "Gradient" and node.domain == "ai.onnx.preview.training":
        out += [name.decode() for a in node.attribute for name in (a.s, *a.strings) if name]
    for graph in subgraphs(node):
        out += sorted(_free_names(graph))
    return out


def _free_names(graph: onnx.GraphProto) -> set[str]:
    own = {t.name for t in graph.initializer} | {v.name for v in graph.input}
    own |= {name for n in graph.node for name in n.output}
    wanted = {name for n in graph.node for name in reads(n)} | {v.name for v in graph.output}
    return wanted - own


def ordered(
    nodes: Sequence[onnx.NodeProto],
    outputs: Iterable[str],
    known: Container[str],
    taken: Container[str] | None = None,
) -> list[Numbered]:
    """The nodes that ``outputs`` need, with their positions in the file. ``known``: names made
    elsewhere; ``taken``: those of them that no node may make again, all unless given.

    Raises ModelImportError for a name that two nodes make or none does, and for a cycle.
    """
    maker = _makers(nodes, known if taken is None else taken)
    needed = _needed(nodes, outputs, maker)
    for i in sorted(needed):
        for name in needed[i]:
            if name not in maker and name not in known:
                raise made_by_nothing(name, f"node {name_of(i, nodes[i])!r} ({nodes[i].op_type})")
    return _sorted(nodes, needed, maker)


RENAME = "Give each tensor a name of its own"


def made_by_nothing(name: str, who: str = "") -> ModelImportError:
    """The error for a name that no input, constant or node has."""
    why = "no input, initializer or output of a node has that name" if name else "it has no name"
    do = "Export the model again, or correct the name"
    return ModelImportError(f"tensor {name!r} is made by nothing", who=who, why=why, do=do)


def without_unread(order: Sequence[Numbered], outputs: Iterable[str]) -> list[Numbered]:
    """The same nodes, whose further results have names only where something reads them: exporters
    name all that an operator may give, and nobody need compute, or support, what nobody reads.
    """
    if not any(len(node.output) > 1 for _, node in order):
        return list(order)
    read = {*outputs, *(name for _, node in order for name in reads(node))}
    return [(i, _without(node, read)) for i, node in order]


def _without(node: onnx.NodeProto, read: Container[str]) -> onnx.NodeProto:
    """Results of branches and loops are those of their bodies, and stay."""
    unread = [i for i, name in enumerate(node.output) if i and name and name not in read]
    if not unread or any(subgraphs(node)):
        return node
    out = type(node)()
    out.CopyFrom(node)
    for i in unread:
        out.output[i] = ""
    return out


def _makers(nodes: Sequence[onnx.NodeProto], taken: Container[str]) -> dict[str, int]:
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in maker:
                both = f"{name_of(maker[name], nodes[maker[name]])!r} and {name_of(i, node)!r}"
                raise ModelImportError(f"two nodes make tensor {name!r}", who=both, do=RENAME)
            if name in taken:
                who, why = f"node {name_of(i, node)!r} ({node.op_type})", "it is there before"
                what = f"tensor {name!r} is made twice"
                raise ModelImportError(what, who=who, why=why, do=RENAME)
            maker[name] = i
    return maker


def _needed(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], maker: dict[str, int]
) -> dict[int, Sequence[str]]:
    """What each node that outputs need reads."""
    seen: dict[int, Sequence[str]] = {}
    stack = [maker[name] for name in outputs if name in maker]
    while stack:
        i = stack.pop()
        if i not in seen:
            seen[i] = tuple(dict.fromkeys(reads(nodes[i])))
            stack += [maker[name] for name in seen[i] if name in maker]
    return seen


def _sorted(
    nodes: Sequence[onnx.NodeProto], needed: dict[int, Sequence[str]], maker: dict[str, int]
) -> list[Numbered]:
    before = {i: {maker[name] for name in names if name in maker} for i, names in needed.items()}
    after: dict[int, list[int]] = {i: [] for i in needed}
    for i, makers in before.items():
        for m in makers:
            after[m].append(i)
    waiting = {i: len(makers) for i, makers in before.items()}
    ready = [i for i, count in waiting.items() if not count]
    heapq.heapify(ready)
    out: list[Numbered] = []
    while ready:
        i = heapq.heappop(ready)
        out.append((i, nodes[i]))
        for j in after[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, j)
    if len(out) != len(needed):
        stuck = sorted(i for i, count in waiting.items() if count)
        raise ModelImportError(
            "nodes form a cycle", who=", ".join(name_of(i, nodes[i]) for i in stuck[:5])
        )
    return out
