"""Channels that become pixels (pixel shuffles of upsampling networks, phases of transposed
convolutions), as one layer that moves whole channels.

Exports write a Reshape that splits the channels, a Transpose and a Reshape. Where the first C
channels are the first pixels of all blocks (ONNX's DCR) each pixel's C channels stay together, in
formats that keep channels close to each other, too. Pixel shuffles have the pixels of one channel
together (CRD, W. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016): the
convolution that made them then gives its channels in the other order, as its weights are turned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Shape
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, literal, var
from tactix_ops.rules.facts import Array, again, used_only_by

T = P.tactix
EARLY = 97
"""Before layers are fused or lowered, and before moves of images become moves of rows."""
CONVOLUTIONS = ("tactix.Convolution@1", "tactix.WideConvolution@1")
FAR = 4
"""Pointwise layers between the convolution and the moves, at most."""


@dataclass(frozen=True)
class PixelBlocks:
    """``blocks``: of each spatial axis. ``together``: whether the pixels of one channel stand
    together (CRD).
    """

    blocks: tuple[int, ...]
    together: bool


def _squeezed(shape: Shape, perm: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """What a Transpose of that shape does, without axes of one element."""
    kept = [axis for axis, d in enumerate(shape) if d != 1]
    return tuple(shape[a] for a in kept), tuple(kept.index(a) for a in perm if a in kept)


def _blocks(x: Value, moved: Node, y: Value) -> PixelBlocks | None:
    """What a Transpose between two Reshapes does, from ``x`` to ``y``; None if it is another
    thing.
    """
    source, target = x.spec.shape, y.spec.shape
    if len(source) != len(target) or len(source) < 3 or 0 in (*source, *target):
        return None
    pairs = list(zip(source[1:], target[1:], strict=True))
    if source[0] != target[0] or not all(isinstance(d, int) for d in pairs[0]):
        return None
    found = [_times(a, b, moved.given[0].spec.shape) for a, b in pairs[1:]]
    blocks = tuple(b for b in found if b is not None)
    if len(blocks) < len(found) or math.prod(blocks) == 1:
        return None
    if pairs[0][0] != pairs[0][1] * math.prod(blocks):
        return None
    done = _squeezed(moved.given[0].spec.shape, moved.attrs.perm)
    for together in (False, True):
        if _squeezed(*_split(source, target[1], blocks, together)) == done:
            return PixelBlocks(blocks, together)
    return None


def _times(small: Any, large: Any, sizes: Shape) -> int | None:
    """Which of the sizes, or 1, makes the one from the other."""
    factors = (1, *(d for d in sizes if isinstance(d, int)))
    return next((f for f in factors if small * f == large), None)


def _split(
    source: Shape, channels: Any, blocks: tuple[int, ...], together: bool
) -> tuple[Shape, tuple[int, ...]]:
    """The parts of an image, and the order in which they are its pixels."""
    n, k, sizes = source[0], len(blocks), source[2:]
    if together:
        inside = [axis for i in range(k) for axis in (k + 2 + i, 2 + i)]
        return (n, channels, *blocks, *sizes), (0, 1, *inside)
    inside = [axis for i in range(k) for axis in (k + 2 + i, 1 + i)]
    return (n, *blocks, channels, *sizes), (0, k + 1, *inside)


# -- the order in which whole channels move -------------------------------------------------------


def _own(root: Node, view: Node, move: Node, graph: Any) -> bool:
    inner = used_only_by(graph, view.outputs[0], move)
    return inner and used_only_by(graph, move.outputs[0], root)


def _moves_when(root: Node, x: Value, view: Node, move: Node, graph: Any) -> bool:
    found = _blocks(x, move, root.outputs[0])
    return found is not None and not found.together and _own(root, view, move, graph)


def _moves(root: Node, x: Value, view: Node, move: Node) -> Op:
    found = _blocks(x, move, root.outputs[0])
    assert found is not None
    return T.DepthToSpace(x, blocks=found.blocks)


def _image(net: Any) -> Value:
    x: Value = net.add_input("x", "f32", [2, 12, 3, 4])
    return x


def _moves_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Reshape", [_image(net)], shape=(2, 2, 2, 3, 3, 4))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 3, 4, 1, 5, 2))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(2, 3, 6, 8))[0], "y")


# -- the other order, made by a convolution -------------------------------------------------------


def _maker(x: Value, graph: Any, far: int = FAR) -> Node | None:
    """The convolution of one group with constant weights that made the channels, perhaps through
    pointwise layers, which may be asked for them in another order.
    """
    node = x.producer
    if node is None or node.is_fused or graph.only_use(x) is None:
        return None
    if node.kind in CONVOLUTIONS:
        known = all(v.const is not None for v in node.given[1:])
        return node if node.attrs.group == 1 and known else None
    if not node.layer.is_pointwise or len(node.outputs) != 1 or far == 0:
        return None
    computed = [v for v in node.given if v.const is None]
    if len(computed) != 1 or computed[0].spec.shape != x.spec.shape:
        return None
    if not all(_by_channel(v, x) is not None for v in node.given if v.const is not None):
        return None
    return _maker(computed[0], graph, far - 1)


def _by_channel(v: Value, x: Value) -> int | None:
    """Which axis of a constant goes along the channels of ``x``; -1 for a single number, None for
    what has numbers of its own for pixels or samples, too.
    """
    if v.const is None or v.const.size == 1:
        return None if v.const is None else -1
    axis = v.spec.rank - x.spec.rank + 1
    alone = axis >= 0 and v.spec.shape[axis] == v.const.size == x.spec.shape[1]
    return axis if alone else None


def _turned(array: Array, axis: int, count: int) -> Array:
    """An axis of channels by ``count`` pixels, with all channels of a pixel together."""
    if axis < 0:
        return array
    shape = array.shape
    parts = array.reshape(*shape[:axis], -1, count, *shape[axis + 1 :])
    return parts.swapaxes(axis, axis + 1).reshape(shape)


def _again(x: Value, count: int) -> Op:
    """What makes ``x``, with its channels in the other order."""
    node = x.producer
    assert node is not None
    if node.kind in CONVOLUTIONS:
        first, *rest = node.given
        return again(node, [first, *(literal(_turned(v.array, 0, count)) for v in rest)])
    inputs: list[Any] = []
    for v in node.inputs:
        if v is None or v.const is None:
            inputs.append(None if v is None else _again(v, count))
        else:
            axis = _by_channel(v, x)
            assert axis is not None
            inputs.append(literal(_turned(v.array, axis, count)))
    return again(node, inputs)


def _shuffled_when(root: Node, x: Value, view: Node, move: Node, graph: Any) -> bool:
    found = _blocks(x, move, root.outputs[0])
    if found is None or not found.together or not _own(root, view, move, graph):
        return False
    return used_only_by(graph, x, view) and _maker(x, graph) is not None


def _shuffled(root: Node, x: Value, view: Node, move: Node) -> Op:
    found = _blocks(x, move, root.outputs[0])
    assert found is not None
    return T.DepthToSpace(_again(x, math.prod(found.blocks)), blocks=found.blocks)


def _shuffled_example(net: Any) -> None:
    import numpy as np

    rng = np.random.default_rng(4)
    weights, bias, slope = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32))
        for s in ((8, 12, 3, 3), (8,), (8, 1, 1))
    )
    (y,) = net.add_layer("tactix.Convolution", [_image(net), weights, bias], pads=(1, 1, 1, 1))
    (y,) = net.add_layer("tactix.Mul", [y, slope])
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(2, 2, 2, 2, 3, 4))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 1, 4, 2, 5, 3))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(2, 2, 6, 8))[0], "y")


_PARTS = T.Reshape(T.Transpose(T.Reshape(var("x")) >> "view") >> "move")

RULES = (
    Rule(
        "tactix.channels_as_pixels",
        _PARTS,
        _moves,
        _moves_when,
        benefit=EARLY,
        example=_moves_example,
        phase="fuse",
    ),
    Rule(
        "tactix.shuffled_by_weights",
        _PARTS,
        _shuffled,
        _shuffled_when,
        benefit=EARLY,
        example=_shuffled_example,
        phase="fuse",
    ),
)
