"""Operators that are known and not supported: why, and what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

from tactix_onnx.ai_onnx_ml.classical import ML
from tactix_onnx.com_microsoft.compositions import MICROSOFT
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()


@CONVERTERS("CastMap", "DictVectorizer", domain=ML)
def of_maps(ctx: Context, node: Any) -> NoReturn:
    why = (
        "it turns a map of the caller's into a tensor, and a plan takes tensors, "
        "text, sequences and optionals"
    )
    ctx.fail(why, do=f"Export the model without {ctx.op}, and give the tensor that it would make")


@CONVERTERS("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", domain=MICROSOFT)
def generation(ctx: Context, node: Any) -> NoReturn:
    why = "it is a whole generation loop around a decoder, with rules for tokens of its own"
    ctx.fail(
        why,
        do="Export the decoder by itself, with its cache as inputs and outputs, "
        "and choose tokens outside",
    )
