"""Fourier transforms and mel filters: lengths and axes move between attributes and inputs over the
operator sets.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()


@CONVERTERS("DFT", since=17)
def transform_attribute(ctx: Context, node: Any) -> Value:
    return _transformed(ctx, ctx.attr("axis", 1), late=ctx.late(1))


@CONVERTERS("DFT", since=20)
def transform(ctx: Context, node: Any) -> Value:
    axis = ctx.ints(2) or (-2,)
    return _transformed(ctx, axis[0], late=ctx.late(1) or ctx.late(2))


def _transformed(ctx: Context, axis: int, late: bool) -> Value:
    flags = {name: bool(ctx.attr(name, 0)) for name in ("inverse", "onesided")}
    if not late:
        length = (ctx.known(1) or (0,))[0]
        return ctx.layer("tactix.DFT", [ctx.tensor()], axis=axis, length=length, **flags)
    inputs = [ctx.tensor(), ctx.input(1), ctx.input(2)]
    if ctx.opset < 20:
        inputs[2] = ctx.constant(_int64(axis))
    return ctx.layer("tactix.DynamicDFT", inputs, symbol=ctx.symbol(), **flags)


def _int64(value: int) -> Any:
    import numpy as np

    return np.int64(value)


@CONVERTERS("STFT")
def frames(ctx: Context, node: Any) -> Value:
    x, window, onesided = ctx.tensor(), ctx.input(2), bool(ctx.attr("onesided", 1))
    size = ctx.known(3) or ((window or x).spec.shape[0 if window else 1],)
    step = ctx.ints(1)
    if ctx.late(3) or step is None or not isinstance(size[0], int):
        inputs = [x, ctx.tensor(1), window, ctx.input(3)]
        return ctx.layer("tactix.DynamicSTFT", inputs, symbol=ctx.symbol(), onesided=onesided)
    fields = {"frame_step": step[0], "frame_length": size[0], "onesided": onesided}
    return ctx.layer("tactix.STFT", [x, window], **fields)


@CONVERTERS("MelWeightMatrix")
def mel_filters(ctx: Context, node: Any) -> Value:
    dtype = ctx.dtype_attr("output_datatype", DType.FP32)
    inputs = [ctx.tensor(i) for i in range(5)]
    return ctx.layer("tactix.MelWeightMatrix", inputs, symbol=ctx.symbol(), dtype=dtype)
