"""Images that are parted into windows, and windows put together as images, by moves of whole rows
of channels.

Exports part an image (n, c, h, w) by a Reshape and a Transpose that puts the channels last, and put
it together the other way round. On GPUs images between convolutions have their channels last
already, so that a Transpose which only says so moves nothing, and what is left moves rows: wide
copies, and several such moves are one. Channels that are shuffled change places within rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Layers that hand an image on between its maker or reader and the moves, at most."""


def _hands_on(node: Node, x: Value, y: Value) -> bool:
    """Whether it makes an image y of an image x without a look at pixels around."""
    a, b = x.spec.shape, y.spec.shape
    beside = node.layer.name in ("Concat", "Split") and len(a) > 3 and a[2:] == b[2:]
    return beside or (node.layer.is_pointwise and a == b)


def _near(first: Value, next_to: Callable[[Value], Iterable[Value]]) -> Iterator[Value]:
    """A tensor, and those that are up to FAR steps of ``next_to`` away, each once."""
    seen, layer = {first}, [first]
    for _ in range(FAR + 1):
        yield from layer
        layer = list(dict.fromkeys(v for u in layer for v in next_to(u) if v not in seen))
        seen.update(layer)


def _before(v: Value) -> Iterable[Value]:
    """The images of which it is made without a look at pixels around."""
    p = v.producer
    return [x for x in p.given if x.const is None and _hands_on(p, x, v)] if p is not None else ()


def _is_of_images(node: Node | None) -> bool:
    return node is not None and any(n.layer.name in IMAGES for n in node.body.nodes)


def _is_image(v: Value) -> bool:
    """Whether the tensor is made with channels last, as far as the layers before it tell."""
    return any(_is_of_images(x.producer) for x in _near(v, _before))


def _is_read_as_image(v: Value, graph: Any) -> bool:
    """Whether something reads the tensor with channels last."""

    def behind(x: Value) -> Iterable[Value]:
        return [y for node, _ in graph.uses(x) for y in node.outputs if _hands_on(node, x, y)]

    return any(_is_of_images(node) for x in _near(v, behind) for node, _ in graph.uses(x))


def _last(image: Any, pixels: int) -> Op:
    """Template: an image with its channels last."""
    return T.Transpose(image, perm=(0, *range(2, pixels + 2), 1))


def _first(rows: Any, pixels: int) -> Op:
    """Template: the image of which the channels come last."""
    return T.Transpose(rows, perm=(0, pixels + 1, *range(1, pixels + 1)))


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
    rows = T.Reshape(_last(x, x.spec.rank - 2), shape=_without(parts.spec.shape, axis))
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
    return _first(T.Reshape(moved, shape=(n, *pixels, c)), len(pixels))


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


# -- shuffled ------------------------------------------------------------------------------------


def _groups(root: Node, x: Value, view: Node, move: Node) -> tuple[Any, ...]:
    """Groups and channels in each that change places, so that those of all groups lie in turn
    (Zhang et al., ShuffleNet, 2018); none if that is not all that is done.

    The axis of one sample may have been dropped.
    """
    (n, _, *pixels), parts = x.spec.shape, view.outputs[0].spec.shape
    if len(pixels) < 2 or root.outputs[0].spec.shape != x.spec.shape or 0 in x.spec.shape:
        return ()
    perm = move.attrs.perm
    if len(parts) == len(pixels) + 2 and n == 1:
        parts, perm = (1, *parts), (0, *(a + 1 for a in perm))
    whole = parts[:1] == (n,) and list(parts[3:]) == pixels
    return parts[1:3] if whole and perm == (0, 2, 1, *range(3, len(parts))) else ()


def _parts(x: Value, view: Node, groups: tuple[Any, ...], graph: Any) -> Sequence[Value]:
    """Images that the tensor is put together of for the view alone, one for each group; none if it
    is not.
    """
    p = x.producer
    if p is None or p.layer.name != "Concat" or p.attrs.axis % x.spec.rank != 1:
        return ()
    own = used_only_by(graph, x, view)
    alike = {v.spec.shape[1] for v in p.given} == {groups[1]} and len(p.given) == groups[0]
    return p.given if own and alike else ()


def _shuffled_when(root: Node, x: Value, view: Node, move: Node, graph: Any) -> bool:
    own = used_only_by(graph, view.outputs[0], move) and used_only_by(graph, move.outputs[0], root)
    image = _is_image(x) or _is_read_as_image(root.outputs[0], graph)
    return own and image and bool(_groups(root, x, view, move))


def _shuffled(root: Node, x: Value, view: Node, move: Node, graph: Any) -> Op:
    (n, c, *pixels), groups = x.spec.shape, _groups(root, x, view, move)
    if parts := _parts(x, view, groups, graph):
        return _in_turn(parts, x.spec.shape)
    rows = T.Reshape(_last(x, len(pixels)), shape=(n, *pixels, *groups))
    far = len(pixels) + 1
    moved = T.Transpose(rows, perm=(*range(far), far + 1, far))
    return _first(T.Reshape(moved, shape=(n, *pixels, c)), len(pixels))


def _in_turn(parts: Sequence[Any], shape: Sequence[Any]) -> Op:
    """Template: an image of that shape with the channels of several in turn, in one move."""
    n, c, *pixels = shape
    rows = [T.Reshape(_last(x, len(pixels)), shape=(n, *pixels, c // len(parts), 1)) for x in parts]
    turns = T.Concat(*rows, axis=len(pixels) + 2)
    return _first(T.Reshape(turns, shape=(n, *pixels, c)), len(pixels))


def _stacked(root: Node, joined: Node) -> Sequence[Any]:
    """Templates of the images whose channels a Concat along an axis behind them puts in turn; none
    if it does something else. The axis of one sample may have been dropped.
    """
    shape, parts = root.outputs[0].spec.shape, joined.outputs[0].spec.shape
    if len(shape) < 4 or 0 in shape or not isinstance(shape[1], int):
        return ()
    (n, c, *pixels), g = shape, len(joined.given)
    dropped = n == 1 and len(parts) == len(shape)
    whole = (1, *parts) if dropped else parts
    axis = joined.attrs.axis % len(parts) + dropped
    if g < 2 or whole != (n, c // g, g, *pixels) or axis != 2:
        return ()
    return [T.Reshape(v, shape=(n, c // g, *pixels)) for v in joined.given]


def _stacked_when(root: Node, joined: Node, graph: Any) -> bool:
    own = used_only_by(graph, joined.outputs[0], root)
    return own and bool(_stacked(root, joined)) and _is_read_as_image(root.outputs[0], graph)


def _turns(root: Node, joined: Node) -> Op:
    return _in_turn(_stacked(root, joined), root.outputs[0].spec.shape)


def _read_as_image(net: Any, y: Value) -> None:
    w = net.add_constant(np.random.default_rng(5).standard_normal((3, 6, 1, 1), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.Convolution", [y, w])[0], "y")


def _shuffled_example(net: Any) -> None:
    x = net.add_input("x", "f32", [2, 6, 4, 5])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(2, 2, 3, 4, 5))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1, 3, 4))
    _read_as_image(net, net.add_layer("tactix.Reshape", [y], shape=(2, 6, 4, 5))[0])


def _stacked_example(net: Any) -> None:
    parts = [net.add_input(name, "f32", [2, 3, 1, 4, 5]) for name in "ab"]
    (y,) = net.add_layer("tactix.Concat", parts, axis=2)
    _read_as_image(net, net.add_layer("tactix.Reshape", [y], shape=(2, 6, 4, 5))[0])


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
        (
            "shuffled_channels",
            T.Reshape(T.Transpose(T.Reshape(var("x")) >> "view") >> "move"),
            _shuffled,
            _shuffled_when,
            _shuffled_example,
        ),
        (
            "channels_in_turn",
            T.Reshape(T.Concat() >> "joined"),
            _turns,
            _stacked_when,
            _stacked_example,
        ),
    )
)
