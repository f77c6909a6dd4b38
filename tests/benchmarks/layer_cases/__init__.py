"""The one-layer networks of ``layers.py``: made by a function for each family of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from layer_cases import (
    attention,
    classical,
    convolutions,
    moves,
    odd,
    pointwise,
    products,
    quantized,
    rare,
    recurrent,
    reductions,
    sampling,
    selection,
)
from layer_cases.case import Case

FAMILIES: dict[str, Callable[[], Iterable[Case]]] = {
    "functions": pointwise.functions,
    "arithmetic": pointwise.arithmetic,
    "reductions": reductions.reductions,
    "softmax and norms": reductions.norms,
    "products": products.products,
    "convolutions": convolutions.convolutions,
    "pools": convolutions.pools,
    "sampling": sampling.sampling,
    "selection": selection.selection,
    "gather and scatter": selection.gathers,
    "moves": moves.moves,
    "recurrent": recurrent.recurrent,
    "signals": recurrent.signals,
    "quantized": quantized.quantized,
    "attention": attention.attention,
    "classical": classical.classical,
    "odd shapes": odd.odd_shapes,
    "rare layers": rare.rare,
}


@cache
def cases() -> tuple[Case, ...]:
    """All, family by family."""
    return tuple(replace(c, family=name) for name, made in FAMILIES.items() for c in made())


UNMEASURED = {
    "text, sequences, optionals and maps: no tensors of numbers": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement RegexFullMatch SequenceAt "
        "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence StringConcat "
        "StringNormalizer StringSplit TfIdfVectorizer ai.onnx.ml::CastMap ai.onnx.ml::CategoryMapper "
        "ai.onnx.ml::DictVectorizer ai.onnx.ml::ZipMap com.microsoft::Tokenizer"
    ),
    "has bodies of its own: their layers are measured": "If Loop Scan",
    "gives other numbers in each engine": (
        "Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    "known when the model is imported, or a few instructions": "Shape Size",
    "copies between devices, written by ONNX Runtime itself": "MemcpyFromHost MemcpyToHost",
    "of the first operator sets, which ONNX Runtime does not promise": (
        "Affine Crop DynamicSlice ImageScaler Scale ParametricSoftplus ScaledTanh"
    ),
    "searches that hold a whole model as their body": (
        "com.microsoft::BeamSearch com.microsoft::GreedySearch com.microsoft::Sampling com.microsoft::WhisperBeamSearch"
    ),
    "older forms of operators of ONNX, or one with bytes in a table: the layers are the same": (
        "com.microsoft::ExpandDims com.microsoft::GatherND com.microsoft::GridSample com.microsoft::Pad "
        "com.microsoft::QEmbedLayerNormalization com.microsoft::Range"
    ),
    "a trained classifier of several outputs; the regressor of the same kind is measured": (
        "ai.onnx.ml::SVMClassifier ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier"
    ),
}
"""Operators of ONNX Runtime's CPU that no case has, by the reason. Those of com.microsoft that
tactix does not import need no line.
"""
