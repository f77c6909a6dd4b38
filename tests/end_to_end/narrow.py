"""Growers of what exporters make of networks in 16 bits: streams, normalization in float32, values
in both widths.
"""

from __future__ import annotations

from strategies import BF16, F16, F32, KINDS, Grower, Unfit

from tactix.contracts.graph import Value

HALVES = (F16, BF16)


def stream(g: Grower, low: int = 1) -> Value:
    return g.take(HALVES, low, 4)


def width(g: Grower, x: Value) -> int:
    """The fixed size of the last axis."""
    n = x.spec.shape[-1]
    if not isinstance(n, int) or n < 2:
        raise Unfit
    return n


def normalized(g: Grower, x: Value) -> Value:
    """A normalization over the last axis, in float32 between casts or in 16 bits."""
    n, wide = width(g, x), g.flag(3) is False
    (y,) = g.add("Cast", [x], to=F32) if wide else (x,)
    scale, bias = (g.fresh(y.spec.dtype, (n,), constant=True) for _ in range(2))
    if g.flag():
        (y,) = g.add("RMSNormalization", [y, scale])
    else:
        (y,) = g.add("LayerNormalization", [y, scale, bias])
    return g.add("Cast", [y], to=x.spec.dtype)[0] if wide else y


def residual(g: Grower) -> None:
    """A block beside the stream: ``x + f(norm(x))``."""
    x = stream(g)
    if g.flag():
        (x,) = g.add("Add", [x, g.fresh(x.spec.dtype, x.spec.shape)])
    y = normalized(g, x)
    if g.flag():
        n = width(g, x)
        (y,) = g.add(
            "MatMul",
            [y, g.fresh(x.spec.dtype, (n, n), True, lambda rng, s: rng.standard_normal(s) / n)],
        )
    (y,) = g.add(g.one(("Tanh", "Gelu", "Sigmoid", "Relu", "Swish")), [y])
    (y,) = g.add("Add", [x, y])
    if g.flag():
        g.shown.add(g.add("Cast", [y], to=F32)[0])
        g.shown.add(y)


def both_widths(g: Grower) -> None:
    """A value that is an output in 16 bits and in 32, and may be used further."""
    x = stream(g, 0)
    (y,) = g.add(g.one(("Add", "Mul", "Sub")), [x, g.fresh(x.spec.dtype, x.spec.shape)])
    g.shown.update((y, *g.add("Cast", [y], to=F32)))
    if g.flag():
        g.add("Tanh", [y])


def decision(g: Grower) -> None:
    """A jump on what arithmetic in 16 bits makes of exact numbers."""
    x = g.take(HALVES, exact=True)
    (y,) = g.add(
        g.one(("Add", "Mul", "Sub")), [x, g.fresh(x.spec.dtype, x.spec.shape, constant=g.flag())]
    )
    if g.flag():
        g.add(g.one(("Floor", "Round", "Ceil", "Sign")), [y])
        return
    (c,) = g.add(g.one(("Less", "GreaterOrEqual", "Equal")), [y, x])
    g.add("Where", [c, x, y])


def scaled_root(g: Grower) -> None:
    """RMS normalization written out: ``x * rsqrt(mean(x^2) + eps)``, the mean in float32."""
    x = stream(g)
    width(g, x)
    (w,) = g.add("Cast", [x], to=F32)
    (m,) = g.add("ReduceMean", [g.add("Mul", [w, w])[0]], axes=(-1,))
    (m,) = g.add("Add", [m, g.fresh(F32, (), True, lambda rng, s: rng.uniform(0.5, 1, s))])
    (y,) = g.add("Div", [w, g.add("Sqrt", [m])[0]])
    (y,) = g.add("Cast", [y], to=x.spec.dtype)
    g.add("Mul", [y, g.fresh(x.spec.dtype, x.spec.shape[-1:], constant=True)])


NARROW = tuple(f.__name__ for f in (residual, both_widths, decision, scaled_root))
"""Kinds of this file, for networks that are mostly made of them."""
KINDS.update((f.__name__, f) for f in (residual, both_widths, decision, scaled_root))
