"""Moves of quantised tensors: bytes are moved, not the floats they stand for. QuantizeLinear rises
above what moves, and Dequantize sinks below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import compare
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, const, var
from tactix_ops.layers.float8 import FLOATS
from tactix_ops.layers.quantize import limits
from tactix_ops.rules.conv import pad_into_conv, surrounds_pixels
from tactix_ops.rules.facts import again, fields_of
from tactix_ops.rules.quantize import affine, makes_bytes, reads_bytes
from tactix_ops.rules.quantized_products import moved_bytes

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


# -- quantised behind a move, or moved behind a Dequantize ---------------------------------------


def _enlarges(moved: Node) -> bool:
    """Whether there are no fewer elements behind the move than before it, each of them a copy."""
    (x,), (y,) = moved.given[:1], moved.outputs
    if moved.layer.name in ("Transpose", "Reshape"):
        return True
    return _copies(moved) and compare(x.spec.numel, y.spec.numel) in ("<", "<=", "==")


def _copies(moved: Node) -> bool:
    return moved.layer.name != "Resize" or moved.attrs.mode == "nearest"


def _above_when(root: Node, x: Value, moved: Node) -> bool:
    return makes_bytes(root, x) and _enlarges(moved) and not _has_heads(x)


def _any_above_when(root: Node, x: Value) -> bool:
    """Whether bytes or floats of 8 bits are made by one scale, and not of heads."""
    one = root.attrs.dtype in FLOATS and x.spec.dtype is DType.FP32 and not root.attrs.block_size
    float8 = one and root.given[1].array.size == 1
    return (float8 or makes_bytes(root, x)) and not _has_heads(x)


def _has_heads(x: Value) -> bool:
    """Whether attention makes the tensor, or a product of computed tensors that may be its: its
    kernel moves the heads, and makes bytes of what it has moved.
    """
    made = x.producer
    while made is not None and made.layer.name in ("Transpose", "Reshape"):
        made = made.given[0].producer
    if made is None:
        return False
    computed = all(v.const is None for v in made.given[:2])
    return made.layer.name in HEADS or (made.layer.name == "MatMul" and computed)


HEADS = frozenset({"Attention", "TokenAttention"})


def _above(root: Node, x: Value, moved: Node) -> Op:
    return again(moved, [again(root, [x, *root.inputs[1:]]), *moved.inputs[1:]])


def _above_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Transpose", [net.add_input("x", "f32", ["n", 3, 5])], perm=TURN)
    _quantized_output(net, y)


TURN = (0, 2, 1)


def _quantized_output(net: Any, y: Value) -> None:
    inputs = [y, net.add_constant(np.float32(0.25)), net.add_constant(np.uint8(7))]
    net.mark_output(net.add_layer("tactix.QuantizeLinear", inputs, dtype=DType.UINT8)[0], "y")


def _joined_when(root: Node, joined: Node) -> bool:
    return all(makes_bytes(root, v) for v in joined.given)


def _joined(root: Node, joined: Node) -> Op:
    parts = {v: again(root, [v, *root.inputs[1:]]) for v in joined.given}
    return again(joined, [parts[v] for v in joined.given])


def _joined_example(net: Any) -> None:
    parts = [net.add_input(name, "f32", ["n", 3]) for name in "ab"]
    _quantized_output(net, net.add_layer("tactix.Concat", parts, axis=1)[0])


def _below_when(root: Node, graph: Any) -> bool:
    """What quantises alone rises itself, as it reads no more elements there."""
    (y,) = root.outputs
    reader = graph.only_use(y)
    rises = reader is not None and reader.layer.name == "QuantizeLinear" and _enlarges(root)
    return _copies(root) and reads_bytes(y, graph) and not (rises and makes_bytes(reader, y))


def _below(root: Node, x: Value, d: Node, before: Node | None = None) -> Op:
    return again(d, [again(root, [moved_bytes(x, before), *root.inputs[1:]])])


def _below_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Dequantize", [net.add_input("x", "u8", ["n", 3, 5])], scale=0.5)
    (y,) = net.add_layer("tactix.Transpose", [y], perm=TURN)
    net.mark_output(net.add_layer("tactix.Exp", [y])[0], "y")


def _parted_when(root: Node, graph: Any) -> bool:
    read = [v for v in root.outputs if graph.uses(v) or graph.is_output(v)]
    return all(reads_bytes(v, graph) for v in read)


def _parted(root: Node, x: Value, d: Node, before: Node | None = None) -> tuple[Op, ...]:
    parts = again(root, [moved_bytes(x, before), *root.inputs[1:]])
    fields = dict(fields_of(d.attrs))
    return tuple(T.Dequantize(parts.out(i), **fields) for i in range(len(root.outputs)))


def _parted_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Dequantize", [net.add_input("x", "u8", ["n", 5])], scale=0.5)
    for i, v in enumerate(net.add_layer("tactix.Split", [y], axis=1, sizes=(2, 3))):
        net.mark_output(net.add_layer("tactix.Exp", [v])[0], f"y{i}")


_D = T.Dequantize(var("x")) >> "d"
_DEQUANTIZED = any_of(_D, T.Reshape(_D) >> "before")
"""Reshapes sink below what is computed element by element, a Dequantize among it."""
_ENLARGED = tuple(
    layer(var("x")) >> "moved" for layer in (T.Transpose, T.Reshape, T.Expand, T.Resize)
)

PROCESSOR_RULES = (
    Rule(
        "tactix.quantize_above_move",
        T.QuantizeLinear(any_of(*_ENLARGED), const("s")),
        _above,
        _above_when,
        benefit=50,
        example=_above_example,
        device="cpu",
    ),
    Rule(
        "tactix.quantize_above_concat",
        T.QuantizeLinear(T.Concat() >> "joined", const("s")),
        _joined,
        _joined_when,
        benefit=50,
        example=_joined_example,
        device="cpu",
    ),
    Rule(
        "tactix.dequantize_below_move",
        any_of(*(layer(_DEQUANTIZED) for layer in (T.Transpose, T.Slice, T.Gather, T.Resize))),
        _below,
        _below_when,
        benefit=45,
        exclusive=False,
        example=_below_example,
        device="cpu",
    ),
    Rule(
        "tactix.dequantize_below_split",
        T.Split(_DEQUANTIZED),
        _parted,
        _parted_when,
        benefit=45,
        exclusive=False,
        example=_parted_example,
        device="cpu",
    ),
)

GRAPHICS_RULES = (
    Rule(
        "tactix.eight_bits_above_move",
        T.QuantizeLinear(
            any_of(*(layer(var("x")) >> "moved" for layer in (T.Transpose, T.Reshape, T.Roll))),
            const("s"),
        ),
        _above,
        _any_above_when,
        benefit=50,
        example=_above_example,
        device="cuda",
    ),
)

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
