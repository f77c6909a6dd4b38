"""Convolutions of single pixels come before images grow: on fewer pixels they compute the same.

Such a convolution mixes channels and keeps places, a Resize mixes places and keeps channels, with
weights that add up to one: both are linear, so they may change places, bias and all. Heads of
segmentation and depth networks (FPN, UPerNet, SegFormer, DPT) enlarge first, in all channels, and
some join maps of several sizes before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base import dims
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, literal, var
from tactix_codegen.operations.resize import moves_pixels_alone
from tactix_ops.rules.facts import Array, again, contiguous, used_only_by

T = P.tactix
GROWTH = 2.0
"""Pixels of a result for each of the input from which on fewer products pay for what else changes:
a Resize of other channels, sums of parts.
"""
CHANNELS = 16
"""Input channels that a convolution has at least: with fewer, its products cost less than moving
the pixels, which are read and written either way.
"""


# -- what may change places ------------------------------------------------------------------------


def is_of_pixels(conv: Node) -> bool:
    """Whether a convolution reads one pixel for each of its results."""
    w, a = conv.given[1].spec, conv.attrs
    taps = all(d == 1 for d in w.shape[2:])
    return taps and a.group == 1 and not any(a.pads) and all(s == 1 for s in a.strides)


def _growth(resize: Node) -> float:
    """Pixels of the result for each of the input; 0 if only running tells."""
    out, given = dims.prod(resize.attrs.sizes[2:]), dims.prod(resize.given[0].spec.shape[2:])
    if isinstance(out, int) and isinstance(given, int):
        return out / given if given else 0.0
    return math.prod(resize.attrs.scales[2:]) if resize.attrs.scales else 0.0


def _is_enlarged(resize: Node) -> bool:
    """Whether pixels are added, and batch and channels stay as they are."""
    is_float = resize.given[0].spec.dtype.is_float
    return moves_pixels_alone(resize) and is_float and _growth(resize) >= GROWTH


def _pays(conv: Node, channels: int) -> bool:
    """Whether products saved outweigh a Resize of the result's channels instead."""
    made = conv.given[1].array.shape[0]
    return channels >= CHANNELS and (made <= channels or channels >= 2 * CHANNELS)


# -- one image -------------------------------------------------------------------------------------


def _resized_when(root: Node, w: Value, resize: Node) -> bool | str:
    if not is_of_pixels(root):
        return "the convolution reads more than a pixel"
    if not _is_enlarged(resize):
        return "it is not known to grow"
    return True if _pays(root, w.array.shape[1]) else "its channels are few"


def _over(conv: Node, inputs: Sequence[Any], resize: Node) -> Op:
    """Template: the result of a convolution, enlarged as its input was."""
    sizes = (*conv.outputs[0].spec.shape[:2], *resize.attrs.sizes[2:])
    return again(resize, [again(conv, inputs)], sizes=sizes)


def _resized(root: Node, x: Value, resize: Node) -> Op:
    return _over(root, [x, *root.inputs[1:]], resize)


def _enlarge(net: Any, x: Any, times: int, mode: str) -> Any:
    n, c, *pixels = x.spec.shape
    sizes = (n, c, *(d * times for d in pixels))
    scales = (1.0, 1.0, *[float(times)] * len(pixels))
    return net.add_layer("tactix.Resize", [x], sizes=sizes, scales=scales, mode=mode)[0]


def _resized_example(net: Any) -> None:
    rng = np.random.default_rng(5)
    y = _enlarge(net, net.add_input("x", "f32", ["n", 32, 3, "w"]), 2, "linear")
    w, b = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((8, 32, 1, 1), 8))
    net.mark_output(net.add_layer("tactix.Convolution", [y, w, b])[0], "y")


# -- several, joined -------------------------------------------------------------------------------


def _enlarged_part(v: Value, joined: Node, conv: Node, graph: Any) -> Node | None:
    """The Resize behind a part of the joined channels whose place may change."""
    p = v.producer
    if p is None or p.layer.name != "Resize" or not used_only_by(graph, v, joined):
        return None
    channels = v.spec.shape[1]
    pays = isinstance(channels, int) and _pays(conv, channels)
    return p if pays and _is_enlarged(p) else None


def _joined_when(root: Node, joined: Node, graph: Any) -> bool | str:
    rank = joined.outputs[0].spec.rank
    if rank < 3 or joined.attrs.axis % rank != 1 or not is_of_pixels(root):
        return "the convolution reads more than a pixel's joined channels"
    if not all(isinstance(v.spec.shape[1], int) for v in joined.given):
        return "channels of a part are not known"
    found = [_enlarged_part(v, joined, root, graph) for v in joined.given]
    return True if any(found) else "no part is known to grow"


@dataclass(frozen=True)
class _Part:
    """Some of the joined channels, the weights of a convolution that read them, and the Resize that
    makes them if it may change places.
    """

    channels: Value
    weights: Array
    resize: Node | None


def _parts(conv: Node, w: Value, joined: Node, graph: Any) -> list[_Part]:
    ends = np.cumsum([v.spec.shape[1] for v in joined.given])
    columns = np.split(w.array, ends[:-1], axis=1)
    return [
        _Part(v, c, _enlarged_part(v, joined, conv, graph))
        for v, c in zip(joined.given, columns, strict=True)
    ]


def _together(parts: Sequence[_Part], conv: Node, joined: Node) -> Op:
    """Template: one convolution of parts that stay as they are."""
    channels = [p.channels for p in parts]
    x = T.Concat(*channels, axis=joined.attrs.axis) if len(channels) > 1 else channels[0]
    weights = np.concatenate([p.weights for p in parts], axis=1)
    return again(conv, [x, literal(weights), *conv.inputs[2:]])


def _sum_of_parts(root: Node, w: Value, joined: Node, graph: Any) -> Op:
    """A convolution for each part that grows, and one for all others together, added up."""
    parts = _parts(root, w, joined, graph)
    plain = [p for p in parts if p.resize is None]
    terms = [_together(plain, root, joined)] if plain else []
    for p in parts:
        if p.resize is not None:
            bias = () if terms else root.inputs[2:]
            inputs = [p.resize.given[0], literal(contiguous(p.weights)), *bias]
            terms.append(_over(root, inputs, p.resize))
    return functools.reduce(T.Add, terms)


def _joined_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    small, large = (net.add_input(n, "f32", ["n", 32, s, s]) for n, s in (("a", 2), ("b", 4)))
    parts = [_enlarge(net, small, 2, "nearest"), large, _enlarge(net, small, 2, "linear")]
    (y,) = net.add_layer("tactix.Concat", parts, axis=1)
    w, b = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((8, 96, 1, 1), 8))
    net.mark_output(net.add_layer("tactix.Convolution", [y, w, b])[0], "y")


RULES = (
    Rule(
        "tactix.pixels_before_resize",
        T.Convolution(T.Resize(var("x")) >> "resize", const("w")),
        _resized,
        _resized_when,
        benefit=30,
        numerics="reassociates",
        example=_resized_example,
    ),
    Rule(
        "tactix.pixels_of_joined_sizes",
        T.Convolution(Op("tactix.Concat", None) >> "joined", const("w")),
        _sum_of_parts,
        _joined_when,
        benefit=31,
        numerics="reassociates",
        example=_joined_example,
    ),
)
