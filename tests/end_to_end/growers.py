"""Growers of layers that compute: each draws attributes and inputs that fit each other and adds a
layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from strategies import (
    ALL,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTS,
    KINDS,
    NUMBERS,
    U8,
    Grower,
    Unfit,
)

from tactix.base.dims import Dim, prod, sym
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value

# -- pointwise ------------------------------------------------------------------------------------

SMOOTH = (
    "Tanh", "Sigmoid", "Gelu", "Erf", "Softsign", "Softplus", "Mish", "HardSwish", "HardSigmoid", "Exp", "Sin", "Cos",
    "Atan", "Asinh", "Swish", "Elu", "Selu", "Celu", "LeakyRelu", "Sinh", "Cosh",
)  # fmt: skip
JUMPS = ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink")


def unary(g: Grower) -> None:
    x = g.take(FLOATS)
    name = g.one(("Relu", "Abs", "Neg", *SMOOTH))
    attrs = {"approximate": "tanh"} if name == "Gelu" and g.flag() else {}
    if name in ("LeakyRelu", "Elu", "Celu"):
        attrs = {"alpha": g.one((0.01, 0.5, 1.0, 2.5))}
    g.add(name, [x], **attrs)


def unary_of_positive(g: Grower) -> None:
    """Functions with poles, or of a part of the numbers, where they are smooth."""
    x = g.take(FLOATS)
    (y,) = g.add("Abs", [x])
    name = g.one(("Sqrt", "Log", "Reciprocal", "Pow", "Acosh", "Asin", "Acos", "Atanh", "Tan"))
    half = g.fresh(x.spec.dtype, (), True, lambda rng, s: np.full(s, 0.5))
    if name in ("Asin", "Acos", "Atanh", "Tan"):
        y = g.add("Mul", [g.add("Sigmoid", [x])[0], half])[0]
    else:
        low = 1.25 if name == "Acosh" else 0.25
        y = g.add("Add", [y, g.fresh(x.spec.dtype, (), True, lambda rng, s: np.full(s, low))])[0]
    if name == "Pow":
        power = g.one((2.0, 3.0, 0.5, -0.5, -1.0, 1.7, 0.0, 1.0))
        g.add(
            "Pow",
            [y, g.fresh(x.spec.dtype, g.one(((), (1,))), True, lambda rng, s: np.full(s, power))],
        )
    else:
        g.add(name, [y])


def jump(g: Grower) -> None:
    g.add(g.one(JUMPS), [g.take(FLOATS, exact=True)])


def clip(g: Grower) -> None:
    low, high = g.one(
        ((-1.0, 1.0), (0.0, 6.0), (-2.0, float("inf")), (float("-inf"), 0.5), (1.0, 1.0))
    )
    g.add("Clip", [g.take((*FLOATS, I32, I64, I8))], min=low, max=high)


def partner(g: Grower, x: Value, exact: bool = False, fill: Any = None) -> Value:
    """A tensor of the same dtype that broadcasts with it: of the pool, or new."""

    def suits(v: Value) -> bool:
        pairs = zip(reversed(v.spec.shape), reversed(x.spec.shape), strict=False)
        return all(a in (1, b) or b == 1 for a, b in pairs)

    if fill is None and g.flag():
        return g.take(
            (x.spec.dtype,), exact=exact, when=suits, new=lambda t: g.fresh(t, narrowed(g, x))
        )
    return g.fresh(x.spec.dtype, narrowed(g, x), constant=g.flag(), fill=fill)


def narrowed(g: Grower, x: Value, wider: bool = True) -> tuple[Dim, ...]:
    """A shape that broadcasts with the tensor's; ``wider``: it may have an axis more."""
    out: list[Dim] = []
    for d in x.spec.shape:
        choice = g.int(0, 7)
        unsure = choice == 7 and isinstance(d, int) and d > 1
        out.append(g.maybe_one(int(d)) if unsure else 1 if choice in (5, 6) else d)  # type: ignore[arg-type]
    if g.flag(4):
        return tuple(out[g.int(0, len(out)) :])
    return (g.one((2, 3)), *out) if wider and g.flag(8) and len(out) < 5 else tuple(out)


def ordered(g: Grower, a: Value, b: Value) -> list[Value]:
    return [b, a] if g.flag() else [a, b]


def binary(g: Grower) -> None:
    x = g.take(FLOATS)
    g.add(g.one(("Add", "Mul", "Sub", "Max", "Min")), ordered(g, x, partner(g, x)))


def divide(g: Grower) -> None:
    x = g.take(FLOATS)
    g.add(
        "Div",
        [x, partner(g, x, fill=lambda rng, s: rng.uniform(0.5, 2, s) * rng.choice([-1, 1], s))],
    )


def prelu(g: Grower) -> None:
    x = g.take(FLOATS)
    g.add("PRelu", [x, partner(g, x)])


def whole(g: Grower) -> None:
    x = g.take(INTS)
    g.add(
        g.one(("Add", "Mul", "Sub", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor")),
        ordered(g, x, partner(g, x)),
    )


def whole_division(g: Grower) -> None:
    x = g.take(INTS)
    lowest = -7 if x.spec.dtype.is_signed_int else 1
    fill = lambda rng, s: np.where((d := rng.integers(lowest, 8, s)) == 0, 3, d)  # noqa: E731
    name = g.one(("Div", "Mod", "Mod"))
    g.add(
        name,
        [x, partner(g, x, fill=fill)],
        **({"fmod": True} if name == "Mod" and g.flag() else {}),
    )


def whole_unary(g: Grower) -> None:
    x = g.take(INTS)
    g.add(g.one(("Neg", "Abs", "BitwiseNot", "Sign", "Relu")), [x])


def shift(g: Grower) -> None:
    x = g.take((U8, I32, I64))
    g.add(
        "BitShift",
        [x, partner(g, x, fill=lambda rng, s: rng.integers(0, 7, s))],
        direction=g.one(("LEFT", "RIGHT")),
    )


def comparison(g: Grower) -> None:
    x = g.take(NUMBERS, exact=True)
    name = g.one(("Less", "Equal", "LessOrEqual", "Greater", "GreaterOrEqual"))
    g.add(name, ordered(g, x, partner(g, x, exact=True)))


def logic(g: Grower) -> None:
    x = g.take((BOOL,))
    name = g.one(("And", "Or", "Xor", "Not", "Equal"))
    g.add(name, [x] if name == "Not" else [x, partner(g, x)])


def where(g: Grower) -> None:
    x = g.take(ALL)
    c = g.take(
        (BOOL,), when=lambda v: v.spec.shape == x.spec.shape, new=lambda t: g.fresh(t, x.spec.shape)
    )
    if g.flag(3):
        c = g.fresh(BOOL, narrowed(g, x, wider=False), constant=g.flag())
    g.add("Where", [c, *ordered(g, x, partner(g, x))])


def cast(g: Grower) -> None:
    to = g.one((F32, F32, I32, I64, F16, F64, BF16, I8, U8, BOOL))
    jumps = not to.is_float
    x = g.take(ALL, exact=jumps)
    if jumps and x.spec.dtype.is_float and to is not BOOL:
        (x,) = g.add("Clip", [x], min=0.0 if to is U8 else -100.0, max=100.0)
    g.add("Cast", [x], to=to)


# -- products ------------------------------------------------------------------------------------

HEAVY = (F32, F64, F16, BF16)


def matmul(g: Grower) -> None:
    a = g.take((*HEAVY, I32) if g.flag(6) else HEAVY, 1, 4)
    k, n = a.spec.shape[-1], g.one((1, 2, 5, 8, 16, 17, 33, 40))
    lead: tuple[Dim, ...] = ()
    if g.flag(3):
        lead = tuple(g.one((d, 1)) for d in a.spec.shape[:-2][g.int(0, 2) :])
    b_shape = (k,) if g.flag(6) else (*lead, k, n)

    def suits(v: Any) -> bool:
        shape = v.spec.shape
        return len(shape) > 1 and shape[-2] == k and shape[:-2] in ((), a.spec.shape[:-2])

    if g.flag(3):
        b = g.take((a.spec.dtype,), 2, 4, when=suits, new=lambda t: g.fresh(t, b_shape))
    else:
        b = g.fresh(a.spec.dtype, b_shape, constant=True)
    g.add("MatMul", [a, b])


def matmul_transposed(g: Grower) -> None:
    """``a a'`` and the like: both operands computed."""
    a = g.take(HEAVY, 2, 4)
    order = [*range(a.spec.rank - 2), a.spec.rank - 1, a.spec.rank - 2]
    (t,) = g.add("Transpose", [a], perm=tuple(order))
    g.add("MatMul", ordered(g, a, t))


def gemm(g: Grower) -> None:
    a = g.take(HEAVY, 2, 2)
    ta, tb, n = g.flag(), g.flag(), g.one((1, 3, 8, 17, 40))
    m, k = a.spec.shape[::-1] if ta else a.spec.shape
    b = g.fresh(a.spec.dtype, (n, k) if tb else (k, n), constant=not g.flag(4))
    c = (
        g.fresh(a.spec.dtype, g.one(((n,), (1, n), (m, 1), (m, n), (), (1,))), constant=g.flag())
        if g.flag()
        else None
    )
    factors = {"alpha": g.one((1.0, 0.5)), "beta": g.one((1.0, -2.0))}
    g.add("Gemm", [a, b, c] if c else [a, b], transA=ta, transB=tb, **factors)


CHANNELS = (3, 1, 2, 4, 5, 16, 17, 8, 20, 32, 33, 48)


def image(g: Grower, dtypes: Sequence[DType] = HEAVY, low: int = 3, high: int = 5) -> Value:
    """(batch, channels, spatial...) with a fixed number of channels."""

    def new(t: DType) -> Value:
        spatial: list[Dim] = []
        for _ in range(g.int(low, min(high, 4)) - 2):
            spatial.append(g.one((5, 4, sym("s"), 1, 9, 17)))
        return g.fresh(t, (g.one((sym("n"), 1, 2)), g.one(CHANNELS), *spatial))

    has_channels = lambda v: isinstance(v.spec.shape[1], int) and v.spec.shape[1] > 0  # noqa: E731
    return g.take(dtypes, low, high, when=has_channels, new=new)


def window(
    g: Grower, x: Value, kernels: Sequence[int] = (3, 1, 2, 5), pooling: bool = False
) -> dict[str, Any]:
    """Kernel, strides, dilations and pads of windows that fit in every environment."""
    if min(g.least(d) for d in x.spec.shape[2:]) < 1:
        raise Unfit
    rows: list[tuple[int, int, int, int, int]] = []
    for d in x.spec.shape[2:]:
        k, stride, dilation = g.one(kernels), g.one((1, 2, 3)), g.one((1, 1, 2))
        most = (k - 1) * dilation if pooling else 3
        begin, end = g.int(0, min(2, most)), g.int(0, min(2, most))
        if g.least(d) + begin + end < (k - 1) * dilation + 1:
            k, dilation, begin, end = 1, 1, 0, 0
        rows.append((k, stride, dilation, begin, end))
    k, strides, dilations, begins, ends = zip(*rows, strict=True)
    return {"kernel_shape": k, "strides": strides, "dilations": dilations, "pads": (*begins, *ends)}


def convolution(g: Grower) -> None:
    x = image(g)
    c = int(x.spec.shape[1])  # type: ignore[arg-type]
    geometry = window(g, x)
    group = g.one([d for d in (1, c, 2, 4, 16) if c % d == 0])
    m = group * g.one((1, 2, 3, 5)) if group > 1 else g.one(CHANNELS)
    scale = lambda rng, s: rng.standard_normal(s) / np.sqrt(max(1, np.prod(s[1:])))  # noqa: E731
    w = g.fresh(
        x.spec.dtype,
        (m, c // group, *geometry.pop("kernel_shape")),
        constant=not g.flag(8),
        fill=scale,
    )
    b = [g.fresh(x.spec.dtype, (m,), constant=True)] if g.flag() else []
    g.add("Convolution", [x, w, *b], group=group, **geometry)


def conv_transpose(g: Grower) -> None:
    x = image(g, high=4)
    if min(g.least(d) for d in x.spec.shape[2:]) < 1:
        raise Unfit
    c, n = int(x.spec.shape[1]), x.spec.rank - 2  # type: ignore[arg-type]
    group = g.one([d for d in (1, c, 2) if c % d == 0])
    stride, kernel = g.int(1, 3), g.int(1, 4)
    pad, dilation = (0, 1) if g.flag() else (g.int(0, 1), g.int(1, 2))
    extra = g.int(0, stride - 1)
    w = g.fresh(x.spec.dtype, (c, g.one((1, 3, 8, 17)), *(kernel,) * n), constant=not g.flag(8))
    b = [g.fresh(x.spec.dtype, (w.spec.shape[1] * group,), constant=True)] if g.flag() else []
    g.add(
        "ConvTranspose",
        [x, w, *b],
        group=group,
        strides=(stride,) * n,
        pads=(pad,) * (2 * n),
        dilations=(dilation,) * n,
        output_padding=(extra,) * n,
    )


def attention(g: Grower) -> None:
    t, b, h = g.one((F32, F32, F16, BF16, F64)), g.one((sym("n"), 1, 2)), g.int(1, 3)
    s, keys, d, e = (
        g.one((sym("s"), 1, 5)),
        g.one((sym("s"), 1, 9, 33)),
        g.one((4, 1, 8, 17, 32)),
        g.one((4, 16, 7)),
    )
    q, k, v = (g.fresh(t, shape) for shape in ((b, h, s, d), (b, h, keys, d), (b, h, keys, e)))
    mask = (
        [g.fresh(t, g.one(((b, 1, 1, keys), (s, keys), (b, h, s, keys), (1, 1, s, 1))))]
        if g.flag()
        else []
    )
    g.add("Attention", [q, k, v, *mask], scale=g.one((1.0, 0.25)), nan_to_zero=g.flag())


def recurrent(g: Grower) -> None:
    name, gates = g.one((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    steps, batch, size, hidden = (
        g.one((sym("s"), 3, 1)),
        g.one((sym("n"), 2, 1)),
        g.one((3, 1, 8)),
        g.one((4, 1, 16, 5)),
    )
    direction = g.one(("forward", "reverse", "bidirectional"))
    d, layout = 2 if direction == "bidirectional" else 1, g.int(0, 1)
    constant, t = not g.flag(5), g.one((F32, F32, F32, F64))
    x = g.fresh(t, (batch, steps, size) if layout else (steps, batch, size))
    w, r = (g.fresh(t, (d, gates * hidden, n), constant=constant) for n in (size, hidden))
    b = g.fresh(t, (d, 2 * gates * hidden), constant=constant) if g.flag() else None
    least = min(1, g.least(steps))
    fill = lambda rng, s: rng.integers(least, min(g.sizes(steps)) + 1, s)  # noqa: E731
    lengths = g.fresh(I32, (batch,), fill=fill) if g.flag(3) else None
    first = [
        g.fresh(t, (batch, d, hidden) if layout else (d, batch, hidden))
        for _ in range(1 + (name == "LSTM"))
    ]
    more = {"linear_before_reset": g.flag()} if name == "GRU" else {}
    inputs = [x, w, r, b, lengths, *(first if g.flag() else [])]
    g.add(name, inputs, hidden_size=hidden, direction=direction, layout=layout, **more)


# -- windows, reductions, normalisation ----------------------------------------------------------


def pool(g: Grower) -> None:
    name = g.one(("MaxPool", "AveragePool", "LpPool"))
    x = image(g, (*FLOATS, I8, U8) if name == "MaxPool" else FLOATS)
    attrs = window(g, x, (2, 3, 1, 5), pooling=True)
    attrs["ceil_mode"] = g.flag()
    if name == "AveragePool":
        attrs["count_include_pad"] = g.flag()
    g.add(name, [x], **attrs)


def global_pool(g: Grower) -> None:
    x = image(g)
    if g.least(prod(x.spec.shape[2:])) < 1:
        raise Unfit
    g.add(g.one(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")), [x])


def axes_of(g: Grower, x: Value) -> tuple[int, ...]:
    return tuple(i - g.one((0, x.spec.rank)) for i in range(x.spec.rank) if g.flag())


def reduction(g: Grower) -> None:
    name = g.one(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp")
    )
    x = g.take(FLOATS if name in ("ReduceMean", "ReduceLogSumExp") else (*FLOATS, I32, I64), 1)
    g.add(name, [x], axes=axes_of(g, x), keepdims=g.flag())


def softmax(g: Grower) -> None:
    x = g.take(FLOATS, 1)
    g.add(
        g.one(("Softmax", "Softmax", "LogSoftmax")), [x], axis=g.int(-x.spec.rank, x.spec.rank - 1)
    )


def layer_norm(g: Grower) -> None:
    x = g.take(FLOATS, 1)
    axis = g.int(-x.spec.rank, x.spec.rank - 1)
    tail = x.spec.shape[axis % x.spec.rank :]
    scale, bias = (
        g.fresh(x.spec.dtype, g.one((tail, tail[-1:], (1,))), constant=not g.flag(4)) for _ in "ab"
    )
    name = g.one(("LayerNormalization", "LayerNormalization", "RMSNormalization"))
    g.add(name, [x, scale, bias] if name[0] == "L" and g.flag() else [x, scale], axis=axis)


def channel_norm(g: Grower) -> None:
    x = image(g, FLOATS, 2)
    c, name = (
        int(x.spec.shape[1]),
        g.one(("BatchNormalization", "InstanceNormalization", "GroupNormalization")),
    )  # type: ignore[arg-type]
    if name != "BatchNormalization" and (x.spec.rank < 3 or g.least(prod(x.spec.shape[2:])) < 1):
        raise Unfit
    count = 4 if name == "BatchNormalization" else 2
    constant = not g.flag(5)
    fill = lambda rng, s: rng.uniform(0.5, 2, s)  # noqa: E731
    more = {"num_groups": g.one([d for d in (1, c, 2, 4) if c % d == 0])} if name[0] == "G" else {}
    g.add(
        name,
        [x, *(g.fresh(x.spec.dtype, (c,), constant=constant, fill=fill) for _ in range(count))],
        **more,
    )


def along_axis(g: Grower) -> None:
    """ArgMax and its like, running sums, the largest few."""
    name = g.one(("ArgMax", "ArgMin", "TopK", "CumSum", "Hardmax", "LpNormalization"))
    float_only = name in ("Hardmax", "LpNormalization")
    x = g.take(
        FLOATS if float_only else (*FLOATS, I32, I64),
        1,
        exact=name not in ("CumSum", "LpNormalization"),
    )
    axis = g.int(-x.spec.rank, x.spec.rank - 1)
    size = g.least(x.spec.shape[axis])
    if name in ("ArgMax", "ArgMin", "TopK", "Hardmax") and size < 1:
        raise Unfit
    attrs: dict[str, Any] = {
        "TopK": {"k": g.int(1, min(size, 3)) if size else 0, "largest": g.flag()},
        "ArgMax": {"keepdims": g.flag(), "select_last_index": g.flag()},
        "CumSum": {"exclusive": g.flag(), "reverse": g.flag()},
    }.get(name, {})
    g.add(name, [x], axis=axis, **attrs)


KINDS.update(
    (f.__name__, f)
    for f in (
        unary,
        convolution,
        reduction,
        pool,
        matmul,
        binary,
        softmax,
        layer_norm,
        conv_transpose,
        channel_norm,
        attention,
        gemm,
        matmul_transposed,
        global_pool,
        recurrent,
        along_axis,
        clip,
        unary_of_positive,
        jump,
        divide,
        prelu,
        cast,
        where,
        comparison,
        logic,
        whole,
        whole_unary,
        whole_division,
        shift,
    )
)
