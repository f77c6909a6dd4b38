"""Activations, and sums of what is moved alike, rise above layers that only move elements, to the
kernel whose result is moved; and reductions read what a Transpose would have moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, pointwise, var
from tactix_ops.rules.anchors import takes_epilogue
from tactix_ops.rules.facts import again, used_only_by
from tactix_ops.rules.heads import TURN
from tactix_ops.rules.tokens import channels_first
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
    """A factor is none: attention takes those of its inputs into its scale. Nor is a Dequantize: it
    sinks, so that bytes are moved.
    """
    alone = not root.is_fused and len(root.inputs) == 1 and root.layer.name != "Dequantize"
    return alone and _is_moved_result(root.given[0], graph)


def _above(root: Node, turn: Node) -> Op:
    return T.Transpose(again(root, turn.given), perm=turn.attrs.perm)


def _above_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6])
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(np.eye(6, dtype=np.float32) * 2)])
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))
    (y,) = net.add_layer("tactix.Tanh", [y])
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


# -- sums ------------------------------------------------------------------------------------------

_ALIKE = (T.Transpose(var("x")) >> "turn", T.Transpose(var("y")) >> "other")
_BOTH_TURNED = any_of(T.Add(*_ALIKE), T.Sub(*_ALIKE), T.Mul(*_ALIKE))


def _moved_alike(root: Node, turn: Node, other: Node, graph: Any) -> bool:
    """Whether neither broadcasts, and one Transpose at least is gone afterwards."""
    if turn.attrs.perm != other.attrs.perm or turn is other:
        return False
    (x,), (y,) = turn.outputs, other.outputs
    gone = used_only_by(graph, x, root) or used_only_by(graph, y, root)
    return gone and x.spec.shape == y.spec.shape


def _sum_above(root: Node, x: Value, y: Value, turn: Node) -> Op:
    return T.Transpose(again(root, [x, y]), perm=turn.attrs.perm)


def _sum_example(net: Any) -> None:
    x, y = (net.add_input(name, "f32", ["n", 3, 4]) for name in "xy")
    turned = [net.add_layer("tactix.Transpose", [v], perm=(0, 2, 1))[0] for v in (x, y)]
    (z,) = net.add_layer("tactix.Add", turned)
    net.mark_output(net.add_layer("tactix.Softmax", [z])[0], "z")


# -- images beside tokens, on devices that keep an image's channels last ---------------------------


def _is_image_of_kernel(v: Value) -> bool:
    """Whether a convolution makes it, whose channels lie last there: then moving it is a view."""
    return v.producer is not None and v.producer.kind == "tactix.Convolution@1"


def _beside_image(root: Node, turn: Node, image: Value, graph: Any) -> bool | str:
    moved = turn.outputs[0]
    if not channels_first(turn) or not used_only_by(graph, moved, root):
        return "no tokens become an image for the sum alone"
    if image.spec.shape != moved.spec.shape or not _is_image_of_kernel(image):
        return "what is added is no image that a convolution makes"
    return _is_moved_result(moved, graph)


def _sum_of_tokens(root: Node, x: Value, image: Value, turn: Node) -> Op:
    rank = len(turn.attrs.perm)
    tokens = T.Transpose(image, perm=(0, *range(2, rank), 1))
    return T.Transpose(T.Add(x, tokens), perm=turn.attrs.perm)


def _image_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    image = net.add_input("image", "f32", ["n", 4, 3, 3])
    w, v = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((4, 4, 1, 1), (4, 4))
    )
    (y,) = net.add_layer("tactix.Convolution", [image, w])
    (x,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ["n", 3, 3, 4]), v])
    (x,) = net.add_layer("tactix.Transpose", [x], perm=(0, 3, 1, 2))
    net.mark_output(net.add_layer("tactix.Add", [x, y])[0], "y")
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "z")


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
        "tactix.moved_alike",
        _BOTH_TURNED,
        _sum_above,
        _moved_alike,
        benefit=30,
        exclusive=False,
        example=_sum_example,
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

GRAPHICS_RULES = (
    Rule(
        "tactix.image_beside_tokens",
        T.Add(T.Transpose(var("x")) >> "turn", var("image")),
        _sum_of_tokens,
        _beside_image,
        benefit=29,
        device="cuda",
        example=_image_example,
    ),
)
