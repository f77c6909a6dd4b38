"""Arithmetic, comparisons and casts: operators that are not a layer as they stand."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.text import cast_text
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()


@CONVERTERS("Identity")
def identity(ctx: Context, node: Any) -> Value:
    return ctx.tensor()


@CONVERTERS("Max", "Min")
def extreme(ctx: Context, node: Any) -> Value:
    layer = f"tactix.{ctx.op}"
    return functools.reduce(lambda a, b: ctx.layer(layer, [a, b]), _all_inputs(ctx))


@CONVERTERS("Sum")
def total(ctx: Context, node: Any) -> Value:
    return functools.reduce(lambda a, b: ctx.layer("tactix.Add", [a, b]), _all_inputs(ctx))


@CONVERTERS("Mean")
def mean(ctx: Context, node: Any) -> Value:
    values = _all_inputs(ctx)
    return ctx.layer("tactix.Mul", [total(ctx, node), ctx.scalar(1 / len(values), values[0])])


def _all_inputs(ctx: Context) -> list[Value]:
    return [ctx.tensor(i) for i in range(max(1, len(ctx.inputs)))]


@CONVERTERS("Clip")
def clip_attributes(ctx: Context, node: Any) -> Value:
    """Before operator set 11 the bounds are attributes; the defaults are the ends of float32, which
    cut nothing.
    """
    ends = np.finfo(np.float32)
    low, high = ctx.attr("min", -np.inf), ctx.attr("max", np.inf)
    low = -np.inf if low <= ends.min else low
    high = np.inf if high >= ends.max else high
    return ctx.layer("tactix.Clip", [ctx.tensor()], min=float(low), max=float(high))


@CONVERTERS("Clip", since=11)
def clip(ctx: Context, node: Any) -> Value:
    """Constant bounds become attributes; others are tensors."""
    x, low, high = ctx.tensor(), ctx.const(1), ctx.const(2)
    exact = x.spec.dtype.is_float or x.spec.dtype.bits <= 32
    if (
        exact
        and (low is not None or ctx.input(1) is None)
        and (high is not None or ctx.input(2) is None)
    ):
        bounds = {"min": low, "max": high}
        return ctx.layer(
            "tactix.Clip", [x], **{k: float(v.item()) for k, v in bounds.items() if v is not None}
        )
    if ctx.input(1) is not None:
        x = ctx.layer("tactix.Max", [x, ctx.tensor(1)])
    return ctx.layer("tactix.Min", [x, ctx.tensor(2)]) if ctx.input(2) is not None else x


@CONVERTERS("Cast", since=6)
def cast(ctx: Context, node: Any) -> Value:
    return cast_to(ctx, ctx.tensor(), ctx.dtype_attr("to", DType.FP32))


@CONVERTERS("CastLike")
def cast_like(ctx: Context, node: Any) -> Value:
    return cast_to(ctx, ctx.tensor(), ctx.spec(1).dtype)


def cast_to(ctx: Context, x: Value, to: DType) -> Value:
    """Text and the rounding of floats of 8 bits included."""
    if DType.STRING in (to, x.spec.dtype):
        return cast_text(ctx, x, to)
    if x.spec.dtype is to:
        return x
    if to is DType.FP8E8M0:
        attrs = {
            "rounding": ctx.attr("round_mode", "up"),
            "saturate": bool(ctx.attr("saturate", 1)),
        }
        return ctx.layer("tactix.CastToExponent", [ctx.cast(x, DType.FP32)], **attrs)
    ctx.ignore("round_mode")
    return ctx.layer("tactix.Cast", [x], to=to, saturate=bool(ctx.attr("saturate", 1)))


@CONVERTERS("Dropout")
def dropout(ctx: Context, node: Any) -> Any:
    """Nothing in inference: the mask keeps all."""
    ctx.ignore("ratio", "seed", "is_test")
    x = ctx.tensor()
    if len(ctx.node.output) < 2 or not ctx.node.output[1]:
        return [x]
    return [x, ctx.layer("tactix.Fill", [], shape=x.spec.shape, value=1, dtype=DType.BOOL)]
