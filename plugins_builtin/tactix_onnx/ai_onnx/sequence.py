"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_onnx.weights import dtype_of

CONVERTERS = Table()


@CONVERTERS("SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceLength")
def plain(ctx: Context, node: Any) -> Value:
    return ctx.layer(f"tactix.{ctx.op}", ctx.inputs)


@CONVERTERS("SequenceEmpty")
def empty(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.SequenceEmpty", [], dtype=ctx.dtype_attr("dtype", DType.FP32))


@CONVERTERS("SequenceAt")
def at(ctx: Context, node: Any) -> Value:
    return ctx.layer("tactix.SequenceAt", ctx.inputs, symbol=ctx.symbol(), shape=ctx.declared(0))


@CONVERTERS("SplitToSequence")
def split(ctx: Context, node: Any) -> Value:
    axis = _axis(ctx, ctx.attr("axis", 0), ctx.spec().rank)
    return ctx.layer(
        "tactix.SplitToSequence", ctx.inputs, axis=axis, keepdims=bool(ctx.attr("keepdims", 1))
    )


@CONVERTERS("ConcatFromSequence")
def concat(ctx: Context, node: Any) -> Value:
    attrs = {"axis": ctx.attr("axis"), "new_axis": bool(ctx.attr("new_axis", 0))}
    return ctx.layer("tactix.ConcatFromSequence", ctx.inputs, symbol=ctx.symbol(), **attrs)


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
