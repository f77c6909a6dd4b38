"""Epilogues: a pointwise node joins the anchor whose result it alone reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, Rule, fuse, pointwise
from tactix_ops.rules.anchors import broadcasts_surely, in_vectors, takes_epilogue
from tactix_ops.rules.facts import awaits_reader, used_only_by

MAX_NODES = 24
"""Most layers in one fused node: beyond it, generated kernels run out of registers."""


def _candidate(root: Node, v: Value, graph: Any) -> bool:
    """Whether the node may join the one that makes this operand."""
    p, shape = v.producer, v.spec.shape
    if p is None or not takes_epilogue(p) or not used_only_by(graph, v, root):
        return False
    fits = all(broadcasts_surely(o.spec.shape, shape) for o in root.given)
    return fits and len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES and in_vectors(root)


def _host(root: Node, graph: Any) -> Node | None:
    """The anchored node to join; of several the widest and last in order, when all other operands
    are there.
    """
    if awaits_reader(root, graph):
        return None
    hosts = {v.producer: v.spec.dtype.bits for v in root.given if _candidate(root, v, graph)}
    free = [h for h in hosts if not any(h is not o and graph.depends(o, h) for o in hosts)]
    return max(free, key=lambda h: (hosts[h], graph.position(h)), default=None)


def _join(root: Node, graph: Any) -> Fuse:
    return fuse(_host(root, graph), root)


def _example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 4, 5])
    a, b = (net.add_constant(rng.standard_normal((5, 6), dtype=np.float32)) for _ in range(2))
    (y,) = net.add_layer("tactix.MatMul", [x, a])
    (y,) = net.add_layer("tactix.Add", [y, net.add_constant(np.arange(6, dtype=np.float32))])
    (z,) = net.add_layer("tactix.MatMul", [net.add_layer("tactix.Softmax", [x])[0], b])
    net.mark_output(net.add_layer("tactix.Relu", [net.add_layer("tactix.Add", [y, z])[0]])[0], "y")


RULES = (
    Rule(
        "tactix.epilogue",
        pointwise(),
        _join,
        lambda root, graph: _host(root, graph) is not None,
        benefit=20,
        example=_example,
        phase="fuse",
    ),
)
