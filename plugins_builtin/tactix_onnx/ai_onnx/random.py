"""Random numbers. Layers whose names begin with Random are neither computed while building nor
merged.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

_SETTINGS = {"Normal": ("mean", "scale"), "Uniform": ("low", "high")}


def _numbers(ctx: Context, shape: Any, default: DType) -> Value:
    kind = ctx.op.removeprefix("Random").removesuffix("Like")
    fields = {name: ctx.attr(name) for name in _SETTINGS[kind]}
    dtype = ctx.dtype_attr("dtype", default)
    return ctx.layer(
        f"tactix.Random{kind}", [], shape=tuple(shape), dtype=dtype, seed=ctx.attr("seed"), **fields
    )


@CONVERTERS("RandomNormal", "RandomUniform")
def of_shape(ctx: Context, node: Any) -> Value:
    return _numbers(ctx, ctx.attr("shape", ()), DType.FP32)


@CONVERTERS("RandomNormalLike", "RandomUniformLike")
def like(ctx: Context, node: Any) -> Value:
    """Of the input only the shape counts, and the dtype where none is given."""
    return _numbers(ctx, ctx.spec().shape, ctx.spec().dtype)


@CONVERTERS("Bernoulli")
def bernoulli(ctx: Context, node: Any) -> Value:
    dtype = ctx.dtype_attr("dtype", ctx.spec().dtype)
    return ctx.layer("tactix.RandomBernoulli", [ctx.tensor()], dtype=dtype, seed=ctx.attr("seed"))


@CONVERTERS("Multinomial")
def multinomial(ctx: Context, node: Any) -> Value:
    fields = {
        "sample_size": ctx.attr("sample_size", 1),
        "dtype": ctx.dtype_attr("dtype", DType.INT32),
    }
    return ctx.layer("tactix.RandomMultinomial", [ctx.tensor()], seed=ctx.attr("seed"), **fields)
