"""Activations rise above layers that only move elements, to the kernel whose result is moved; and
reductions read what a Transpose would have moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, pointwise, var
from tactix_ops.rules.anchors import takes_epilogue
from tactix_ops.rules.facts import again, used_only_by
from tactix_ops.rules.heads import TURN
from tactix_ops.rules.transposed import splits_channels

T = P.tactix

# -- activations -----------------------------------------------------------------------------------


def _is_moved_result(v: Value, graph: Any) -> bool:
    """Whether a Transpose, or one of a Reshape, alone reads what a pointwise layer or a kernel with
    an epilogue makes, and has one reader itself.
    """
    turn = v.producer
    if turn is None or turn.layer.name != "Transpose" or graph.only_use(v) is None:
        return False
    (x,) = turn.given
    if not used_only_by(graph, x, turn):
        return False
    made = x.producer
    if (
        made is not None
        and made.layer.name == "Reshape"
        and used_only_by(graph, made.given[0], made)
        and not splits_channels(made)
    ):
        made = made.given[0].producer
    return made is not None and (made.anchor is None or takes_epilogue(made))


def _is_above(root: Node, graph: Any) -> bool:
    """A factor is none: attention takes those of its inputs into its scale."""
    alone = not root.is_fused and len(root.inputs) == 1
    return alone and _is_moved_result(root.given[0], graph)


def _above(root: Node, turn: Node) -> Op:
    return T.Transpose(again(root, turn.given), perm=turn.attrs.perm)


def _above_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6])
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(np.eye(6, dtype=np.float32) * 2)])
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))
    (y,) = net.add_layer("tactix.Tanh", [y])
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


# -- reductions ------------------------------------------------------------------------------------

_TURNED = T.Transpose(var("x")) >> "turn"
_REDUCTIONS = tuple(
    getattr(T, f"Reduce{name}")(_TURNED) for name in ("Sum", "Mean", "Max", "Min", "Prod")
)


def _reduced(root: Node, x: Value, turn: Node) -> Op:
    """The same axes of what is not moved; what is kept is moved instead."""
    perm, rank = turn.attrs.perm, x.spec.rank
    gone = {a % rank for a in root.attrs.axes}
    y = again(root, [x], axes=tuple(sorted(perm[a] for a in gone)))
    if root.attrs.keepdims:
        return T.Transpose(y, perm=perm)
    kept = [perm[a] for a in range(rank) if a not in gone]
    order = sorted(kept)
    return T.Transpose(y, perm=tuple(order.index(a) for a in kept))


def _reduced_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Transpose", [net.add_input("x", "f32", ["n", 3, 4, 5])], perm=TURN)
    net.mark_output(net.add_layer("tactix.ReduceMean", [y], axes=(1, -1), keepdims=False)[0], "y")


RULES = (
    Rule(
        "tactix.activation_above_transpose",
        pointwise(T.Transpose(var("x")) >> "turn"),
        _above,
        _is_above,
        benefit=28,
        example=_above_example,
    ),
    Rule(
        "tactix.reduction_of_transpose",
        any_of(*_REDUCTIONS),
        _reduced,
        benefit=40,
        numerics="reassociates",
        example=_reduced_example,
    ),
)
