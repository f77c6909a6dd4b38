"""Prologues: a pointwise node of one tensor joins the reduction that alone reads its result; of a
tensor and a number for each result (the mean, of a variance), too.

For processors, whose kernels of reductions pass what they load through an expression.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.rule import Fuse, Rule, anchor, fuse
from tactix_codegen.operations.reduce import axes_of, kept_shape
from tactix_ops.rules.anchors import in_vectors
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import used_only_by

REDUCTIONS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
NARROW = (DType.FP32, DType.FP16, DType.BF16)


def _before(root: Node, graph: Any) -> Node | None:
    """What makes the reduction's input, element by element, of one tensor that is like it, and at
    most one that is like the results.
    """
    own = root.anchor
    if own is None or own.layer.name not in REDUCTIONS or root.body.anchor != 0:
        return None
    x = root.given[0]
    p = x.producer
    if p is None or p.anchor is not None or not used_only_by(graph, x, root):
        return None
    source, *others = dict.fromkeys(p.given)
    held = kept_shape(x.spec.shape, axes_of(own, x.spec.rank))
    beside = [v.spec for v in others if v.spec.dtype is x.spec.dtype and v.spec.shape == held]
    alike = source.spec == x.spec and len(beside) == len(others) <= 1
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES
    return p if alike and few and x.spec.dtype in NARROW and in_vectors(p) else None


def _join(root: Node, graph: Any) -> Fuse:
    return fuse(_before(root, graph), root)


def _example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 5])
    (y,) = net.add_layer("tactix.Mul", [x, x])
    (y,) = net.add_layer("tactix.ReduceSum", [y], axes=(-1,), keepdims=False)
    net.mark_output(net.add_layer("tactix.Sqrt", [y])[0], "y")


RULES = (
    Rule(
        "tactix.prologue_of_reduction",
        anchor(),
        _join,
        lambda root, graph: _before(root, graph) is not None,
        benefit=15,
        example=_example,
        phase="fuse",
        device="cpu",
    ),
)
