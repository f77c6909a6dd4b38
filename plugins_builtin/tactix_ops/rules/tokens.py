"""Images that are made of tokens: a convolution of single pixels is a product of the tokens, and
comes before they are moved. It joins the layers around it there, and fewer channels are moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, literal, var
from tactix_ops.rules.enlarged import is_of_pixels
from tactix_ops.rules.facts import contiguous

T = P.tactix
_TURNED = T.Transpose(var("x")) >> "turn"


def _channels_first(turn: Node) -> bool:
    """Whether the last axis becomes the second, and the others keep their order."""
    rank = len(turn.attrs.perm)
    return rank > 2 and tuple(turn.attrs.perm) == (0, rank - 1, *range(1, rank - 1))


def _mixes(root: Node, turn: Node, w: Value) -> bool | str:
    if not is_of_pixels(root) or not _channels_first(turn):
        return "it is no convolution of single pixels that tokens are"
    if any(b.const is None for b in root.given[2:]):
        return "the bias is no constant"
    made, channels = w.array.shape[:2]
    return True if made <= channels else "more channels would be moved"


def _image_when(root: Node, turn: Node, image: Node, w: Value) -> bool | str:
    moved = turn.outputs[0].spec.shape
    kept = image.outputs[0].spec.shape[:2] == moved[:2]
    return _mixes(root, turn, w) if kept else "channels are cut or joined"


def _product(root: Node, x: Value, turn: Node, w: Value) -> Op:
    """Template: the product of the tokens, moved as they were."""
    matrix = w.array.reshape(w.array.shape[:2]).T
    y = T.MatMul(x, literal(contiguous(matrix)))
    for bias in root.given[2:]:
        y = T.Add(y, bias)
    return T.Transpose(y, perm=turn.attrs.perm)


def _image(root: Node, x: Value, turn: Node, w: Value) -> Op:
    return T.Reshape(_product(root, x, turn, w), shape=root.outputs[0].spec.shape)


def _example(net: Any, reshaped: bool) -> None:
    rng = np.random.default_rng(7)
    (y,) = net.add_layer(
        "tactix.Transpose", [net.add_input("x", "f32", ["n", 6, 8])], perm=(0, 2, 1)
    )
    n = y.spec.shape[0]
    if reshaped:
        (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 8, 2, 3))
    kernel = (1, 1) if reshaped else (1,)
    w, b = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((5, 8, *kernel), 5)
    )
    net.mark_output(net.add_layer("tactix.Convolution", [y, w, b])[0], "y")


RULES = (
    Rule(
        "tactix.pixels_of_tokens",
        T.Convolution(_TURNED, const("w")),
        _product,
        _mixes,
        benefit=32,
        numerics="reassociates",
        example=lambda net: _example(net, False),
    ),
    Rule(
        "tactix.pixels_of_shaped_tokens",
        T.Convolution(T.Reshape(_TURNED) >> "image", const("w")),
        _image,
        _image_when,
        benefit=32,
        numerics="reassociates",
        example=lambda net: _example(net, True),
    ),
)
