"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_onnx.rows import joined, row_at, rows_of, with_row
from tactix_onnx.sequences import MOST_ELEMENTS, elements
from tactix_onnx.weights import dtype_of

CONVERTERS = Table()


@CONVERTERS("SequenceConstruct", "SequenceErase")
def plain(ctx: Context, node: Any) -> Value:
    return ctx.layer(f"tactix.{ctx.op}", ctx.inputs)


@CONVERTERS("SequenceInsert")
def insert(ctx: Context, node: Any) -> Value:
    rows = rows_of(ctx, ctx.tensor()) if ctx.input(2) is None else None
    more = None if rows is None else with_row(ctx, rows, ctx.tensor(1))
    return ctx.layer("tactix.SequenceInsert", ctx.inputs) if more is None else more


@CONVERTERS("SequenceEmpty")
def empty(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.SequenceEmpty", [], dtype=ctx.dtype_attr("dtype", DType.FP32))


@CONVERTERS("SequenceAt")
def at(ctx: Context, node: Any) -> Value:
    known, position = elements(ctx.tensor()), ctx.ints(1)
    if known is not None and position is not None and -len(known) <= position[0] < len(known):
        return known[position[0]]
    rows = rows_of(ctx, ctx.tensor())
    row = None if rows is None else row_at(ctx, rows, ctx.tensor(1))
    if row is not None:
        return row
    return ctx.layer("tactix.SequenceAt", ctx.inputs, symbol=ctx.symbol(), shape=ctx.declared(0))


@CONVERTERS("SequenceLength")
def length(ctx: Context, node: Any) -> Value:
    known = elements(ctx.tensor())
    if known is not None:
        return ctx.constant(np.array(len(known), np.int64))
    rows = rows_of(ctx, ctx.tensor())
    if rows is not None:
        return ctx.layer("tactix.Dims", [], values=rows.spec.shape[:1], shape=(), dtype=DType.INT64)
    return ctx.layer("tactix.SequenceLength", ctx.inputs)


@CONVERTERS("SplitToSequence")
def split(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    axis = _axis(ctx, ctx.attr("axis", 0), x.spec.rank)
    keeps_axis = bool(ctx.attr("keepdims", 1)) or ctx.input(1) is not None
    sizes = _known_sizes(ctx, axis)
    if not sizes:
        return ctx.layer("tactix.SplitToSequence", ctx.inputs, axis=axis, keepdims=keeps_axis)
    pieces = [x] if len(sizes) == 1 else ctx.layers("tactix.Split", [x], axis=axis, sizes=sizes)
    if not keeps_axis:
        pieces = [_without_axis(ctx, piece, axis) for piece in pieces]
    return ctx.layer("tactix.SequenceConstruct", pieces)


@CONVERTERS("ConcatFromSequence")
def concat(ctx: Context, node: Any) -> Value:
    known = elements(ctx.tensor())
    axis, new_axis = ctx.attr("axis"), bool(ctx.attr("new_axis", 0))
    if known and all(v.spec.rank == known[0].spec.rank for v in known):
        return _joined(ctx, known, _axis(ctx, axis, known[0].spec.rank + new_axis), new_axis)
    rows = rows_of(ctx, ctx.tensor())
    if rows is not None and rows.spec.shape[0] != 0:
        return joined(ctx, rows, _axis(ctx, axis, rows.spec.rank - 1 + new_axis), new_axis)
    attrs = {"axis": axis, "new_axis": new_axis}
    return ctx.layer("tactix.ConcatFromSequence", ctx.inputs, symbol=ctx.symbol(), **attrs)


# -- sequences whose elements are known ------------------------------------------------------------


def _known_sizes(ctx: Context, axis: int) -> tuple[int, ...]:
    """Of the pieces of a tensor; none where they are not known, do not fit, or are too many."""
    length, given = ctx.spec().shape[axis], ctx.ints(1)
    if not isinstance(length, int) or (ctx.input(1) is not None and given is None):
        return ()
    if given is None or ctx.spec(1).rank == 0:
        step = 1 if given is None else given[0]
        if step < 1 or length > step * MOST_ELEMENTS:
            return ()
        return tuple(min(step, length - begin) for begin in range(0, length, step))
    fits = sum(given) == length and min(given, default=-1) >= 0 and len(given) <= MOST_ELEMENTS
    return given if fits else ()


def _without_axis(ctx: Context, x: Value, axis: int) -> Value:
    return ctx.reshape(x, (*x.spec.shape[:axis], *x.spec.shape[axis + 1 :]))


def _joined(ctx: Context, values: list[Value], axis: int, new_axis: bool) -> Value:
    if new_axis:
        values = [ctx.reshape(v, (*v.spec.shape[:axis], 1, *v.spec.shape[axis:])) for v in values]
    return values[0] if len(values) == 1 else ctx.layer("tactix.Concat", values, axis=axis)


def _axis(ctx: Context, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        ctx.fail(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


# -- optionals -----------------------------------------------------------------------------------


@CONVERTERS("Optional")
def optional(ctx: Context, node: Any) -> Value:
    if ctx.input(0) is not None:
        ctx.ignore("type")
        return ctx.layer("tactix.Optional", [ctx.tensor()])
    type_proto = ctx.attr("type")
    if type_proto is None:
        ctx.fail("it has neither a value nor a type")
    is_sequence = type_proto.WhichOneof("value") == "sequence_type"
    tensor = (
        type_proto.sequence_type.elem_type.tensor_type if is_sequence else type_proto.tensor_type
    )
    return ctx.layer(
        "tactix.Optional", [], dtype=dtype_of(tensor.elem_type, ctx.who), is_sequence=is_sequence
    )


@CONVERTERS("OptionalGetElement")
def get_element(ctx: Context, node: Any) -> Value:
    """Since operator set 18 the value may be no optional: then it is itself."""
    if ctx.spec().dtype is not DType.OPTIONAL:
        return ctx.tensor()
    return ctx.layer(
        "tactix.OptionalGetElement", [ctx.tensor()], symbol=ctx.symbol(), shape=ctx.declared(0)
    )


@CONVERTERS("OptionalHasElement")
def has_element(ctx: Context, node: Any) -> Value:
    found = ctx.input(0)
    if found is None or found.spec.dtype is not DType.OPTIONAL:
        return ctx.constant(np.array(found is not None))
    return ctx.layer("tactix.OptionalHasElement", [found])
