"""Convolutions of single pixels with computed weights, beside products of matrices, which kernels
have more tiles for.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dims import floordiv, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Op, P, Rule, var

T = P.tactix


def _when(root: Node, x: Value, w: Value) -> bool | str:
    if w.const is not None or x.spec.dtype is not DType.FP32 or w.spec.dtype is not DType.FP32:
        return "the weights are constant, or it is not of float32"
    if any(s != 1 for s in root.attrs.strides) or any(p != 0 for p in root.attrs.pads):
        return "pixels are left out or added"
    if any(d != 1 for d in w.spec.shape[2:]) or 0 in (*x.spec.shape, *w.spec.shape):
        return "windows are of more than a pixel, or sizes are empty"
    return True


def _product(root: Node, x: Value, w: Value) -> Op:
    """Of each group, weights by pixels."""
    group, bias = root.attrs.group, root.inputs[2] if len(root.inputs) > 2 else None
    (n, channels, *size), (outputs, depth, *ones) = x.spec.shape, w.spec.shape
    weights = T.Reshape(w, shape=(1, group, floordiv(outputs, group), depth))
    pixels = T.Reshape(x, shape=(n, group, floordiv(channels, group), prod(size)))
    y = T.Reshape(T.MatMul(weights, pixels), shape=root.outputs[0].spec.shape)
    return y if bias is None else T.Add(y, T.Reshape(bias, shape=(1, outputs, *ones)))


def _example(net: Any) -> None:
    x, w, b = (
        net.add_input(name, "f32", shape)
        for name, shape in (("x", ["n", 4, 5, "s"]), ("w", [6, 2, 1, 1]), ("b", [6]))
    )
    net.mark_output(net.add_layer("tactix.Convolution", [x, w, b], group=2)[0], "y")


RULES = (
    Rule(
        "tactix.product_for_pixels",
        T.Convolution(var("x"), var("w")),
        _product,
        _when,
        numerics="reassociates",
        example=_example,
        phase=RIVAL,
        device="cpu",
    ),
)
