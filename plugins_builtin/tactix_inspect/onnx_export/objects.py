"""Layers about sequences, optionals and text."""

from __future__ import annotations

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.tensor import Element
from tactix_inspect.onnx_export.call import LayerCall, same, writes
from tactix_inspect.onnx_export.graph import CONTRIBUTED, tensor, type_of

writes("SequenceConstruct")(same("SequenceConstruct"))
writes("SequenceEmpty")(same("SequenceEmpty", "dtype"))
writes("SequenceInsert")(same("SequenceInsert"))
writes("SequenceErase")(same("SequenceErase"))
writes("SequenceAt")(same("SequenceAt"))
writes("SequenceLength")(same("SequenceLength"))
writes("SplitToSequence")(same("SplitToSequence", "axis", "keepdims"))
writes("ConcatFromSequence")(same("ConcatFromSequence", "axis", "new_axis"))
writes("OptionalGetElement")(same("OptionalGetElement"))
writes("OptionalHasElement")(same("OptionalHasElement"))
writes("TextEqual")(same("Equal"))
writes("ParseText")(same("Cast", "to"))
writes("ImageDecoder")(same("ImageDecoder", "pixel_format"))


@writes("Optional")
def optional(c: LayerCall) -> None:
    """What is empty says what it could hold."""
    if c.input(0):
        c.emit("Optional", c.inputs[0])
        return
    inner = Element(c.attrs.dtype)
    held = (DType.SEQUENCE, inner) if c.attrs.is_sequence else (c.attrs.dtype, None)
    c.emit("Optional", type=type_of(held[0], None, held[1]))


@writes("FormatText")
def format_text(c: LayerCall) -> None:
    """Numbers as text."""
    c.emit("Cast", c.inputs[0], to=DType.STRING)


@writes("Text")
def text(c: LayerCall) -> None:
    """A constant."""
    values = np.array(c.attrs.values, object).reshape(c.attrs.shape)
    c.emit("Constant", value=tensor(values))


@writes("StringNormalizer")
def normalizer(c: LayerCall) -> None:
    """ONNX's own."""
    a = c.attrs
    c.emit(
        "StringNormalizer",
        c.inputs[0],
        case_change_action=a.case_change_action,
        is_case_sensitive=a.is_case_sensitive,
        stopwords=a.stopwords or None,
    )


@writes("StringSplit")
def split_text(c: LayerCall) -> None:
    """ONNX has no number for as many cuts as there are."""
    most = None if c.attrs.maxsplit < 0 else c.attrs.maxsplit
    c.emit("StringSplit", c.inputs[0], delimiter=c.attrs.delimiter, maxsplit=most)


@writes("Tokenizer")
def tokenizer(c: LayerCall) -> None:
    """ONNX Runtime's, which asks for all but the patterns."""
    a = c.attrs
    c.emit(
        "Tokenizer",
        c.inputs[0],
        domain=CONTRIBUTED,
        tokenexp=a.tokens or None,
        separators=a.separators or None,
        mincharnum=a.mincharnum,
        mark=int(a.mark),
        pad_value=a.pad_value,
    )
