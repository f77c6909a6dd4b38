"""Fourier transforms and mel filters: lengths and axes move between attributes and inputs over the
operator sets.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dims import Assumption, Dim, floordiv
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
    half = flags["onesided"] and not flags["inverse"]
    x = ctx.tensor()
    x = _of_real_numbers(ctx, x) if half else _with_parts(ctx, x)
    if half and x.spec.shape[-1] == 2:
        ctx.fail("half of the result tells all for real numbers alone", "Set onesided to 0")
    if not late:
        length = (ctx.known(1) or (0,))[0]
        return ctx.layer("tactix.DFT", [x], axis=axis, length=length, **flags)
    inputs = [x, ctx.input(1), ctx.input(2)]
    if ctx.opset < 20:
        inputs[2] = ctx.constant(_int64(axis))
    return ctx.layer("tactix.DynamicDFT", inputs, symbol=ctx.symbol(), **flags)


def _first_bins(ctx: Context, y: Value) -> Value:
    """What ONNX Runtime gives of the frames of complex numbers as one side: the other one is no
    mirror of it, and is left out all the same.
    """
    bins = floordiv(y.spec.shape[2], 2) + 1
    return ctx.layer("tactix.Slice", [y], begins=(0,), sizes=(bins,), axes=(2,), steps=(1,))


def _of_real_numbers(ctx: Context, x: Value) -> Value:
    """``x``, whose last axis has one element where its size is open."""
    last = x.spec.rank - 1
    return x if last < 0 or isinstance(x.spec.shape[last], int) else ctx.sized(x, last, 1)


def _with_parts(ctx: Context, x: Value) -> Value:
    """``x``, whose last axis tells whether there are imaginary parts: where its size is open and
    nobody builds for one, they are zeros if there are none.
    """
    last = x.spec.rank - 1
    parts = x.spec.shape[last] if last >= 0 else 1
    if isinstance(parts, int):
        return x
    found = ctx.wanted(parts)
    return _pairs(ctx, x, parts) if found is None else ctx.sized(x, last, found)


def _pairs(ctx: Context, x: Value, parts: Dim) -> Value:
    """Real and imaginary parts of one or two numbers. Asks for no other ones."""
    for least in (parts, 3 - parts):
        ctx.network.demand(Assumption(least, ">=", 1), ctx.name)
    last = x.spec.rank - 1

    def part(begin: Dim) -> Value:
        return ctx.layer("tactix.Slice", [x], begins=(begin,), sizes=(1,), axes=(last,), steps=(1,))

    count = ctx.layer("tactix.Dims", [], values=(parts,))
    is_pair = ctx.layer("tactix.Equal", [count, ctx.constant(_int64(2))])
    zero = ctx.cast(ctx.constant(_int64(0)), x.spec.dtype)
    imaginary = ctx.layer("tactix.Where", [is_pair, part(parts - 1), zero])
    return ctx.layer("tactix.Concat", [part(0), imaginary], axis=last)


def _int64(value: int) -> Any:
    import numpy as np

    return np.int64(value)


@CONVERTERS("STFT")
def frames(ctx: Context, node: Any) -> Value:
    x, window, onesided = ctx.tensor(), ctx.input(2), bool(ctx.attr("onesided", 1))
    x = _with_parts(ctx, x) if x.spec.rank == 3 else x
    size = ctx.known(3) or ((window or x).spec.shape[0 if window else 1],)
    step = ctx.ints(1)
    if ctx.late(3) or step is None or not isinstance(size[0], int):
        inputs = [x, ctx.tensor(1), window, ctx.input(3)]
        return ctx.layer("tactix.DynamicSTFT", inputs, symbol=ctx.symbol(), onesided=onesided)
    complex_half = onesided and x.spec.rank == 3 and x.spec.shape[-1] == 2
    fields = {"frame_step": step[0], "frame_length": size[0]}
    y = ctx.layer("tactix.STFT", [x, window], onesided=onesided and not complex_half, **fields)
    return _first_bins(ctx, y) if complex_half else y


@CONVERTERS("MelWeightMatrix")
def mel_filters(ctx: Context, node: Any) -> Value:
    dtype = ctx.dtype_attr("output_datatype", DType.FP32)
    inputs = [ctx.tensor(i) for i in range(5)]
    return ctx.layer("tactix.MelWeightMatrix", inputs, symbol=ctx.symbol(), dtype=dtype)
