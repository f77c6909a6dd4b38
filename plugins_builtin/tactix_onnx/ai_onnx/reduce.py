"""Reductions, TopK and running sums: axes move from attributes to inputs over the operator sets."""

from __future__ import annotations

from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axes_of, axis_of

CONVERTERS = Table()

_DIRECT = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_COMPOSED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


def _reduced(ctx: Context, layer: str, x: Value) -> Value:
    """``x`` reduced over the node's axes: all of them if none are given, unless the node says that
    means nothing.
    """
    ctx.ignore("keepdims", "noop_with_empty_axes")
    rank = x.spec.rank
    if not ctx.has_attr("axes") and ctx.late(1):
        flags = {
            name: bool(ctx.attr(name, d))
            for name, d in (("keepdims", 1), ("noop_with_empty_axes", 0))
        }
        reduction = layer.removeprefix("tactix.")
        return ctx.layer(
            "tactix.DynamicReduce",
            [x, ctx.tensor(1)],
            symbol=ctx.symbol(),
            reduction=reduction,
            **flags,
        )
    axes = ctx.axes(1)
    if not axes:
        axes = () if ctx.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if not axes:
        return x
    ordered = tuple(sorted(axes_of(axes, rank, ctx.op)))
    return ctx.layer(layer, [x], axes=ordered, keepdims=bool(ctx.attr("keepdims", 1)))


@CONVERTERS(*_DIRECT)
def reduce(ctx: Context, node: Any) -> Value:
    return _reduced(ctx, f"tactix.{ctx.op}", ctx.tensor())


@CONVERTERS("ReduceLogSumExp")
def log_sum_exp(ctx: Context, node: Any) -> Value:
    """Of integers in float64, rounded towards zero."""
    x = ctx.tensor()
    wide = x if x.spec.dtype.is_float else ctx.cast(x, DType.FP64)
    return ctx.cast(_reduced(ctx, "tactix.ReduceLogSumExp", wide), x.spec.dtype)


@CONVERTERS(*_COMPOSED)
def composed(ctx: Context, node: Any) -> Value:
    """A sum of magnitudes, squares or plain elements, then a root or a logarithm."""
    x = ctx.tensor()
    if ctx.op == "ReduceL1":
        x = ctx.layer("tactix.Abs", [x])
    elif ctx.op in ("ReduceL2", "ReduceSumSquare"):
        x = ctx.layer("tactix.Mul", [x, x])
    y = _reduced(ctx, "tactix.ReduceSum", x)
    after = {"ReduceL2": "tactix.Sqrt", "ReduceLogSum": "tactix.Log"}.get(ctx.op)
    return ctx.layer(after, [y]) if after else y


@CONVERTERS("TopK")
def top_k_attribute(ctx: Context, node: Any) -> Any:
    return _top_k(ctx, ctx.attr("k"))


@CONVERTERS("TopK", since=10)
def top_k(ctx: Context, node: Any) -> Any:
    if ctx.late(1):
        return ctx.layers(
            "tactix.DynamicTopK", [ctx.tensor(), ctx.tensor(1)], symbol=ctx.symbol(), **_order(ctx)
        )
    (k,) = ctx.need_known(1, "numbers of elements")
    return _top_k(ctx, k)


def _top_k(ctx: Context, k: Any) -> Any:
    return ctx.layers("tactix.TopK", [ctx.tensor()], k=k, **_order(ctx))


def _order(ctx: Context) -> dict[str, Any]:
    flags = {name: bool(ctx.attr(name, 1)) for name in ("largest", "sorted")}
    return {"axis": axis_of(ctx.attr("axis", -1), ctx.spec().rank, ctx.op), **flags}


@CONVERTERS("CumSum", "CumProd")
def cumulative(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    flags = {name: bool(ctx.attr(name, 0)) for name in ("exclusive", "reverse")}
    if ctx.late(1):
        return ctx.layer("tactix.DynamicCumulative", [x, ctx.tensor(1)], fold=ctx.op, **flags)
    axis = axis_of(ctx.need_ints(1, "axes")[0], x.spec.rank, ctx.op)
    return ctx.layer(f"tactix.{ctx.op}", [x], axis=axis, **flags)
