"""Products of bytes that were made int32 are integer products of the bytes; no number changes.

MatMulInteger and ConvInteger, and what dynamic quantisation writes with them, subtract a zero point
first: ``(x - z) w`` is ``x w`` less ``z`` times the sum of w, so that kernels read bytes. Where no
fast kernel does, a processor computes in float32.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from tactix.base.dims import evaluate_shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Literal, Op, P, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import Array, scalar_const

T = P.tactix
BYTES = (DType.UINT8, DType.INT8)
MOST_SUMS = 1 << 20
"""Sums of taps at most that a convolution with pads keeps as a constant: 4 MiB. A bound for the
plan's size alone.
"""
EXACT = 1 << 24
"""Below it float32 has all integers."""


def _bytes(w: Value) -> bool:
    """Whether a constant of int32 is a difference of bytes."""
    return w.spec.dtype is DType.INT32 and bool(np.abs(w.array).max(initial=0) <= 255)


def _parts(w: Value) -> list[Array]:
    """int8 tensors that sum up to a constant: more than one where uint8 weights less their zero
    point leave int8, three if 255 is among them.
    """
    parts, rest = list[Array](), w.array
    while not parts or rest.any():
        parts.append(rest.clip(-128, 127).astype(np.int8))
        rest = rest - parts[-1]
    return parts


def _sum(products: list[Op]) -> Op:
    return reduce(lambda a, b: T.Add(a, b), products)


def _read(x: Value, wide: Node) -> bool:
    """Whether the node widens bytes to int32."""
    return x.spec.dtype in BYTES and wide.attrs.to is DType.INT32


def _sums(w: Array, axes: tuple[int, ...]) -> Array:
    return w.astype(np.int64).sum(axis=axes).astype(np.int32)


# -- matrices ------------------------------------------------------------------------------------


def _matmul_when(root: Node, x: Value, wide: Node, w: Value, z: Value | None = None) -> bool:
    rows = x.spec.rank >= 2 and w.spec.rank == 2 and _read(x, wide) and _bytes(w)
    return rows and (z is None or _of_rows(z, root.given[0]))


def _of_rows(z: Value, shifted: Value) -> bool:
    """Whether a zero point is one number, or one for each row."""
    shape = z.spec.shape
    one = all(d == 1 for d in shape)
    return len(shape) <= shifted.spec.rank and (one or shape[-1] == 1)


def _matmul(root: Node, x: Value, wide: Node, w: Value, z: Value | None = None) -> Op:
    return _sum([_matmul_of(x, part, z) for part in _parts(w)])


def _matmul_of(x: Value, w: Array, z: Value | None) -> Op:
    narrow, sums = literal(w), _sums(w, (0,))
    if z is None:
        return T.IntegerMatMul(x, narrow)
    if (known := scalar_const(z)) is not None:
        return T.IntegerMatMul(x, narrow, literal(-np.int32(known) * sums))
    return T.Sub(T.IntegerMatMul(x, narrow), T.Mul(z, literal(sums)))


def _matmul_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    w = net.add_constant(rng.integers(-128, 128, (5, 6)).astype(np.int32))
    x = net.add_layer("tactix.Cast", [net.add_input("x", "u8", ["n", 3, 5])], to=DType.INT32)[0]
    for zero in (net.add_constant(np.int32(128)), net.add_input("z", "i32", [])):
        (shifted,) = net.add_layer("tactix.Sub", [x, zero])
        net.mark_output(net.add_layer("tactix.MatMul", [shifted, w])[0])


# -- two computed matrices -----------------------------------------------------------------------


def _computed_when(
    root: Node,
    x: Value,
    wide: Node,
    y: Value,
    other: Node,
    z: Value | None = None,
    w: Value | None = None,
) -> bool:
    """Whether zero points are one number each."""
    bytes_ = _read(x, wide) and _read(y, other) and x.const is None and y.const is None
    same_rank = [v.spec.rank for v in root.given] == [x.spec.rank, y.spec.rank]
    single = all(v is None or all(d == 1 for d in v.spec.shape) for v in (z, w))
    return bytes_ and same_rank and single


def _computed(
    root: Node,
    x: Value,
    wide: Node,
    y: Value,
    other: Node,
    z: Value | None = None,
    w: Value | None = None,
) -> Op:
    return T.ByteMatMul(x, y, z, w)


def _widened(net: Any, name: str, dtype: str, shape: list[int | str]) -> Value:
    """An input of bytes of an example, as int32."""
    given = net.add_input(name, dtype, shape)
    cast: Value = net.add_layer("tactix.Cast", [given], to=DType.INT32)[0]
    return cast


def _less(net: Any, values: list[Value], zeros: list[Value]) -> list[Value]:
    """Each value of an example less its zero point."""
    pairs = zip(values, zeros, strict=True)
    return [net.add_layer("tactix.Sub", list(pair))[0] for pair in pairs]


def _computed_example(net: Any) -> None:
    casts = [_widened(net, "a", "u8", ["n", 3, 5]), _widened(net, "b", "u8", ["n", 5, 6])]
    shifted = _less(net, casts, [net.add_constant(np.int32(128)), net.add_input("z", "i32", [])])
    net.mark_output(net.add_layer("tactix.MatMul", shifted)[0], "y")
    net.mark_output(net.add_layer("tactix.MatMul", casts)[0], "plain")


# -- convolutions --------------------------------------------------------------------------------


def _conv_when(root: Node, x: Value, wide: Node, w: Value, z: Value | None = None) -> bool:
    plain = len([v for v in root.inputs if v is not None]) == 2 and _read(x, wide) and _bytes(w)
    if not plain or z is None or _is_byte(z, x):
        return plain
    if not (all(d == 1 for d in z.spec.shape) and z.spec.rank <= x.spec.rank):
        return False
    return _is_reached(root) or _known_sums(root, x) is not None or _taps(w.array) < EXACT


def _is_reached(root: Node) -> bool:
    """Whether all taps lie within the image for each result."""
    return all(pad == 0 for pad in root.attrs.pads)


def _known_sums(root: Node, x: Value) -> int | None:
    """How many sums of taps there are for an image; None where only running tells, or where they
    are too many for a constant.
    """
    sizes = (*root.outputs[0].spec.shape[1:], *x.spec.shape[2:], *root.attrs.pads)
    known = [d for d in sizes if isinstance(d, int)]
    count = math.prod(known[: x.spec.rank - 1])
    return count if len(known) == len(sizes) and count <= MOST_SUMS else None


def _taps(w: Array) -> int:
    """What no sum of the taps of a channel exceeds."""
    return int(np.abs(w.astype(np.int64)).sum(axis=tuple(range(1, w.ndim))).max(initial=0))


def _is_byte(z: Value, x: Value) -> bool:
    """Whether a zero point is a constant that pads of the image can hold."""
    known = scalar_const(z)
    limits = np.iinfo(x.spec.dtype.numpy)
    return known is not None and limits.min <= known <= limits.max


def _conv(root: Node, x: Value, wide: Node, w: Value, z: Value | None = None) -> Op:
    return _sum([_conv_of(root, x, part, z) for part in _parts(w)])


def _conv_of(root: Node, x: Value, w: Array, z: Value | None) -> Op:
    narrow, a, n = literal(w), root.attrs, x.spec.rank - 2
    fields = {k: getattr(a, k) for k in ("strides", "dilations", "pads", "group")}
    if z is None:
        return T.IntegerConvolution(x, narrow, **fields)
    if _is_byte(z, x):
        zero = int(scalar_const(z) or 0)
        bias = literal(-np.int32(zero) * _sums(w, tuple(range(1, n + 2))))
        return T.IntegerConvolution(x, narrow, bias, pad_value=zero, **fields)
    product = T.IntegerConvolution(x, narrow, **fields)
    return T.Sub(product, T.Mul(z, _reached(root, x, w)))


def _reached(root: Node, x: Value, w: Array) -> Op | Literal:
    """The sum of the taps that lie within the image, for each result: (M, 1...), (M, out...), or,
    where only running tells the image, (N, M, out...), of a channel of ones in exact floats.
    """
    sums = _sums(w, tuple(range(1, w.ndim)))
    if _is_reached(root):
        return literal(sums.reshape(-1, *(1,) * (w.ndim - 2)))
    if _known_sums(root, x) is not None:
        ones = np.ones((1, *evaluate_shape(x.spec.shape[1:], {})), np.int32)
        return literal(root.layer.reference(root.attrs, ones, w.astype(np.int32))[0][0])
    channel = T.Slice(x, begins=(0,), sizes=(1,), axes=(1,), steps=(1,))
    image = T.Clip(T.Cast(channel, to=DType.FP32), min=1.0, max=1.0)
    fields = {k: getattr(root.attrs, k) for k in ("strides", "dilations", "pads")}
    taps = literal(w.astype(np.float32).sum(axis=1, keepdims=True))
    return T.Cast(T.Convolution(image, taps, **fields), to=DType.INT32)


def _conv_example(net: Any) -> None:
    rng = np.random.default_rng(9)
    w = net.add_constant(rng.integers(-128, 128, (4, 3, 3, 3)).astype(np.int32))
    (x,) = net.add_layer("tactix.Cast", [net.add_input("x", "u8", ["n", 3, 5, 6])], to=DType.INT32)
    for zero in (net.add_constant(np.int32(128)), net.add_input("z", "i32", [])):
        (shifted,) = net.add_layer("tactix.Sub", [x, zero])
        (y,) = net.add_layer("tactix.Convolution", [shifted, w], pads=(1, 0, 1, 1))
        net.mark_output(y)


# -- convolutions that kernels of bytes do not take ----------------------------------------------


def _lacks_kernel(product: Node) -> bool:
    """Whether a processor's kernels of bytes do not take the convolution: those of floats take
    volumes, groups of several channels and images whose size only running tells, and are ten times
    as fast there as the integers one by one.
    """
    x, w, a = product.given[0].spec, product.given[1].spec, product.attrs
    known = all(isinstance(d, int) for d in (*x.shape[1:], *a.pads))
    apart = a.group == x.shape[1] == w.shape[0] and (a.dilations or (1,))[-1] == 1
    return x.rank > 4 or not known or (a.group > 1 and not apart)


def _makes_floats(root: Node, product: Node) -> bool:
    """Whether sums of products with constants become float32."""
    constant = all(v.const is not None for v in product.given[1:])
    return root.attrs.to is DType.FP32 and constant


def _makes_exact_floats(root: Node, product: Node) -> bool | str:
    """Whether float32 has all of those sums: what is rounded of them to bytes is a step off
    elsewhere wherever it lies between two.
    """
    if not _makes_floats(root, product):
        return False
    reach = (_reach if product.layer.name == "IntegerConvolution" else _matmul_reach)(product)
    return True if reach < EXACT else f"sums reach {reach}: float32 has all integers to {EXACT}"


def _float_when(root: Node, product: Node) -> bool | str:
    if not _makes_floats(root, product):
        return False
    return True if _lacks_kernel(product) else "kernels of bytes take the convolution"


def _float(root: Node, x: Value, w: Value, product: Node) -> Op:
    """Sums of products of bytes below 2 ** 24 are exact as float32, too; rounded, as a tactic may
    compute them by way of fractions (Winograd's), and what scales them is not to be taken into
    weights. Pads hold the zero point, which as a difference from it is 0.
    """
    a = product.attrs
    fields = {k: getattr(a, k) for k in ("strides", "dilations", "pads", "group")}
    shifted = T.Dequantize(x, zero=a.pad_value, scale=1.0)
    floats = (literal(v.astype(np.float32)) for v in (w.array, _shifted_bias(product, w)))
    return T.Round(T.Convolution(shifted, *floats, **fields))


def _shifted_bias(product: Node, w: Value) -> Array:
    """(M,), int64: the bias of a convolution whose image is less the zero point."""
    whole = w.array.astype(np.int64)
    bias: Array = product.attrs.pad_value * whole.sum(axis=tuple(range(1, whole.ndim)))
    return bias + product.given[2].array if len(product.given) > 2 else bias


def _float_example(net: Any) -> None:
    rng = np.random.default_rng(10)
    w = net.add_constant(rng.integers(-128, 128, (8, 2, 3, 3)).astype(np.int8))
    b = net.add_constant(rng.integers(-999, 999, 8).astype(np.int32))
    x = net.add_input("x", "u8", ["n", 4, 5, 6])
    fields = {"pads": (1, 0, 1, 1), "group": 2, "pad_value": 7}
    (y,) = net.add_layer("tactix.IntegerConvolution", [x, w, b], **fields)
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.FP32)[0], "y")


def _exact_when(root: Node, graph: Any) -> bool:
    """Whether floats are exact, and no reader takes the sums as floats: then they stay such."""
    readers = [n for n, _ in graph.uses(root.outputs[0])]
    if readers and all(n.layer.name == "Cast" and n.attrs.to is DType.FP32 for n in readers):
        return False
    constant = all(v.const is not None for v in root.given[1:])
    return constant and _lacks_kernel(root) and _reach(root) < EXACT


def _reach(root: Node) -> int:
    """What no sum of the bias and some products exceeds, in whatever order they are added."""
    x, w = root.given[:2]
    limits = np.iinfo(x.spec.dtype.numpy)
    above, below = limits.max - root.attrs.pad_value, root.attrs.pad_value - limits.min
    bias = int(np.abs(_shifted_bias(root, w)).max(initial=0))
    return int(max(above, below)) * _taps(w.array) + bias


def _matmul_reach(root: Node) -> int:
    """The same of a product of matrices."""
    x, w = root.given[:2]
    limits = np.iinfo(x.spec.dtype.numpy)
    columns = np.abs(w.array.astype(np.int64)).sum(axis=-2).max(initial=0)
    bias = max(
        (int(np.abs(v.array.astype(np.int64)).max(initial=0)) for v in root.given[2:]), default=0
    )
    return int(max(limits.max, -limits.min)) * int(columns) + bias


def _exact(root: Node, x: Value, w: Value) -> Op:
    return T.Cast(_float(root, x, w, root), to=DType.INT32)


def _exact_example(net: Any) -> None:
    rng = np.random.default_rng(13)
    w = net.add_constant(rng.integers(-128, 128, (4, 2, 3, 3)).astype(np.int8))
    x = net.add_input("x", "u8", ["n", 4, 5, 6])
    fields = {"pads": (1, 0, 1, 1), "group": 2, "pad_value": 7}
    net.mark_output(net.add_layer("tactix.IntegerConvolution", [x, w], **fields)[0], "y")


def _rival_conv_example(net: Any) -> None:
    rng = np.random.default_rng(11)
    w = net.add_constant(rng.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8))
    x = net.add_input("x", "u8", ["n", 4, 5, 6])
    (y,) = net.add_layer("tactix.IntegerConvolution", [x, w], pads=(1, 0, 1, 1), pad_value=7)
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.FP32)[0], "y")


# -- convolutions with computed weights ----------------------------------------------------------


def _reach_of(x: Value, z: Value | None) -> int | None:
    """What no difference of a byte and its zero point exceeds; None where the zero point may be no
    byte.
    """
    limits = np.iinfo(x.spec.dtype.numpy)
    ends = (int(limits.min), int(limits.max))
    if z is None:
        return max(-ends[0], ends[1])
    if z.const is not None:
        return int(max(np.abs(z.array - end).max(initial=0) for end in ends))
    made = z.producer
    if made is None or made.layer.name != "Cast" or made.given[0].spec.dtype is not x.spec.dtype:
        return None
    return ends[1] - ends[0]


def _channels_of_exact(root: Node, *reaches: int | None) -> int | None:
    """How many channels of a group add up to less than EXACT; None where that is not known."""
    taps = root.given[1].spec.shape[2:]
    known = [d for d in (*taps, *reaches) if isinstance(d, int)]
    return None if len(known) < len(taps) + 2 else (EXACT - 1) // max(1, math.prod(known))


def _float_computed_conv_when(
    root: Node,
    x: Value,
    wide: Node,
    y: Value,
    other: Node,
    z: Value | None = None,
    w: Value | None = None,
) -> bool | str:
    plain = len([v for v in root.inputs if v is not None]) == 2
    if not (plain and _read(x, wide) and _read(y, other)) or y.const is not None:
        return False
    most, channels = _channels_of_exact(root, _reach_of(x, z), _reach_of(y, w)), y.spec.shape[1]
    if not most or not isinstance(channels, int):
        return "how large sums become is not known"
    if channels > most and root.attrs.group > 1:
        return f"sums of {channels} channels of a group reach {EXACT}"
    return True


def _float_computed_conv(
    root: Node,
    x: Value,
    wide: Node,
    y: Value,
    other: Node,
    z: Value | None = None,
    w: Value | None = None,
) -> Op:
    """Of so many channels at a time that float32 has all sums; pads are differences of 0."""
    a, channels = root.attrs, y.spec.shape[1]
    assert isinstance(channels, int)
    fields = {k: getattr(a, k) for k in ("strides", "dilations", "pads", "group")}
    most = _channels_of_exact(root, _reach_of(x, z), _reach_of(y, w)) or channels
    image, weights = _as_floats(x, z), _as_floats(y, w)
    if channels <= most:
        return _exact_sums(image, weights, fields)
    parts = [(i, min(most, channels - i)) for i in range(0, channels, most)]
    return _sum([_exact_sums(_channels(image, *p), _channels(weights, *p), fields) for p in parts])


def _exact_sums(x: Op, w: Op, fields: dict[str, Any]) -> Op:
    return T.Cast(T.Round(T.Convolution(x, w, **fields)), to=DType.INT32)


def _as_floats(x: Value, z: Value | None) -> Op:
    """Bytes less their zero point."""
    wide = T.Cast(x, to=DType.FP32)
    return wide if z is None else T.Sub(wide, T.Cast(z, to=DType.FP32))


def _channels(x: Op, begin: int, count: int) -> Op:
    """Some channels of a tensor."""
    return T.Slice(x, begins=(begin,), sizes=(count,), axes=(1,), steps=(1,))


def _float_computed_conv_example(net: Any) -> None:
    casts = [
        _widened(net, "x", "u8", ["n", 70, 5, "w"]),
        _widened(net, "y", "i8", [6, 70, 3, 3]),
    ]
    zero = _widened(net, "z", "i8", [])
    shifted = _less(net, casts, [net.add_constant(np.int32(128)), zero])
    fields = {"pads": (1, 0, 1, 1), "strides": (2, 1)}
    net.mark_output(net.add_layer("tactix.Convolution", shifted, **fields)[0], "y")
    net.mark_output(net.add_layer("tactix.Convolution", casts, **fields)[0], "plain")


# -- products that floats may be faster for -------------------------------------------------------


def _float_product(root: Node, x: Value, w: Value, product: Node) -> Op:
    y = T.MatMul(T.Dequantize(x, zero=0, scale=1.0), literal(w.array.astype(np.float32)))
    bias = [v.array.astype(np.float32) for v in product.given[2:]]
    return T.Round(T.Add(y, literal(bias[0])) if bias else y)


def _float_product_example(net: Any) -> None:
    rng = np.random.default_rng(12)
    w = net.add_constant(rng.integers(-128, 128, (5, 6)).astype(np.int8))
    b = net.add_constant(rng.integers(-999, 999, 6).astype(np.int32))
    (y,) = net.add_layer("tactix.IntegerMatMul", [net.add_input("x", "u8", ["n", 3, 5]), w, b])
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.FP32)[0], "y")


def _float_computed_when(root: Node, product: Node) -> bool:
    zeros = [None if v is None else scalar_const(v) for v in product.inputs[2:]]
    given = [v for v in product.inputs[2:] if v is not None]
    return root.attrs.to is DType.FP32 and len(given) == sum(z is not None for z in zeros)


def _float_computed(root: Node, x: Value, y: Value, product: Node) -> Op:
    zeros = [0 if v is None else int(scalar_const(v) or 0) for v in (*product.inputs, None, None)]
    a, b = (T.Dequantize(v, zero=z, scale=1.0) for v, z in zip((x, y), zeros[2:4], strict=True))
    return T.Round(T.MatMul(a, b))


def _float_computed_example(net: Any) -> None:
    x, y = net.add_input("x", "u8", ["n", 3, 5]), net.add_input("y", "i8", ["n", 5, 6])
    zeros = [net.add_constant(np.int32(z)) for z in (128, -3)]
    (z,) = net.add_layer("tactix.ByteMatMul", [x, y, *zeros])
    net.mark_output(net.add_layer("tactix.Cast", [z], to=DType.FP32)[0], "y")


_WIDE = T.Cast(var("x")) >> "wide"

_OTHER = T.Cast(var("y")) >> "other"
_LEFT = (T.Sub(_WIDE, var("z")), _WIDE)
_RIGHT = (T.Sub(_OTHER, var("w")), _OTHER)

PROCESSOR_RULES = (
    Rule(
        "tactix.bytes_of_computed_matmul",
        any_of(*(T.MatMul(a, b) for a in _LEFT for b in _RIGHT)),
        _computed,
        _computed_when,
        benefit=55,
        exclusive=False,
        example=_computed_example,
        device="cpu",
    ),
    Rule(
        "tactix.floats_of_computed_convolution",
        any_of(*(T.Convolution(a, b) for a in _LEFT for b in _RIGHT)),
        _float_computed_conv,
        _float_computed_conv_when,
        benefit=55,
        numerics="reassociates",
        exclusive=False,
        example=_float_computed_conv_example,
        device="cpu",
    ),
    Rule(
        "tactix.float_convolution_of_bytes",
        T.Cast(T.IntegerConvolution(var("x"), const("w")) >> "product"),
        _float,
        _float_when,
        benefit=90,
        numerics="reassociates",
        example=_float_example,
        phase="fuse",
        device="cpu",
    ),
    Rule(
        "tactix.exact_convolution_of_bytes",
        T.IntegerConvolution(var("x"), const("w")),
        _exact,
        _exact_when,
        benefit=80,
        numerics="reassociates",
        example=_exact_example,
        phase="fuse",
        device="cpu",
    ),
    *(
        Rule(
            f"tactix.floats_for_{name}",
            T.Cast(pattern >> "product"),
            replace,
            when,
            numerics="reassociates",
            example=example,
            phase=RIVAL,
            device="cpu",
        )
        for name, pattern, replace, when, example in (
            (
                "byte_convolution",
                T.IntegerConvolution(var("x"), const("w")),
                _float,
                _makes_exact_floats,
                _rival_conv_example,
            ),
            (
                "byte_product",
                T.IntegerMatMul(var("x"), const("w")),
                _float_product,
                _makes_exact_floats,
                _float_product_example,
            ),
            (
                "product_of_bytes",
                T.ByteMatMul(var("x"), var("y")),
                _float_computed,
                _float_computed_when,
                _float_computed_example,
            ),
        )
    ),
)

RULES = tuple(
    Rule(
        f"tactix.bytes_of_{name.lower()}",
        any_of(
            getattr(T, name)(_WIDE, const("w")),
            getattr(T, name)(T.Sub(_WIDE, var("z")), const("w")),
        ),
        replace,
        when,
        benefit=60,
        exclusive=False,
        example=example,
    )
    for name, replace, when, example in (
        ("MatMul", _matmul, _matmul_when, _matmul_example),
        ("Convolution", _conv, _conv_when, _conv_example),
    )
)
