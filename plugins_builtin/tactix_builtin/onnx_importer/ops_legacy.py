"""Forms of the first operator sets: broadcasting on demand, from an axis on."""

from __future__ import annotations

from typing import Any

from tactix.contracts.graph import Value
from tactix_builtin.layers.common import axis_of
from tactix_builtin.onnx_importer.convert import Context, Table

CONVERTERS = Table()

_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")


@CONVERTERS(*_BINARY)
def aligned(ctx: Context, node: Any) -> Value:
    """With ``broadcast``, the second operand's axes lie beside the first's from ``axis`` on."""
    ctx.ignore("consumed_inputs")
    a, b = ctx.tensor(), ctx.tensor(1)
    if ctx.attr("broadcast", 0) and ctx.has_attr("axis"):
        axis = axis_of(ctx.attr("axis"), max(1, a.spec.rank), ctx.op)
        b = ctx.reshape(b, (*b.spec.shape, *(1,) * (a.spec.rank - axis - b.spec.rank)))
    return ctx.layer(f"tactix.{ctx.op}", [a, b])


@CONVERTERS(*_BINARY, since=7)
def plain(ctx: Context, node: Any) -> Value:
    return ctx.layer(f"tactix.{ctx.op}", [ctx.tensor(), ctx.tensor(1)])


@CONVERTERS("PRelu")
def slope_per_channel(ctx: Context, node: Any) -> Value:
    ctx.ignore("consumed_inputs")
    x, slope = ctx.tensor(), ctx.tensor(1)
    if slope.spec.rank == 1 and slope.spec.shape != (1,) and x.spec.rank > 1:
        slope = ctx.reshape(slope, (*slope.spec.shape, *(1,) * (x.spec.rank - 2)))
    return ctx.layer("tactix.PRelu", [x, slope])


@CONVERTERS("PRelu", since=7)
def slope(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.PRelu", [ctx.tensor(), ctx.tensor(1)])


@CONVERTERS("Gemm")
def gemm(ctx: Context, node: Any) -> Value:
    """``broadcast`` only allowed what is always allowed now."""
    ctx.ignore("broadcast")
    factors = {name: ctx.attr(name, 1.0) for name in ("alpha", "beta")}
    flags = {name: bool(ctx.attr(name, 0)) for name in ("transA", "transB")}
    return ctx.layer("tactix.Gemm", [ctx.tensor(), ctx.tensor(1), ctx.input(2)], **factors, **flags)
