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


def channels_first(turn: Node) -> bool:
    """Whether the last axis becomes the second, and the others keep their order."""
    rank = len(turn.attrs.perm)
    return rank > 2 and tuple(turn.attrs.perm) == (0, rank - 1, *range(1, rank - 1))


def _mixes(root: Node, turn: Node, w: Value) -> bool | str:
    if not is_of_pixels(root) or not channels_first(turn):
        return "it is no convolution of single pixels that tokens are"
    if any(b.const is None for b in root.given[2:]):
        return "the bias is no constant"
    made, channels = w.array.shape[:2]
    return True if made <= channels else "more channels would be moved"


def _product(root: Node, x: Value, turn: Node, w: Value) -> Op:
    """Template: the product of the tokens, moved as they were."""
    matrix = w.array.reshape(w.array.shape[:2]).T
    y = T.MatMul(x, literal(contiguous(matrix)))
    for bias in root.given[2:]:
        y = T.Add(y, bias)
    return T.Transpose(y, perm=turn.attrs.perm)


def _example(net: Any) -> None:
    rng = np.random.default_rng(7)
    x = net.add_input("x", "f32", ["n", 6, 8])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(0, 2, 1))
    w, b = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((5, 8, 1), 5))
    net.mark_output(net.add_layer("tactix.Convolution", [y, w, b])[0], "y")


RULES = (
    Rule(
        "tactix.pixels_of_tokens",
        T.Convolution(_TURNED, const("w")),
        _product,
        _mixes,
        benefit=32,
        numerics="reassociates",
        example=_example,
    ),
)
