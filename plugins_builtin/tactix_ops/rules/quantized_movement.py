"""Pads and looked-up rows of quantised tensors: bytes are moved, not the floats they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, var
from tactix_ops.layers.quantize import limits
from tactix_ops.rules.conv import pad_into_conv, surrounds_pixels
from tactix_ops.rules.facts import again
from tactix_ops.rules.quantize import affine, makes_bytes

T = P.tactix


# -- pads ----------------------------------------------------------------------------------------


def _quantized_border(root: Node, pad: Node) -> int:
    """The integer that stands for what is around."""
    a = affine(root)
    assert a is not None
    low, high = limits(root.attrs.dtype)
    whole = np.rint(np.float32(pad.attrs.value) / np.float32(a.scale)) + a.zero
    return int(np.clip(whole, low, high))


def _pad_when(root: Node, x: Value, pad: Node) -> bool:
    plain = pad.attrs.mode == "constant" and np.isfinite(pad.attrs.value)
    return bool(plain and makes_bytes(root, x))


def _pad_of_bytes(root: Node, x: Value, pad: Node) -> Op:
    inner = again(root, [x, *root.inputs[1:]])
    return again(pad, [inner], value=float(_quantized_border(root, pad)))


def _pad_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    pads = (0, 0, 1, 0, 0, 2)
    (y,) = net.add_layer("tactix.Pad", [x], pads=pads, mode="constant", value=0.5)
    inputs = [y, net.add_constant(np.float32(0.25)), net.add_constant(np.uint8(7))]
    net.mark_output(net.add_layer("tactix.QuantizeLinear", inputs, dtype=DType.UINT8)[0], "y")


def _into_conv_when(root: Node, x: Value, pad: Node) -> bool:
    return surrounds_pixels(x, pad) and pad.attrs.value == root.attrs.pad_value


def _into_conv_example(net: Any) -> None:
    x = net.add_input("x", "u8", ["n", 2, 5, 6])
    pads = (0, 0, 0, 0, 0, 0, 1, 1)
    (y,) = net.add_layer("tactix.Pad", [x], pads=pads, mode="constant", value=7.0)
    w = net.add_constant(np.arange(-36, 36).astype(np.int8).reshape(4, 2, 3, 3))
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (1, 0, 0, 0), "pad_value": 7}
    net.mark_output(net.add_layer("tactix.IntegerConvolution", [y, w], **attrs)[0], "y")


# -- rows of a table -----------------------------------------------------------------------------


def _table_when(table: Node) -> bool:
    return affine(table) is not None and not table.attrs.block_size


def _rows_of_bytes(root: Node, x: Value, indices: Value, table: Node) -> Op:
    return again(table, [again(root, [x, indices]), *table.inputs[1:]])


def _table_example(net: Any) -> None:
    w = net.add_constant(np.arange(-20, 20).astype(np.int8).reshape(8, 5))
    (y,) = net.add_layer(
        "tactix.DequantizeLinear",
        [w, net.add_constant(np.float32(0.5)), net.add_constant(np.int8(-3))],
    )
    indices = net.add_constant(np.array([[1, -2, 0], [7, 1, 1]]))
    net.mark_output(net.add_layer("tactix.Gather", [y, indices], axis=0)[0], "y")


RULES = (
    Rule(
        "tactix.pad_of_bytes",
        T.QuantizeLinear(T.Pad(var("x")) >> "pad", const("s")),
        _pad_of_bytes,
        _pad_when,
        benefit=50,
        example=_pad_example,
    ),
    Rule(
        "tactix.pad_into_integer_convolution",
        T.IntegerConvolution(T.Pad(var("x")) >> "pad"),
        pad_into_conv,
        _into_conv_when,
        benefit=35,
        example=_into_conv_example,
    ),
    Rule(
        "tactix.rows_of_bytes",
        T.Gather(T.DequantizeLinear(const("x"), const("s")) >> "table", var("indices")),
        _rows_of_bytes,
        _table_when,
        benefit=70,
        example=_table_example,
    ),
)
