"""Convolutions of images of one pixel, as squeeze and excitation has them, as products of rows.

For GPUs: a product of one row reads weights as fast as memory gives them, where tiles of pixels
wait for tiles of one. Behind the means of efficientnet_v2's images both took 2.7 and 1.9 us on an
H200, and 1.0 and 1.1 as rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, literal, var

T = P.tactix


def _when(root: Node, x: Value, w: Value) -> bool:
    a, bias = root.attrs, root.inputs[2] if len(root.inputs) > 2 else None
    ones = all(d == 1 for d in (*x.spec.shape[2:], *w.spec.shape[2:]))
    known = x.spec.dtype.is_float and x.const is None and (bias is None or bias.const is not None)
    return ones and known and a.group == 1 and not any(a.pads)


def _rows(root: Node, x: Value, w: Value) -> Op:
    weights = np.ascontiguousarray(w.array.reshape(w.array.shape[:2]).T)
    y = T.MatMul(T.Reshape(x, shape=x.spec.shape[:2]), literal(weights))
    bias = root.inputs[2] if len(root.inputs) > 2 else None
    return T.Reshape(y if bias is None else T.Add(y, bias), shape=root.outputs[0].spec.shape)


def _example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 8, 4, 5])
    (y,) = net.add_layer("tactix.GlobalAveragePool", [x])
    for shape in ((3, 8, 1, 1), (8, 3, 1, 1)):
        w, b = (net.add_constant(rng.random(s, dtype=np.float32)) for s in (shape, shape[:1]))
        (y,) = net.add_layer("tactix.Convolution", [y, w, b])
        (y,) = net.add_layer("tactix.Sigmoid", [y])
    net.mark_output(net.add_layer("tactix.Mul", [x, y])[0], "y")


RULES = (
    Rule(
        "tactix.product_of_one_pixel",
        T.Convolution(var("x"), const("w")),
        _rows,
        _when,
        benefit=30,
        numerics="reassociates",
        example=_example,
        device="cuda",
    ),
)
