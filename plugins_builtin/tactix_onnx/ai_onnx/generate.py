"""Constants and tensors made of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

_VALUES = {
    "value_float": np.float32,
    "value_int": np.int64,
    "value_floats": np.float32,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@CONVERTERS("Constant")
def constant(ctx: Context, node: Any) -> Value:
    for name in ("value", "sparse_value"):
        if ctx.has_attr(name):
            return ctx.constant(ctx.attr(name))
    for name, dtype in _VALUES.items():
        if ctx.has_attr(name):
            return ctx.constant(np.array(ctx.attr(name), dtype))
    return ctx.fail("it has no value")


@CONVERTERS("ConstantOfShape")
def constant_of_shape(ctx: Context, node: Any) -> Value:
    value = ctx.attr("value", np.zeros(1, np.float32))
    if value.size != 1:
        ctx.fail(f"its value has {value.size} elements", "Give a tensor of one element")
    fields = {"value": value.item(), "dtype": DType.of(value.dtype)}
    if ctx.late(0):
        return ctx.layer("tactix.DynamicFill", [ctx.tensor()], symbol=ctx.symbol(), **fields)
    return ctx.layer("tactix.Fill", [], shape=ctx.need_known(0, "dims"), **fields)


@CONVERTERS("Range")
def arange(ctx: Context, node: Any) -> Value:
    """Bounds that follow from shapes give a size; others give it a name of its own. By ones unless
    a step is given, which com.microsoft's may leave out.
    """
    start = ctx.tensor()
    given = (start, ctx.tensor(1), ctx.input(2) or ctx.scalar(1, start))
    scalars = [ctx.reshape(x, ()) for x in given]
    return ctx.layer("tactix.Range", scalars, symbol=f"{ctx.symbol()}_size")
