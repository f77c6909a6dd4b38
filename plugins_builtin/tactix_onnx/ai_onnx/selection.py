"""Operators whose result has as many elements as the data says."""

from __future__ import annotations

from typing import Any

from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()


def _axis(ctx: Context) -> int | None:
    axis = ctx.attr("axis")
    return None if axis is None else axis_of(axis, ctx.spec().rank, ctx.op)


@CONVERTERS("NonZero")
def non_zero(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.NonZero", [ctx.tensor()], symbol=ctx.symbol())


@CONVERTERS("Compress")
def compress(ctx: Context, node: Any) -> Value:
    return ctx.layer(
        "tactix.Compress", [ctx.tensor(), ctx.tensor(1)], symbol=ctx.symbol(), axis=_axis(ctx)
    )


@CONVERTERS("Unique")
def unique(ctx: Context, node: Any) -> Any:
    fields = {"symbol": ctx.symbol(), "axis": _axis(ctx), "sorted": bool(ctx.attr("sorted", 1))}
    return ctx.layers("tactix.Unique", [ctx.tensor()], **fields)


@CONVERTERS("NonMaxSuppression")
def non_max_suppression(ctx: Context, node: Any) -> Value:
    inputs = [ctx.tensor(), ctx.tensor(1), *(ctx.input(i) for i in (2, 3, 4))]
    fields = {"symbol": ctx.symbol(), "center_point_box": bool(ctx.attr("center_point_box", 0))}
    return ctx.layer("tactix.NonMaxSuppression", inputs, **fields)
