"""Images that are parted into windows, and windows put together as images, by moves of whole rows
of channels.

Exports part an image (n, c, h, w) by a Reshape and a Transpose that puts the channels last, and put
it together the other way round. On GPUs images between convolutions have their channels last
already, so that a Transpose which only says so moves nothing, and what is left moves rows: wide
copies, and several such moves are one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, var
from tactix_ops.rules.facts import used_only_by

T = P.tactix
IMAGES = frozenset({
    "Convolution", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize",
})  # fmt: skip
"""Layers of images whose kernels take channels last."""
EARLY = 95
"""Before layers are fused or lowered, and rows that move are one step. Canonical rules have one
Transpose behind all views; these take that apart again.
"""
FAR = 6
"""Pointwise layers between an image's maker or reader and the moves, at most."""


def _is_image(v: Value, far: int = FAR) -> bool:
    """Whether the tensor is made with channels last, as far as the layers before it tell."""
    p = v.producer
    if p is None:
        return False
    if any(n.layer.name in IMAGES for n in p.body.nodes):
        return True
    same = (x for x in p.given if x.const is None and x.spec.shape == v.spec.shape)
    return p.layer.is_pointwise and far > 0 and any(_is_image(x, far - 1) for x in same)


def _is_read_as_image(v: Value, graph: Any, far: int = FAR) -> bool:
    """Whether something reads the tensor with channels last."""
    for node, _ in graph.uses(v):
        if any(n.layer.name in IMAGES for n in node.body.nodes):
            return True
        same = node.layer.is_pointwise and node.outputs[0].spec.shape == v.spec.shape
        if same and far > 0 and _is_read_as_image(node.outputs[0], graph, far - 1):
            return True
    return False


def _axis(image: Value, parts: Value) -> int:
    """Which axis of the parts has the channels of the image (n, c, pixels...): the second, or the
    first where one sample's axis has been dropped; -1 if its pixels are no parts of the image's.
    """
    (n, c, *pixels), other = image.spec.shape, parts.spec.shape
    if len(pixels) < 2 or 0 in (*image.spec.shape, *other):
        return -1
    if other[:2] == (n, c) and list(other[2:]) != pixels:
        return 1
    return 0 if n == 1 and other[:1] == (c,) and list(other[1:]) != pixels else -1


def _channels_last(perm: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """What a Transpose does beside putting ``axis`` last, where it is last already."""
    rank = len(perm)
    return tuple(rank - 1 if a == axis else a - (a > axis) for a in perm)


def _without(shape: Any, axis: int) -> tuple[Any, ...]:
    """The shape with that axis last."""
    return (*shape[:axis], *shape[axis + 1 :], shape[axis])


# -- parted --------------------------------------------------------------------------------------


def _parted_when(root: Node, x: Value, view: Node, graph: Any) -> bool:
    axis = _axis(x, view.outputs[0]) if x.spec.rank > 3 else -1
    own = used_only_by(graph, view.outputs[0], root)
    return own and axis >= 0 and root.attrs.perm[-1] == axis and _is_image(x)


def _parted(root: Node, x: Value, view: Node) -> Op:
    parts, axis = view.outputs[0], _axis(x, view.outputs[0])
    last = T.Transpose(x, perm=(0, *range(2, x.spec.rank), 1))
    rows = T.Reshape(last, shape=_without(parts.spec.shape, axis))
    return T.Transpose(rows, perm=_channels_last(root.attrs.perm, axis))


def _image(net: Any) -> Value:
    x = net.add_input("x", "f32", [2, 3, 4, 6])
    w = net.add_constant(np.random.default_rng(2).standard_normal((5, 3, 1, 1), dtype=np.float32))
    y: Value = net.add_layer("tactix.Convolution", [x, w])[0]
    return y


def _parted_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Reshape", [_image(net)], shape=(2, 5, 2, 2, 3, 2))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 4, 3, 5, 1))
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


# -- put together --------------------------------------------------------------------------------


def _joined_when(root: Node, x: Value, move: Node, graph: Any) -> bool:
    y = root.outputs[0]
    axis = _axis(y, move.outputs[0]) if y.spec.rank > 3 else -1
    own = used_only_by(graph, move.outputs[0], root)
    last = axis >= 0 and move.attrs.perm[axis] == x.spec.rank - 1
    return own and last and _is_read_as_image(y, graph)


def _joined(root: Node, x: Value, move: Node) -> Op:
    y = root.outputs[0]
    axis, (n, c, *pixels) = _axis(y, move.outputs[0]), y.spec.shape
    moved = T.Transpose(x, perm=_without(move.attrs.perm, axis))
    rows = T.Reshape(moved, shape=(n, *pixels, c))
    return T.Transpose(rows, perm=(0, len(pixels) + 1, *range(1, len(pixels) + 1)))


def _joined_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", [2, 2, 3, 2, 2, 5])])
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 5, 1, 3, 2, 4))
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(2, 5, 4, 6))
    w = net.add_constant(np.random.default_rng(3).standard_normal((3, 5, 1, 1), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.Convolution", [y, w])[0], "y")


# -- put together and parted again ---------------------------------------------------------------


def _from_last(x: Value, move: Node) -> int:
    """To which axis a Transpose moves the last one."""
    return int(move.attrs.perm.index(x.spec.rank - 1))


def _is_kept(root: Node, x: Value, move: Node, view: Node) -> bool:
    """Whether a Transpose takes the channels from the last axis, a Reshape keeps them and all
    before them but axes of 1, and a Transpose puts them last again.
    """
    i, j = _from_last(x, move), root.attrs.perm[-1]
    before, after = move.outputs[0].spec.shape, view.outputs[0].spec.shape
    ahead = [[d for d in shape if d != 1] for shape in (before[:i], after[:j])]
    inner = i < len(before) - 1 and j < len(after) - 1 and 0 not in (*before, *after)
    return inner and ahead[0] == ahead[1] and before[i] == after[j]


def _again_when(root: Node, x: Value, move: Node, view: Node, graph: Any) -> bool:
    own = used_only_by(graph, move.outputs[0], view) and used_only_by(graph, view.outputs[0], root)
    return own and _is_kept(root, x, move, view)


def _again(root: Node, x: Value, move: Node, view: Node) -> Op:
    axis = root.attrs.perm[-1]
    moved = T.Transpose(x, perm=_without(move.attrs.perm, _from_last(x, move)))
    rows = T.Reshape(moved, shape=_without(view.outputs[0].spec.shape, axis))
    return T.Transpose(rows, perm=_channels_last(root.attrs.perm, axis))


def _again_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", [2, 2, 3, 2, 2, 5])])
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 5, 1, 3, 2, 4))
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(2, 5, 2, 2, 2, 3))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 4, 3, 5, 1))
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


_MOVE = T.Transpose(var("x")) >> "move"

RULES = tuple(
    Rule(
        f"tactix.{name}",
        pattern,
        replace,
        when,
        benefit=EARLY,
        exclusive=False,
        example=example,
        phase="fuse",
        device="cuda",
    )
    for name, pattern, replace, when, example in (
        (
            "parted_by_rows",
            T.Transpose(T.Reshape(var("x")) >> "view"),
            _parted,
            _parted_when,
            _parted_example,
        ),
        ("joined_by_rows", T.Reshape(_MOVE), _joined, _joined_when, _joined_example),
        (
            "parted_again_by_rows",
            T.Transpose(T.Reshape(_MOVE) >> "view"),
            _again,
            _again_when,
            _again_example,
        ),
    )
)
