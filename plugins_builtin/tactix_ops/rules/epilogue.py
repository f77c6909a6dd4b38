"""Epilogues: a pointwise node joins the anchor whose result it alone reads. That of a GPU's kernels
may read and make floats of 8 bits, too, and a normalisation there gives its result beside the 8
bits that it becomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, Rule, fuse, pointwise
from tactix_ops.rules.anchors import broadcasts_surely, computed, in_vectors, takes_epilogue
from tactix_ops.rules.facts import awaits_reader, used_only_by

NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization"})
"""Layers whose kernels for GPUs write several results."""
MAX_NODES = 24
"""Most layers in one fused node: beyond it, generated kernels run out of registers."""


def _candidate(root: Node, v: Value, graph: Any) -> bool:
    """Whether the node may join the one that makes this operand."""
    p, shape = v.producer, v.spec.shape
    if p is None or not takes_epilogue(p) or not used_only_by(graph, v, root):
        return False
    fits = all(broadcasts_surely(o.spec.shape, shape) for o in root.given)
    return fits and len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES


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


def _normalised(root: Node, graph: Any) -> Node | None:
    """The normalisation of which the node makes 8 bits, and others read what it makes."""
    v, out = root.given[0], root.outputs[0].spec
    p = v.producer
    if p is None or p.anchor is None or p.anchor.layer.name not in NORMALIZATIONS:
        return None
    alone = used_only_by(graph, v, root) or len(p.outputs) > 1 or len(root.outputs) > 1
    if alone or out.dtype.bits != 8 or out.dtype is DType.BOOL or out.shape != v.spec.shape:
        return None
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES and computed(root).float8
    fits = all(broadcasts_surely(o.spec.shape, v.spec.shape) for o in root.given)
    others = [o.producer for o in root.given if o is not v and o.producer is not None]
    return p if few and fits and not any(o is p or graph.depends(o, p) for o in others) else None


def _join_beside(root: Node, graph: Any) -> Fuse:
    return fuse(_normalised(root, graph), root)


def _example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 4, 5])
    a, b = (net.add_constant(rng.standard_normal((5, 6), dtype=np.float32)) for _ in range(2))
    (y,) = net.add_layer("tactix.MatMul", [x, a])
    (y,) = net.add_layer("tactix.Add", [y, net.add_constant(np.arange(6, dtype=np.float32))])
    (z,) = net.add_layer("tactix.MatMul", [net.add_layer("tactix.Softmax", [x])[0], b])
    net.mark_output(net.add_layer("tactix.Relu", [net.add_layer("tactix.Add", [y, z])[0]])[0], "y")


def _float8_example(net: Any) -> None:
    w = np.random.default_rng(8).standard_normal((5, 6), dtype=np.float32)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", ["n", 5]), net.add_constant(w)]
    )
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.FP8)[0], "y")


def _beside_example(net: Any) -> None:
    x, s = net.add_input("x", "f32", ["n", 6]), net.add_constant(np.arange(6, dtype=np.float32))
    (y,) = net.add_layer("tactix.LayerNormalization", [x, s])
    net.mark_output(net.add_layer("tactix.Quantize", [y], zero=3, dtype=DType.INT8)[0], "q")
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


def _rule(
    key: str, computes: Callable[[Node], bool], example: Callable[[Any], None], device: str = ""
) -> Rule:
    """Of nodes of which that holds."""
    return Rule(
        key,
        pointwise(),
        _join,
        lambda root, graph: computes(root) and _host(root, graph) is not None,
        benefit=20,
        example=example,
        phase="fuse",
        device=device,
    )


RULES = (_rule("tactix.epilogue", in_vectors, _example),)

GRAPHICS_RULES = (
    _rule(
        "tactix.epilogue_of_float8",
        lambda node: computed(node).float8 and not in_vectors(node),
        _float8_example,
        "cuda",
    ),
    Rule(
        "tactix.eight_bits_beside",
        pointwise(),
        _join_beside,
        lambda root, graph: _normalised(root, graph) is not None,
        benefit=5,
        example=_beside_example,
        phase="fuse",
        device="cuda",
    ),
)
