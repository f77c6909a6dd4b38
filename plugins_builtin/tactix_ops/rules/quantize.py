"""What a model writes as dequantise, compute, quantise becomes products of integers with scalar
steps around them.

Activations have one scale, weights one for each output channel. The zero point of x joins the bias,
as in Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (2018), and the scales become a factor after the sum. A tensor is
quantised in the loop that makes it, so that it is stored in bytes. Where what makes it rounds, as
exp or a long sum of floats does, a number next to the middle between two integers may become
either: the accuracy gate lets a kernel have the next integer there, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import evaluate
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Fuse, Op, P, Rule, any_of, const, fuse, literal, var
from tactix_ops.rules.anchors import broadcasts_surely
from tactix_ops.rules.facts import Array, again, contiguous, fields_of
from tactix_ops.rules.fold import MAX_BYTES
from tactix_ops.rules.quantized_products import PRODUCT_RULES, moved_bytes

BYTES = (DType.UINT8, DType.INT8)

READERS = frozenset({"QuantizeLinear", "Convolution", "MatMul", "Gemm", "MaxPool"})
"""Layers that become ones of bytes where they read dequantised tensors."""
MOVES = frozenset({"Transpose", "Reshape", "Slice", "Gather", "Concat", "Split"})
"""Layers that move bytes where what reads them reads bytes."""


@dataclass(frozen=True)
class AffineQuantization:
    """One scale and zero point."""

    scale: float
    zero: int


def affine(node: Node) -> AffineQuantization | None:
    """The constant scale and zero point of a QuantizeLinear or DequantizeLinear; None if it has
    several, or others.
    """
    inputs = (*node.inputs, None)[:3]
    scale, zero = inputs[1], inputs[2]
    if (
        scale is None
        or scale.const is None
        or scale.const.size != 1
        or scale.spec.dtype is not DType.FP32
    ):
        return None
    if zero is not None and (zero.const is None or zero.const.size != 1):
        return None
    found = AffineQuantization(
        float(scale.array.reshape(())), 0 if zero is None else int(zero.array.reshape(()))
    )
    return (
        found if found.scale > 0 and np.isfinite(np.float32(1) / np.float32(found.scale)) else None
    )


# -- dequantise ----------------------------------------------------------------------------------


def _dequantize_when(root: Node, x: Value) -> bool | str:
    if x.const is not None:
        return False
    if x.spec.dtype not in BYTES:
        return f"it reads {x.spec.dtype.value}: kernels read int8 and uint8"
    if root.outputs[0].spec.dtype is not DType.FP32:
        return f"it makes {root.outputs[0].spec.dtype.value}: kernels of bytes make float32"
    return affine(root) is not None or SEVERAL_SCALES


SEVERAL_SCALES = (
    "activations have one positive scale for all in kernels of bytes, and a constant one: "
    "give the tensor one scale"
)


def _dequantize(root: Node, x: Value) -> Op:
    a = affine(root)
    assert a is not None
    return P.tactix.Dequantize(x, zero=a.zero, scale=a.scale)


def _bytes_in(net: Any, *shape: Any) -> Value:
    x: Value = net.add_input("x", "u8", shape)
    return x


def _linear(
    net: Any, layer: str, x: Value, scale: float, zero: int, dtype: Any = np.uint8
) -> Value:
    attrs = {"dtype": DType.of(dtype)} if layer == "QuantizeLinear" else {}
    inputs = [x, net.add_constant(np.float32(scale)), net.add_constant(dtype(zero))]
    y: Value = net.add_layer(f"tactix.{layer}", inputs, **attrs)[0]
    return y


def _dequantize_example(net: Any) -> None:
    net.mark_output(_linear(net, "DequantizeLinear", _bytes_in(net, "n", 3), 0.25, 7), "y")


def _constant_when(root: Node) -> bool:
    known = all(v.const is not None for v in root.given)
    return known and evaluate(root.outputs[0].spec.nbytes(), {}) <= MAX_BYTES


def _constant(root: Node) -> Any:
    inputs = [None if v is None else v.const for v in root.inputs]
    return literal(contiguous(root.layer.reference(root.attrs, *inputs)[0]))


def _constant_example(net: Any) -> None:
    w = net.add_constant(np.arange(-6, 6, dtype=np.int8).reshape(3, 4))
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(
        net.add_layer("tactix.MatMul", [x, _linear(net, "DequantizeLinear", w, 0.5, 1, np.int8)])[
            0
        ],
        "y",
    )


# -- quantise ------------------------------------------------------------------------------------


def makes_bytes(root: Node, x: Value) -> bool:
    """Whether a QuantizeLinear makes bytes of float32, with one known scale."""
    return _quantize_when(root, x) is True


def _quantize_when(root: Node, x: Value) -> bool | str:
    if root.attrs.dtype not in BYTES:
        return f"it makes {root.attrs.dtype.value}: kernels make int8 and uint8"
    if x.spec.dtype is not DType.FP32:
        return f"it reads {x.spec.dtype.value}: kernels of bytes read float32"
    return (affine(root) is not None and not root.attrs.block_size) or SEVERAL_SCALES


def _quantize(root: Node, x: Value) -> Op:
    a = affine(root)
    assert a is not None
    return P.tactix.Quantize(P.tactix.Mul(x, _inverse(a)), zero=a.zero, dtype=root.attrs.dtype)


def _inverse(a: AffineQuantization) -> Any:
    return literal(np.asarray(np.float32(1) / np.float32(a.scale)))


def _quantize_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Relu", [x])
    net.mark_output(_linear(net, "QuantizeLinear", y, 0.125, 3), "y")


def _scaled_twice(x: Value, m: Value, r: Value) -> Array:
    return m.array * r.array


def _one_factor(root: Node, x: Value, m: Value, r: Value) -> Op:
    inner = P.tactix.Mul(x, literal(_scaled_twice(x, m, r).astype(np.float32)))
    return P.tactix.Quantize(inner, **dict(fields_of(root.attrs)))


def _one_factor_when(m: Value, r: Value, x: Value) -> bool:
    floats = all(v.spec.dtype is DType.FP32 for v in (m, r, x))
    return floats and r.array.size == 1 and bool(np.isfinite(m.array * r.array).all())


def _one_factor_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Mul", [x, net.add_constant(np.array([1, 2, 4], np.float32))])
    (y,) = net.add_layer("tactix.Mul", [y, net.add_constant(np.float32(8))])
    net.mark_output(net.add_layer("tactix.Quantize", [y], zero=3, dtype=DType.INT8)[0], "y")


def _scaled_terms(root: Node, a: Value, b: Value, r: Value, d: Node, e: Node) -> Op:
    factor = np.float32(r.array.reshape(()))
    terms = [
        P.tactix.Dequantize(x, zero=n.attrs.zero, scale=float(np.float32(n.attrs.scale) * factor))
        for x, n in ((a, d), (b, e))
    ]
    return P.tactix.Quantize(P.tactix.Add(*terms), **dict(fields_of(root.attrs)))


def _scaled_terms_example(net: Any) -> None:
    terms = [
        net.add_layer(
            "tactix.Dequantize", [net.add_input(name, "u8", ["n", 4])], zero=3, scale=scale
        )[0]
        for name, scale in (("a", 0.5), ("b", 0.25))
    ]
    (y,) = net.add_layer(
        "tactix.Mul", [net.add_layer("tactix.Add", terms)[0], net.add_constant(np.float32(2))]
    )
    net.mark_output(net.add_layer("tactix.Quantize", [y], zero=7)[0], "y")


def _kept_within(clip: Node) -> tuple[float, float]:
    """What a Relu or Clip leaves."""
    if clip.layer.name == "Relu":
        return 0.0, np.inf
    return clip.attrs.min, clip.attrs.max


def _saturates(root: Node, clip: Node, x: Value, r: Value) -> bool:
    """Whether bytes end where the clipped tensor does, or before. Scaling by a positive number,
    rounding and clipping keep the order of numbers, so that the last of them is enough.
    """
    floats = all(v.spec.dtype is DType.FP32 for v in (x, r)) and r.array.size == 1
    if root.attrs.dtype not in BYTES or not floats:
        return False
    if not 0 < (factor := np.float32(r.array.reshape(()))) < np.inf:
        return False
    ends = np.iinfo(root.attrs.dtype.numpy)
    with np.errstate(over="ignore"):
        low, high = np.rint(np.array(_kept_within(clip), np.float32) * factor) + root.attrs.zero
    return bool(low <= ends.min and high >= ends.max)


def _unclipped(root: Node, x: Value, r: Value) -> Op:
    return P.tactix.Quantize(P.tactix.Mul(x, r), **dict(fields_of(root.attrs)))


def _unclipped_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Clip", [net.add_input("x", "f32", ["n", 3])], min=0.0, max=6.0)
    (y,) = net.add_layer("tactix.Mul", [y, net.add_constant(np.float32(42.5))])
    net.mark_output(net.add_layer("tactix.Quantize", [y], dtype=DType.UINT8)[0], "y")


def _scaled_term(root: Node, x: Value, m: Value, b: Value, r: Value, e: Node) -> Op:
    factor = np.float32(r.array.reshape(()))
    term = P.tactix.Dequantize(
        b, zero=e.attrs.zero, scale=float(np.float32(e.attrs.scale) * factor)
    )
    product = P.tactix.Mul(x, literal((m.array * factor).astype(np.float32)))
    return P.tactix.Quantize(P.tactix.Add(product, term), **dict(fields_of(root.attrs)))


def _scaled_term_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Dequantize", [_bytes_in(net, "n", 3)], zero=3, scale=0.5)
    (x,) = net.add_layer(
        "tactix.Mul",
        [net.add_input("a", "f32", ["n", 3]), net.add_constant(np.array([1, 2, 4], np.float32))],
    )
    (y,) = net.add_layer(
        "tactix.Mul", [net.add_layer("tactix.Add", [x, y])[0], net.add_constant(np.float32(2))]
    )
    net.mark_output(net.add_layer("tactix.Quantize", [y], zero=7)[0], "y")


# -- there and back ------------------------------------------------------------------------------


def _same(root: Node, d: Node) -> bool:
    """Whether quantising gives the integers back that ``d`` was made of."""
    a = affine(root)
    as_was = d.inputs[0].spec.dtype is root.attrs.dtype  # type: ignore[union-attr]
    if a is None or not as_was or a.zero != d.attrs.zero:
        return False
    return bool(np.float32(a.scale) == np.float32(d.attrs.scale))


def _back(root: Node, x: Value, d: Node, moved: Node | None = None) -> Any:
    return moved_bytes(x, moved)


def _back_example(net: Any) -> None:
    y = net.add_layer("tactix.Dequantize", [_bytes_in(net, "n", 4)], zero=3, scale=0.5)[0]
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(*y.spec.shape, 1))
    net.mark_output(_linear(net, "QuantizeLinear", y, 0.5, 3), "y")


def _pool_of_integers(root: Node, x: Value, d: Node) -> Op:
    inner = P.tactix.MaxPool(x, **dict(fields_of(root.attrs)))
    return P.tactix.Dequantize(inner, **dict(fields_of(d.attrs)))


def _pool_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Dequantize", [_bytes_in(net, "n", 2, 5, 6)], zero=3, scale=0.5)
    net.mark_output(
        net.add_layer("tactix.MaxPool", [y], kernel_shape=(2, 2), pads=(1, 0, 0, 1))[0], "y"
    )


def reads_bytes(v: Value, graph: Any) -> bool:
    """Whether all that reads a dequantised tensor may read its bytes: products, what moves them,
    and what computes element by element, in whose loop they become floats.
    """
    readers = [n for n, _ in graph.uses(v)]
    fits = all(n.anchor is None or n.layer.name in READERS | MOVES for n in readers)
    return bool(readers) and fits and not graph.is_output(v)


def _joined(root: Node, graph: Any) -> list[Node]:
    """The Dequantize nodes of the joined tensors, if their scales and zero points are equal and
    what reads the whole reads bytes.
    """
    makers = [v.producer for v in root.given]
    found = [p for p in makers if p is not None and p.layer.name == "Dequantize"]
    same = len({(p.attrs, p.given[0].spec.dtype) for p in found}) == 1
    whole = len(found) == len(makers) and not root.is_fused
    return found if whole and same and reads_bytes(root.outputs[0], graph) else []


def _concat_of_integers(root: Node, graph: Any) -> Op:
    found = _joined(root, graph)
    inner = again(root, [p.given[0] for p in found])
    return P.tactix.Dequantize(inner, **dict(fields_of(found[0].attrs)))


def _concat_example(net: Any) -> None:
    parts = [
        net.add_layer(
            "tactix.Dequantize", [net.add_input(name, "u8", ["n", 4])], zero=3, scale=0.5
        )[0]
        for name in "ab"
    ]
    (y,) = net.add_layer("tactix.Concat", parts, axis=1)
    net.mark_output(_linear(net, "QuantizeLinear", y, 0.25, 5), "y")


# -- with the reader -----------------------------------------------------------------------------


def _reader(root: Node, graph: Any) -> Node | None:
    """The one pointwise node that reads the dequantised tensor, if it has a result as large: bytes
    are read there.
    """
    reader: Node | None = graph.only_use(root.outputs[0])
    if reader is None or reader.anchor is not None:
        return None
    shape = root.outputs[0].spec.shape
    fits = all(v.spec.shape == shape for v in reader.outputs)
    return (
        reader
        if fits and all(broadcasts_surely(v.spec.shape, shape) for v in reader.given)
        else None
    )


def _with_reader(root: Node, graph: Any) -> Fuse:
    return fuse(root, _reader(root, graph))


def _with_reader_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Dequantize", [_bytes_in(net, "n", 4)], zero=3, scale=0.5)
    net.mark_output(net.add_layer("tactix.Exp", [y])[0], "y")


_DEQUANTIZED = P.tactix.Dequantize(var("x")) >> "d"

RULES = (
    *PRODUCT_RULES,
    Rule(
        "tactix.dequantize",
        P.tactix.DequantizeLinear(var("x"), const("s")),
        _dequantize,
        _dequantize_when,
        benefit=60,
        example=_dequantize_example,
    ),
    Rule(
        "tactix.dequantized_constant",
        P.tactix.DequantizeLinear(const("x"), const("s")),
        _constant,
        _constant_when,
        benefit=60,
        example=_constant_example,
        phase="fuse",
    ),
    Rule(
        "tactix.quantize",
        P.tactix.QuantizeLinear(var("x"), const("s")),
        _quantize,
        _quantize_when,
        benefit=20,
        numerics="reassociates",
        example=_quantize_example,
    ),
    Rule(
        "tactix.quantize_one_factor",
        P.tactix.Quantize(P.tactix.Mul(P.tactix.Mul(var("x"), const("m")), const("r"))),
        _one_factor,
        _one_factor_when,
        benefit=30,
        numerics="reassociates",
        example=_one_factor_example,
    ),
    Rule(
        "tactix.quantize_sum",
        P.tactix.Quantize(
            P.tactix.Mul(
                P.tactix.Add(
                    P.tactix.Dequantize(var("a")) >> "d", P.tactix.Dequantize(var("b")) >> "e"
                ),
                const("r"),
            )
        ),
        _scaled_terms,
        lambda r: r.const.size == 1 and r.spec.dtype is DType.FP32,
        benefit=30,
        numerics="reassociates",
        example=_scaled_terms_example,
    ),
    Rule(
        "tactix.quantize_scaled_term",
        P.tactix.Quantize(
            P.tactix.Mul(
                P.tactix.Add(
                    P.tactix.Mul(var("x"), const("m")), P.tactix.Dequantize(var("b")) >> "e"
                ),
                const("r"),
            )
        ),
        _scaled_term,
        _one_factor_when,
        benefit=30,
        numerics="reassociates",
        example=_scaled_term_example,
    ),
    Rule(
        "tactix.quantize_unclipped",
        P.tactix.Quantize(
            P.tactix.Mul(
                any_of(
                    P.tactix.Relu(var("x")) >> "clip",
                    P.tactix.Clip(var("x"), min=ANY, max=ANY) >> "clip",
                ),
                const("r"),
            )
        ),
        _unclipped,
        _saturates,
        benefit=40,
        example=_unclipped_example,
    ),
    Rule(
        "tactix.quantize_back",
        P.tactix.QuantizeLinear(
            any_of(
                _DEQUANTIZED,
                P.tactix.Reshape(_DEQUANTIZED) >> "moved",
                P.tactix.Transpose(_DEQUANTIZED) >> "moved",
                P.tactix.Slice(_DEQUANTIZED) >> "moved",
                P.tactix.Gather(_DEQUANTIZED) >> "moved",
                P.tactix.Expand(_DEQUANTIZED) >> "moved",
            )
        ),
        _back,
        _same,
        benefit=70,
        exclusive=False,
        numerics="reassociates",
        example=_back_example,
    ),
    Rule(
        "tactix.pool_of_integers",
        P.tactix.MaxPool(_DEQUANTIZED),
        _pool_of_integers,
        lambda d: d.attrs.scale > 0,
        benefit=40,
        exclusive=False,
        example=_pool_example,
    ),
    Rule(
        "tactix.concat_of_integers",
        P.tactix.Concat(),
        _concat_of_integers,
        lambda root, graph: bool(_joined(root, graph)),
        benefit=40,
        exclusive=False,
        example=_concat_example,
    ),
    Rule(
        "tactix.dequantize_with_reader",
        P.tactix.Dequantize(var("x")),
        _with_reader,
        lambda root, graph: _reader(root, graph) is not None,
        benefit=40,
        example=_with_reader_example,
        phase="fuse",
    ),
)
