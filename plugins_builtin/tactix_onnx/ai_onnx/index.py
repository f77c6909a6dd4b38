"""Reading and writing by index: operators that are not a layer as they stand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim, compare, symbol_name
from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axis_of

CONVERTERS = Table()


@CONVERTERS("Gather")
def gather(ctx: Context, node: Any) -> Value:
    """A symbol that counts through a constant table cannot exceed it: the network notes that."""
    data, indices = ctx.tensor(), ctx.tensor(1)
    axis = axis_of(ctx.attr("axis", 0), data.spec.rank, ctx.op)
    symbol, rows = symbol_name(_count(indices)), data.spec.shape[axis]
    if data.const is not None and symbol is not None and isinstance(rows, int):
        ctx.network.limit(symbol, rows)
    return ctx.layer("tactix.Gather", [data, indices], axis=axis)


_PASSING = ("tactix.Reshape@1", "tactix.Expand@1", "tactix.Cast@1", "tactix.Transpose@1")


def _count(v: Value) -> Dim:
    """``n`` of a tensor that holds 0 to n - 1 in any arrangement; 0 if it is none."""
    while v.producer is not None and v.producer.layer.key in _PASSING:
        v = v.producer.given[0]
    if v.producer is None or v.producer.layer.key != "tactix.Range@1":
        return 0
    start, limit, delta = (s.spec.known() for s in v.producer.given)
    return limit[0] if limit is not None and start == (0,) and delta == (1,) else 0


@CONVERTERS("Scatter")
def scatter(ctx: Context, node: Any) -> Value:
    """The old name of ScatterElements."""
    x = ctx.tensor()
    axis = axis_of(ctx.attr("axis", 0), x.spec.rank, ctx.op)
    return ctx.layer("tactix.ScatterElements", [x, ctx.tensor(1), ctx.tensor(2)], axis=axis)


@CONVERTERS("GatherND")
def gather_nd(ctx: Context, node: Any) -> Value:
    """Ranks follow from how long an index is: where its axis is open, from what the model declares
    of the result.
    """
    data, batch, declared = ctx.tensor(), ctx.attr("batch_dims", 0), ctx.declared(0)
    rank = None if declared is None else len(declared)
    indices = _of_known_length(ctx, data.spec.rank - batch, rank)
    return ctx.layer("tactix.GatherND", [data, indices], batch_dims=batch)


@CONVERTERS("ScatterND")
def scatter_nd(ctx: Context, node: Any) -> Value:
    """As GatherND; the rank of the updates tells how long an index is."""
    data, updates = ctx.tensor(), ctx.tensor(2)
    indices = _of_known_length(ctx, data.spec.rank, updates.spec.rank)
    reduction = ctx.attr("reduction", "none")
    return ctx.layer("tactix.ScatterND", [data, indices, updates], reduction=reduction)


def _of_known_length(ctx: Context, most: int, slices: int | None) -> Value:
    """The indices with a size for the last axis, which names as many of ``most`` axes; ``slices``:
    the rank of what they name, where that is known. Raises UnsupportedOperator.
    """
    indices = ctx.tensor(1)
    length = indices.spec.shape[-1] if indices.spec.rank else 1
    if isinstance(length, int):
        return indices
    found = ctx.wanted(length)
    if found is None and slices is not None:
        found = indices.spec.rank - 1 + most - slices
    if found is None or not 1 <= found <= most:
        name = ctx.node.input[1]
        why = f"the last axis of its indices {name!r} is {length}, and tells the rank of the result"
        ctx.fail(f"{why}: it is from 1 to {most}", ctx.sizing(length, most))
    return ctx.sized(indices, indices.spec.rank - 1, found)


LARGEST = 1 << 20
"""Most elements of a counter that is stored; a longer one is made by running."""


def counting(ctx: Context, size: Dim, axis: int, rank: int, offset: int = 0) -> Value:
    """``offset, offset + 1, ...`` along one of ``rank`` axes, int64."""
    shape: list[Dim] = [1] * rank
    shape[axis] = size
    if isinstance(size, int) and size <= LARGEST:
        return ctx.constant(
            np.arange(offset, offset + size).reshape(
                [size if i == axis else 1 for i in range(rank)]
            )
        )
    limit = ctx.layer("tactix.Dims", [], values=(size + offset,), shape=(), dtype=DType.INT64)
    numbers = ctx.layer(
        "tactix.Range", [ctx.constant(np.int64(offset)), limit, ctx.constant(np.int64(1))]
    )
    return ctx.reshape(numbers, shape)


@CONVERTERS("Trilu")
def triangle(ctx: Context, node: Any) -> Value:
    """``x`` where column - row >= k (upper) or <= k (lower), else 0: a pointwise choice by two
    counters.
    """
    x = ctx.tensor()
    if x.spec.rank < 2:
        ctx.fail(f"it takes matrices, not {x.spec}", "Give it 2 axes or more")
    *_, rows, columns = x.spec.shape
    upper = bool(ctx.attr("upper", 1))
    shift = ctx.ints(1) if ctx.input(1) is not None else (0,)
    row, column = counting(ctx, rows, 0, 2, shift[0] if shift else 0), counting(ctx, columns, 1, 2)
    if shift is None:
        row = ctx.layer("tactix.Add", [row, ctx.reshape(ctx.tensor(1), ())])
    kept = ctx.layer("tactix.GreaterOrEqual" if upper else "tactix.LessOrEqual", [column, row])
    return ctx.layer("tactix.Where", [kept, x, ctx.scalar(0, x)])


@CONVERTERS("OneHot")
def one_hot(ctx: Context, node: Any) -> Value:
    """``on`` where the counter along the new axis is the index (counted from the end if negative),
    else ``off``.
    """
    indices, values = ctx.tensor(), ctx.tensor(2)
    if values.spec.rank != 1 or compare(values.spec.shape[0], 2) in ("<", ">"):
        ctx.fail(f"its values are {values.spec}", "Give two: off and on")
    if ctx.late(1):
        fields = {"symbol": ctx.symbol(), "axis": ctx.attr("axis", -1)}
        return ctx.layer("tactix.DynamicOneHot", [indices, ctx.tensor(1), values], **fields)
    (depth,) = ctx.need_known(1, "depths")
    if compare(depth, 0) == "<":
        raise ModelImportError(f"a depth of {depth}, which is negative", do="Give 0 or more")
    rank = indices.spec.rank + 1
    axis = axis_of(ctx.attr("axis", -1), rank, ctx.op)
    if not indices.spec.dtype.is_int or indices.spec.dtype is not DType.INT64:
        indices = ctx.cast(indices, DType.INT64)
    shape = (*indices.spec.shape[:axis], 1, *indices.spec.shape[axis:])
    size = ctx.layer("tactix.Dims", [], values=(depth,), shape=(), dtype=DType.INT64)
    size = ctx.constant(np.int64(depth)) if isinstance(depth, int) else size
    negative = ctx.layer("tactix.Less", [indices, ctx.constant(np.int64(0))])
    wrapped = ctx.layer(
        "tactix.Where", [negative, ctx.layer("tactix.Add", [indices, size]), indices]
    )
    hit = ctx.layer("tactix.Equal", [ctx.reshape(wrapped, shape), counting(ctx, depth, axis, rank)])
    off, on = (
        ctx.layer("tactix.Slice", [values], begins=(i,), sizes=(1,), axes=(0,), steps=(1,))
        for i in (0, 1)
    )
    return ctx.layer("tactix.Where", [hit, on, off])


@CONVERTERS("EyeLike")
def eye_like(ctx: Context, node: Any) -> Value:
    """1 where column - row is k, else 0."""
    x = ctx.tensor()
    if x.spec.rank != 2:
        ctx.fail(f"it takes a matrix, not {x.spec}", "Give it 2 axes")
    rows, columns = x.spec.shape
    row, column = counting(ctx, rows, 0, 2, ctx.attr("k", 0)), counting(ctx, columns, 1, 2)
    return ctx.cast(ctx.layer("tactix.Equal", [column, row]), ctx.dtype_attr("dtype", x.spec.dtype))


@CONVERTERS("AffineGrid")
def affine_grid(ctx: Context, node: Any) -> Value:
    fields = {"symbol": ctx.symbol(), "align_corners": bool(ctx.attr("align_corners", 0))}
    return ctx.layer("tactix.AffineGrid", [ctx.tensor(), ctx.tensor(1)], **fields)
