"""MaxPool over large windows on a processor: along one axis after the other."""

from __future__ import annotations

import math
from typing import Any

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, var
from tactix_ops.rules.facts import again

T = P.tactix
FEWEST = 25
"""Elements of a window from which on it is taken apart. 13 by 13 took a ninth of the time so; of 3
by 3 the second pass over memory costs what fewer comparisons gain. Sizes between were not measured.
"""


def _when(root: Node) -> bool:
    kernel = root.attrs.kernel_shape
    return bool(math.prod(kernel) >= FEWEST and sum(k > 1 for k in kernel) > 1)


def _apart(root: Node, x: Value) -> Any:
    """The last axis first, whose pass reads the most and leaves fewer elements to the others."""
    a, n = root.attrs, len(root.attrs.kernel_shape)
    strides, dilations = a.strides or (1,) * n, a.dilations or (1,) * n
    pads = a.pads or (0,) * 2 * n
    y: Value | Op = x
    for axis in reversed(range(n)):

        def only(values: Any, other: int, axis: int = axis) -> tuple[Any, ...]:
            return tuple(v if i % n == axis else other for i, v in enumerate(values))

        y = again(
            root,
            [y],
            kernel_shape=only(a.kernel_shape, 1),
            strides=only(strides, 1),
            dilations=only(dilations, 1),
            pads=only(pads, 0),
        )
    return y


def _example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 2, 9, "w"])
    (y,) = net.add_layer(
        "tactix.MaxPool", [x], kernel_shape=(5, 5), pads=(2, 2, 2, 2), strides=(1, 2)
    )
    net.mark_output(y, "y")


RULES = (
    Rule(
        "tactix.large_max_pool_by_axes",
        T.MaxPool(var("x")),
        _apart,
        _when,
        benefit=30,
        device="cpu",
        example=_example,
    ),
)
