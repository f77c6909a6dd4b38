"""What no kernel of bytes takes is computed element by element on a processor, in the loops around:
tensors that have a scale for each channel, or are of 16 bits, are quantised and dequantised by
layers of floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, literal, var
from tactix_ops.layers.quantize import limits, spread
from tactix_ops.rules.facts import Array

T = P.tactix
WHOLE = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
"""Integers that vectors of C hold, and float32 exactly."""
FEW = (DType.INT4, DType.UINT4, DType.INT2, DType.UINT2)
"""Integers that only float32 holds there."""


def _along(root: Node, parameter: Value | None, otherwise: float) -> Array:
    """A scale or zero point as float32 that broadcasts to the tensor."""
    if parameter is None:
        return np.float32(otherwise)
    axis, rank = root.attrs.axis, root.given[0].spec.rank
    given = parameter.array.astype(np.float32)
    same = given.size > 0 and bool((given == given.flat[0]).all())
    return given.reshape(-1)[0] if same else spread(given, (1,) * rank, axis, 0)


def _parameters(root: Node) -> tuple[Array, Array]:
    """The scale and the zero point of a QuantizeLinear or DequantizeLinear."""
    scale, zero = (*root.inputs, None)[1:3]
    return _along(root, scale, 1.0), _along(root, zero, 0.0)


def _fits(root: Node) -> bool:
    """Whether all that it reads beside the tensor is constant, and whole numbers are not few bits,
    nor scales those of blocks.
    """
    known = all(v.const is not None for v in root.given[1:])
    floats = root.given[1].spec.dtype is DType.FP32
    return known and floats and not root.attrs.block_size and root.given[0].const is None


def _rounds(node: Node, dtypes: tuple[DType, ...]) -> bool:
    """Whether a QuantizeLinear makes such integers of float32, by factors."""
    x = node.given[0].spec
    if not _fits(node) or node.attrs.dtype not in dtypes or x.dtype is not DType.FP32:
        return False
    scale, _ = _parameters(node)
    with np.errstate(divide="ignore"):
        inverse = np.float32(1) / scale
    return bool((scale > 0).all() and np.isfinite(inverse).all())


def _rounded(node: Node, x: Value) -> Op:
    """The integers of a QuantizeLinear as floats."""
    scale, zero = _parameters(node)
    low, high = limits(node.attrs.dtype)
    inverse = (np.float32(1) / scale).astype(np.float32)
    whole = T.Round(T.Mul(x, literal(np.asarray(inverse))))
    moved = T.Add(whole, literal(np.asarray(zero)))
    return T.Clip(moved, min=float(low), max=float(high))


def _scaled(node: Node, whole: Op) -> Op:
    """What a DequantizeLinear makes of integers that are floats."""
    scale, zero = _parameters(node)
    return T.Mul(T.Sub(whole, literal(np.asarray(zero))), literal(np.asarray(scale)))


def _quantize_when(root: Node, graph: Any) -> bool:
    """Whether the integers are stored: what one DequantizeLinear alone reads is not."""
    reader = graph.only_use(root.outputs[0])
    return _rounds(root, WHOLE) and not (reader is not None and _read_back(reader, root))


def _quantize(root: Node, x: Value) -> Op:
    return T.Cast(_rounded(root, x), to=root.attrs.dtype)


def _dequantize_when(root: Node, x: Value) -> bool:
    made = root.outputs[0].spec.dtype
    return _fits(root) and x.spec.dtype in WHOLE and made is DType.FP32


def _dequantize(root: Node, x: Value) -> Op:
    return _scaled(root, T.Cast(x, to=DType.FP32))


def _read_back(root: Node, q: Node) -> bool:
    """Whether a DequantizeLinear makes floats again of what the other node made whole."""
    linear = root.layer.name == "DequantizeLinear"
    floats = root.outputs[0].spec.dtype is DType.FP32
    return linear and floats and _fits(root) and _rounds(q, (*WHOLE, *FEW))


def _there_and_back(root: Node, x: Value, q: Node) -> Op:
    return _scaled(root, _rounded(q, x))


def _there_and_back_example(net: Any) -> None:
    scale, zero = (
        net.add_constant(np.float32(0.5)),
        net.add_constant(np.zeros((), DType.INT4.numpy)),
    )
    x = net.add_input("x", "f32", ["n", 3])
    (q,) = net.add_layer("tactix.QuantizeLinear", [x, scale, zero], dtype=DType.INT4)
    net.mark_output(net.add_layer("tactix.DequantizeLinear", [q, scale, zero])[0], "y")


def _there_example(net: Any) -> None:
    scales = net.add_constant(np.array([0.5, 0.25, 2], np.float32))
    zeros = net.add_constant(np.array([3, 0, 250], np.uint8))
    x = net.add_input("x", "f32", ["n", 3, 5])
    (y,) = net.add_layer("tactix.QuantizeLinear", [x, scales, zeros], dtype=DType.UINT8)
    net.mark_output(y, "y")


def _back_example(net: Any) -> None:
    scale, zero = net.add_constant(np.float32(0.01)), net.add_constant(np.int16(-7))
    (y,) = net.add_layer(
        "tactix.DequantizeLinear", [net.add_input("x", "i16", ["n", 3]), scale, zero]
    )
    net.mark_output(y, "y")


PROCESSOR_RULES = (
    Rule(
        "tactix.rounded_in_floats",
        T.DequantizeLinear(T.QuantizeLinear(var("x"), const("r")) >> "q", const("s")),
        _there_and_back,
        _read_back,
        benefit=15,
        numerics="reassociates",
        example=_there_and_back_example,
        device="cpu",
    ),
    Rule(
        "tactix.quantize_in_floats",
        T.QuantizeLinear(var("x"), const("s")),
        _quantize,
        _quantize_when,
        benefit=10,
        numerics="reassociates",
        example=_there_example,
        device="cpu",
    ),
    Rule(
        "tactix.dequantize_in_floats",
        T.DequantizeLinear(var("x"), const("s")),
        _dequantize,
        _dequantize_when,
        benefit=10,
        example=_back_example,
        device="cpu",
    ),
)
