"""What pooling takes over: a Pad before it becomes its own pads, which no kernel stores."""

from __future__ import annotations

from typing import Any

from tactix.base.dims import Dim
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, var
from tactix_ops.rules.facts import again

T = P.tactix
NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Abs", "Exp"})
"""Layers whose results zeros around them do not exceed, but that are zeros themselves."""


def _around(root: Node, pad: Node) -> tuple[Dim, ...] | None:
    """Pads of the spatial axes, if every window has an element that is none; both layers' own."""
    rank, own, a = root.given[0].spec.rank, root.attrs, pad.attrs
    axes = range(rank - 2)
    outside = any(a.pads[i] != 0 or a.pads[rank + i] != 0 for i in (0, 1))
    if a.mode != "constant" or outside or own.ceil_mode:
        return None
    found = (*a.pads[2:rank], *a.pads[rank + 2 :])
    before = own.pads or (0,) * len(found)
    total = tuple(p + q for p, q in zip(found, before, strict=True))
    steps = own.dilations or (1,) * (rank - 2)
    spans = [(own.kernel_shape[i] - 1) * steps[i] + 1 for i in axes]
    fits = all(
        isinstance(p, int) and isinstance(q, int) and p >= 0 and q < span
        for p, q, span in zip(found, total, spans * 2, strict=True)
    )
    return total if fits else None


def _has_pixels(x: Value) -> bool:
    return all(isinstance(d, int) and d > 0 for d in x.spec.shape[2:])


def _most_when(root: Node, x: Value, pad: Node) -> bool | str:
    own = root.attrs.pads
    if _around(root, pad) is None or not x.spec.dtype.is_float:
        return "a window may have nothing but pads"
    if pad.attrs.value == -float("inf"):
        return True
    p = x.producer
    plain = p is not None and p.layer.name in NOT_NEGATIVE and not any(own) and _has_pixels(x)
    return True if pad.attrs.value == 0 and plain else "what is padded with may be the largest"


def _mean_when(root: Node, pad: Node) -> bool | str:
    counts = root.attrs.count_include_pad or not any(root.attrs.pads)
    if pad.attrs.value != 0 or _around(root, pad) is None:
        return "it is no border of zeros"
    return True if counts else "one border counts, the other does not"


def _largest(root: Node, x: Value, pad: Node) -> Op:
    return again(root, [x], pads=_around(root, pad))


def _mean(root: Node, x: Value, pad: Node) -> Op:
    return again(root, [x], pads=_around(root, pad), count_include_pad=True)


def _example(net: Any, pool: str) -> None:
    (x,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", ["n", 3, 7, 6])])
    pads = (0, 0, 1, 0, 0, 0, 1, 2)
    (y,) = net.add_layer("tactix.Pad", [x], pads=pads, mode="constant", value=0.0)
    (y,) = net.add_layer(f"tactix.{pool}", [y], kernel_shape=(3, 3), strides=(2, 2))
    net.mark_output(y, "y")


RULES = (
    Rule(
        "tactix.pad_into_max_pool",
        T.MaxPool(T.Pad(var("x")) >> "pad"),
        _largest,
        _most_when,
        benefit=40,
        example=lambda net: _example(net, "MaxPool"),
    ),
    Rule(
        "tactix.pad_into_mean_pool",
        T.AveragePool(T.Pad(var("x")) >> "pad"),
        _mean,
        _mean_when,
        benefit=40,
        example=lambda net: _example(net, "AveragePool"),
    ),
)
