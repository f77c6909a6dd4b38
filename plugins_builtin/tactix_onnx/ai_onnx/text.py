"""Operators on strings. Strings that are known are ``tactix.Text`` layers: a plan has no weights of
that kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

NARROW = 16
"""Floats of fewer bits have rules of their own for numbers out of range: those of Cast."""


def known(ctx: Context, array: Any) -> Value:
    """An array as a value of the network, be it of numbers or of strings."""
    a = np.asarray(array)
    if DType.of(a.dtype) is not DType.STRING:
        return ctx.constant(a)
    return ctx.layer("tactix.Text", [], values=tuple(str(s) for s in a.ravel()), shape=a.shape)


def is_text(x: Value) -> bool:
    """Whether it holds strings."""
    return x.spec.dtype is DType.STRING


def cast_text(ctx: Context, x: Value, to: DType) -> Value:
    """Numbers as strings, or the reverse."""
    if to is DType.STRING:
        return x if is_text(x) else ctx.layer("tactix.FormatText", [x])
    narrow = to.is_float and to.bits < NARROW
    y = ctx.layer("tactix.ParseText", [x], to=DType.FP32 if narrow else to)
    return (
        ctx.layer("tactix.Cast", [y], to=to, saturate=bool(ctx.attr("saturate", 1)))
        if narrow
        else y
    )


@CONVERTERS("Equal", since=19)
def equal(ctx: Context, node: Any) -> Value:
    return ctx.layer(
        "tactix.TextEqual" if is_text(ctx.tensor()) else "tactix.Equal",
        [ctx.tensor(), ctx.tensor(1)],
    )


@CONVERTERS("StringNormalizer")
def string_normalizer(ctx: Context, node: Any) -> Value:
    """The locale would only change the case of a few letters of some languages."""
    ctx.ignore("locale")
    fields = {
        "case_change_action": ctx.attr("case_change_action", "NONE"),
        "stopwords": ctx.attr("stopwords", ()),
    }
    sensitive = bool(ctx.attr("is_case_sensitive", 0))
    return ctx.layer(
        "tactix.StringNormalizer",
        [ctx.tensor()],
        symbol=ctx.symbol(),
        is_case_sensitive=sensitive,
        **fields,
    )


@CONVERTERS("StringSplit")
def string_split(ctx: Context, node: Any) -> Any:
    fields = {"delimiter": ctx.attr("delimiter", ""), "maxsplit": ctx.attr("maxsplit", -1)}
    return ctx.layers("tactix.StringSplit", [ctx.tensor()], symbol=ctx.symbol(), **fields)


@CONVERTERS("Tokenizer", domain="com.microsoft")
def tokenizer(ctx: Context, node: Any) -> Value:
    """ONNX Runtime's, as skl2onnx writes it for CountVectorizer and TfidfVectorizer. Beside
    separators the pattern of tokens counts for nothing.
    """
    separators, tokens = ctx.attr("separators", ()), ctx.attr("tokenexp", "")
    return ctx.layer(
        "tactix.Tokenizer",
        [ctx.tensor()],
        symbol=ctx.symbol(),
        tokens="" if separators else tokens,
        separators=tuple(separators),
        mincharnum=ctx.attr("mincharnum", 1),
        mark=bool(ctx.attr("mark", 0)),
        pad_value=ctx.attr("pad_value", ""),
    )
