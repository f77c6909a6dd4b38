"""Pointwise groups: pointwise nodes that follow one another run as one loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.expr import walk
from tactix.contracts.graph import Node
from tactix.contracts.rule import Fuse, Rule, fuse, pointwise
from tactix_ops.rules.anchors import broadcasts_surely, expressions, in_vectors
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import awaits_reader, narrows_for_reader, used_only_by

CHEAP = frozenset({
    "var", "const", "add", "sub", "mul", "neg", "abs", "min", "max", "lt", "le", "eq", "and", "or",
    "xor", "not", "select", "cast", "isnan", "floor", "ceil", "round",
})  # fmt: skip
"""Operations that cost about as much as a load."""
MAX_REPEATED = 8
"""Most operations that are computed again for every element that a smaller result is broadcast to.
"""


def _operations(node: Node) -> list[str]:
    return [n.op for n in walk(expressions(node).program.results)]


def _cheap(node: Node) -> bool:
    return CHEAP.issuperset(_operations(node))


def _fits(root: Node, p: Node) -> bool:
    """Whether both may run in one loop: 64-bit numbers, which no vector code handles, meet cheap
    operations alone.
    """
    if p.anchor is not None or len(p.body.nodes) + len(root.body.nodes) > MAX_NODES:
        return False
    shape = root.outputs[0].spec.shape
    sure = all(broadcasts_surely(v.spec.shape, shape) for v in (*p.given, *root.given))
    return sure and (in_vectors(root) == in_vectors(p) or (_cheap(root) and _cheap(p)))


def _owned(root: Node, graph: Any) -> Node | None:
    """A pointwise producer that only this node reads, of results as large, or cheap to compute
    again.
    """
    shape = root.outputs[0].spec.shape
    for v in () if awaits_reader(root, graph) else root.given:
        p = v.producer
        if (
            p is None
            or not _fits(root, p)
            or not all(used_only_by(graph, o, root) for o in p.outputs)
        ):
            continue
        if all(o.spec.shape == shape for o in (*p.outputs, *root.outputs)) or _repeats_cheaply(
            root, p
        ):
            return p
    return None


def _repeats_cheaply(root: Node, p: Node) -> bool:
    return len(root.outputs) == 1 and len(_operations(p)) <= MAX_REPEATED and _cheap(p)


def _shared(root: Node, graph: Any) -> Node | None:
    """A pointwise producer that others read too, if its results can be written beside this node's
    in one loop.
    """
    shape = root.outputs[0].spec.shape
    waits = awaits_reader(root, graph) or narrows_for_reader(root, graph)
    for v in () if waits else root.given:
        p = v.producer
        if (
            p is None
            or not _fits(root, p)
            or any(o.spec.shape != shape for o in (*p.outputs, *root.outputs))
        ):
            continue
        others = [w.producer for w in root.given if w.producer is not None and w.producer is not p]
        if not any(graph.depends(o, p) for o in others):
            return p
    return None


def _owned_example(net: Any) -> None:
    x, y = net.add_input("x", "f32", ["n", 4]), net.add_input("y", "f32", [4])
    (s,) = net.add_layer("tactix.Mul", [y, net.add_constant(np.float32(3))])
    (z,) = net.add_layer("tactix.Add", [net.add_layer("tactix.Exp", [x])[0], s])
    net.mark_output(net.add_layer("tactix.Tanh", [z])[0], "z")


def _shared_example(net: Any) -> None:
    x, y = net.add_input("x", "f32", ["n", 4]), net.add_input("y", "f32", ["n", 4])
    (s,) = net.add_layer("tactix.Add", [x, y])
    net.mark_output(net.add_layer("tactix.Softmax", [s])[0], "p")
    net.mark_output(net.add_layer("tactix.Exp", [s])[0], "e")


def _with_owned(root: Node, graph: Any) -> Fuse:
    return fuse(_owned(root, graph), root)


def _with_shared(root: Node, graph: Any) -> Fuse:
    return fuse(_shared(root, graph), root)


RULES = (
    Rule(
        "tactix.pointwise_chain",
        pointwise(),
        _with_owned,
        lambda root, graph: _owned(root, graph) is not None,
        benefit=30,
        example=_owned_example,
        phase="fuse",
    ),
    Rule(
        "tactix.pointwise_shared",
        pointwise(),
        _with_shared,
        lambda root, graph: _shared(root, graph) is not None,
        benefit=10,
        example=_shared_example,
        phase="fuse",
    ),
)
