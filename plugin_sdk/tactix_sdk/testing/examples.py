"""Examples of layers, in few words: attributes, and the specs of inputs, ``"f32 3 4; i64 2"``.

Those of tactix's own layers stand here. A pack's layer has its own in ``examples``; without them, a
layer that was made of a function is tried on matrices.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of

Example = tuple[dict[str, Any], str]

_ENTRIES = "i64 4; i64 4; f32 4"
_IMAGE = "f32 2 6 7 9"
_STATE = "f32 1 3 6"

EXAMPLES: dict[str, list[Example]] = {
    "Convolution": [({"pads": (1, 0, 1, 2), "strides": (2, 1)}, f"{_IMAGE}; f32 4 6 3 2; f32 4")],
    "ConvTranspose": [({"strides": (2, 3)}, f"{_IMAGE}; f32 6 4 3 2; f32 4")],
    "DeformableConvolution": [({}, "f32 1 2 5 6; f32 3 2 2 2; f32 1 8 4 5; f32 3; f32 1 4 4 5")],
    "MatMul": [({}, "f32 3 4 5; f32 5 6"), ({}, "f64 2 4 5; f64 5 6")],
    "Gemm": [({"transB": True, "alpha": 0.5}, "f32 4 5; f32 6 5; f32 6")],
    "Einsum": [({"equation": "bij,bjk->bik"}, "f32 2 3 4; f32 2 4 5")],
    "MaxPool": [({"kernel_shape": (3, 2), "ceil_mode": True, "strides": (2, 2)}, _IMAGE)],
    "AveragePool": [({"kernel_shape": (3, 2), "pads": (1, 1, 1, 0)}, _IMAGE)],
    "LpPool": [({"kernel_shape": (2, 2)}, _IMAGE)],
    "GlobalAveragePool": [({}, _IMAGE)],
    "GlobalMaxPool": [({}, _IMAGE)],
    "GlobalLpPool": [({}, _IMAGE)],
    "BatchNormalization": [({"epsilon": 9.0}, f"{_IMAGE}; f32 6; f32 6; f32 6; f32 6")],
    "InstanceNormalization": [({}, f"{_IMAGE}; f32 6; f32 6")],
    "GroupNormalization": [({"num_groups": 3}, f"{_IMAGE}; f32 6; f32 6")],
    "LayerNormalization": [({"axis": 1}, "f32 3 4 5; f32 5; f32 4 5")],
    "RMSNormalization": [({"axis": 2}, "f32 3 4 5; f32 5")],
    "LpNormalization": [({"axis": 1}, "f32 3 4 5")],
    "LRN": [({"size": 3}, _IMAGE)],
    **{
        f"Reduce{r}": [({"axes": (0, 2), "keepdims": k}, "f32 3 4 5") for k in (True, False)]
        for r in ("Sum", "Mean", "Prod", "Max", "Min", "LogSumExp")
    },
    **{name: [({"axis": 1}, "f32 3 4 5")] for name in ("Softmax", "LogSoftmax", "Hardmax")},
    "Reshape": [({"shape": (4, 15)}, "f32 3 4 5")],
    "DynamicReshape": [({}, "f32 3 4; i64 2")],
    "Transpose": [({"perm": (2, 0, 1)}, "f32 3 4 5")],
    "Concat": [({"axis": 1}, "f32 3 4; f32 3 5; f32 3 1")],
    "Split": [({"axis": 1, "sizes": (1, 4)}, "f32 3 5")],
    "Slice": [({"begins": (1, 4), "sizes": (2, 3), "axes": (0, 1), "steps": (1, -2)}, "f32 3 5")],
    "Roll": [({"axes": (-1, 0), "begins": (2, 1)}, "f32 3 2 5")],
    "DepthToSpace": [({"blocks": (2, 3)}, "f32 2 12 3 4"), ({"blocks": (2,)}, "f32 1 6 5")],
    "Expand": [({"shape": (2, 3, 5)}, "f32 3 1")],
    "Pad": [
        ({"pads": (1, 0, -1, 2), "value": 0.5}, "f32 3 4"),
        ({"pads": (1, 0, 1, 2), "mode": "edge"}, "f32 3 4"),
    ],
    "Tile": [({"repeats": (2, 1)}, "f32 3 4")],
    "Shape": [({"start": 1}, "f32 3 4 5")],
    "Gather": [({"axis": 1}, "f32 3 4 5; i64 2 2")],
    "GatherElements": [({"axis": 1}, "f32 3 4; i32 3 6")],
    "GatherND": [({"batch_dims": 1}, "f32 3 4 5; i64 3 2 2")],
    "ScatterND": [
        ({}, "f32 6 4; i64 3 1; f32 3 4"),
        ({"reduction": "add"}, "f32 6 4; i64 9 1; f32 9 4"),
    ],
    "ScatterElements": [({"axis": 1}, "f32 3 6; i64 3 4; f32 3 4")],
    "TensorScatter": [({"axis": 1}, "f32 2 6 3; f32 2 2 3; i64 2")],
    "ReverseSequence": [({}, "f32 5 3 2; i64 3")],
    "Attention": [
        ({"scale": 0.5}, "f32 2 3 4 5; f32 2 3 6 5; f32 2 3 6 7; f32 1 1 4 6"),
        ({"scale": 0.25}, "bf16 1 2 40 16; bf16 1 2 45 16; bf16 1 2 45 16"),
    ],
    "TokenAttention": [
        (
            {"heads": 3, "dim": 5, "value_dim": 7, "columns": (1, 0, 2)},
            "f32 2 4 16; f32 2 6 15; f32 2 6 24; f32 1 1 4 6",
        ),
        (
            {"heads": 4, "key_heads": 2, "dim": 5, "value_dim": 3},
            "f32 2 4 20; f32 2 6 10; f32 2 6 6",
        ),
    ],
    "RotaryEmbedding": [
        ({}, "f32 2 3 4 10; f32 4 10; f32 1 1 4 10"),
        ({"heads": 2}, "f32 2 4 3 10; f32 4 1 8; f32 1 4 1 8"),
    ],
    "ByteMatMul": [
        ({}, "u8 2 3 7; i8 2 7 5; i32 1; i32 1"),
        ({}, "i8 3 7; u8 7 5"),
    ],
    "FewBitsMatMul": [
        ({"bits": 8, "block_size": 16}, "f32 3 40; u8 5 3 16; f32 5 3"),
        ({}, "f32 2 2 64; u8 7 2 16; f32 7 2; u8 7 2"),
        ({}, "f32 40 64; u8 33 2 16; f32 33 2"),
        ({"int8_activations": True}, "f32 3 64; u8 5 2 16; f32 5 2"),
        ({"int8_activations": True}, "f32 40 64; u8 33 2 16; f32 33 2"),
    ],
    "FewBitsGather": [
        ({"columns": 40}, "u8 9 20; i64 2 3; f32 9 2"),
        ({"columns": 33, "bits": 2, "block_size": 16}, "u8 7 9; i32 5; f32 7 3; u8 7 3"),
    ],
    "LSTM": [
        (
            {"hidden_size": 6},
            f"f32 5 3 4; f32 1 24 4; f32 1 24 6; f32 1 48; i32 3; {_STATE}; {_STATE}; f32 1 18",
        )
    ],
    "GRU": [
        (
            {"hidden_size": 6, "layout": 1},
            "f32 3 5 4; f32 1 18 4; f32 1 18 6; f32 1 36; i32 3; f32 3 1 6",
        )
    ],
    "RNN": [({"hidden_size": 6, "direction": "bidirectional"}, "f32 5 3 4; f32 2 6 4; f32 2 6 6")],
    "CastToExponent": [({"rounding": r}, "f32 3 4") for r in ("up", "down", "nearest")],
    "Fill": [({"shape": (2, 3), "value": 1.5}, "")],
    "Dims": [({"values": (2, 3), "shape": (2, 1)}, "")],
    "TopK": [({"k": 3, "axis": 1, "largest": False}, "f32 4 5")],
    "ArgMax": [({"axis": 1}, "f32 4 5 2")],
    "ArgMin": [({"axis": 1, "keepdims": False, "select_last_index": True}, "f32 4 5 2")],
    "CumSum": [({"axis": 1, "exclusive": True}, "f32 4 5")],
    "CumProd": [({"axis": 0, "reverse": True}, "f32 4 5")],
    "Resize": [
        ({"sizes": (1, 2, 9, 4), "mode": m}, "f32 1 2 5 7") for m in ("nearest", "linear", "cubic")
    ],
    "GridSample": [({}, "f32 2 3 5 6; f32 2 4 7 2")],
    "MaxRoiPool": [({"pooled_shape": (2, 3), "spatial_scale": 0.5}, "f32 2 3 9 9; f32 4 5")],
    "RoiAlign": [({"output_height": 2, "output_width": 3}, "f32 2 3 9 9; f32 4 4; i64 4")],
    "DynamicReduce": [({"keepdims": k}, "f32 3 4 5; i64 2") for k in (True, False)],
    "DynamicCumulative": [
        ({"exclusive": True}, "f32 4 5; i64"),
        ({"fold": "CumProd"}, "f32 4 5; i32"),
    ],
    "DynamicSqueeze": [({}, "f32 3 1 4 1; i64 2")],
    "DynamicUnsqueeze": [({}, "f32 3 4; i64 2")],
    "DynamicSlice": [({}, "f32 3 5; i64 2; i64 2; i64 2; i64 2"), ({}, "f32 3 5; i64 1; i64 1")],
    "DynamicPad": [({"mode": m}, "f32 3 4; i64 4; f32; i64 2") for m in ("constant", "edge")],
    "DynamicExpand": [({}, "f32 3 1; i64 3")],
    "DynamicTile": [({}, "f32 3 4; i64 2")],
    "DynamicFill": [({"value": 1.5}, "i64 3")],
    "DynamicTopK": [({"axis": 0}, "f32 4 5; i64 1")],
    "DynamicSplit": [({"axis": 1, "parts": 3}, "f32 3 7; i64 3")],
    "DynamicOneHot": [({"axis": 1}, "i64 3 4; i64 1; f32 2")],
    "DynamicResize": [({"mode": m}, "f32 1 2 5 7; f32 8; f32 4") for m in ("nearest", "linear")],
    "NonZero": [({}, "f32 3 4"), ({}, "bool 5")],
    "Compress": [({"axis": 1}, "f32 3 4; bool 4"), ({}, "f32 3 4; bool 7")],
    "Unique": [({}, "i64 3 4"), ({"sorted": False}, "i64 12"), ({"axis": 0}, "i64 5 1")],
    "NonMaxSuppression": [
        ({}, "f32 2 9 4; f32 2 3 9; i64; f32; f32"),
        ({"center_point_box": True}, "f32 1 4 4; f32 1 1 4"),
    ],
    "CombinedSuppression": [
        ({"rows": 5}, "f32 2 9 1 4; f32 2 9 3"),
        ({"rows": 7, "class_agnostic": True, "class_rows": 2}, "f32 1 6 2 4; f32 1 6 2"),
    ],
    "DFT": [({"axis": 1, "length": 6}, "f32 2 5 1"), ({"onesided": True, "axis": 0}, "f32 5 2 1")],
    "DynamicDFT": [({"inverse": True}, "f32 2 7 2; i64; i64")],
    "STFT": [({"frame_step": 2, "frame_length": 4}, "f32 2 11 1; f32 4")],
    "DynamicSTFT": [({"onesided": True}, "f32 2 11 1; i64; f32 4; i64")],
    "MelWeightMatrix": [({}, "i64; i64; i64; f32; f32")],
    "AffineGrid": [({"align_corners": c}, "f32 2 2 3; i64 4") for c in (True, False)],
    "Det": [({}, "f32 2 3 3")],
    "Inverse": [({}, "f32 2 3 3")],
    "MaxPoolIndices": [
        ({"kernel_shape": (3, 2), "pads": (1, 1, 0, 0), "storage_order": o}, _IMAGE) for o in (0, 1)
    ],
    "MaxUnpool": [({"kernel_shape": (2, 2), "strides": (2, 2)}, "f32 1 2 3 3; i64 1 2 3 3; i64 4")],
    "Col2Im": [({}, "f32 2 12 9; i64 2; i64 2"), ({}, "f32 1 81 4; i64 2; i64 2")],
    "BitCast": [({"to": DType.FP32}, "i32 3 4")],
    "PairwiseCoupling": [({"classes": 3}, "f32 5 3"), ({}, "f32 0 1")],
    "TreeEnsemble": [
        (
            {"targets": 2, "aggregate": a},
            f"f32 6 3; i64 4; i64 4; f32 4; i64 4; i64 4; bool 4; i64 2; {_ENTRIES}",
        )
        for a in ("SUM", "AVERAGE", "MIN", "MAX")
    ],
    "LinearAttention": [
        (
            {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": r},
            "f32 2 3 12; f32 2 3 6; f32 2 3 10; f32 2 2 3 5; f32 2 3 2; f32 2 3 2",
        )
        for r in ("gated", "delta")
    ],
    "Lookup": [({}, "i64 3 4; i64 5; f32 5; f32 1")],
    "Text": [({"values": ("a", "", "b"), "shape": (3, 1)}, "")],
    "TextEqual": [({}, "str 3 1; str 4")],
    "StringConcat": [({}, "str 3 1; str 4"), ({}, "str; str")],
    "StringSplit": [
        ({}, "str 3 4"),
        ({"delimiter": ","}, "str 5"),
        ({"maxsplit": 1}, "str"),
        ({}, "str 0 2"),
    ],
    "RegexFullMatch": [({"pattern": "[a-z ]+"}, "str 3 4")],
    "Tokenizer": [
        ({"tokens": "[a-zA-Z0-9_]+", "pad_value": "#"}, "str 3 4"),
        ({"separators": (" ", ","), "mark": True}, "str 5"),
        ({"separators": ("",)}, "str 0 2"),
    ],
    "StringNormalizer": [
        ({"stopwords": ("a", "b")}, "str 9"),
        ({"case_change_action": "LOWER"}, "str 1 4"),
    ],
    "FormatText": [({}, "f64 3 4"), ({}, "bool 3")],
    "ParseText": [
        ({"to": t}, "str 3 4")
        for t in (DType.FP32, DType.INT8, DType.BOOL, DType.BF16, DType.COMPLEX64)
    ],
    "TfIdfVectorizer": [
        (
            {
                "pool_strings": ("a", "B", "a", "B"),
                "ngram_counts": (0, 2),
                "ngram_indexes": (3, 0, 1),
                "mode": m,
                "max_gram_length": 2,
                "max_skip_count": 1,
                "weights": (1.0, 2.0, 3.0),
            },
            "str 3 9",
        )
        for m in ("TF", "IDF", "TFIDF")
    ],
    "OneHotCategories": [({}, "str 3 4; str 5"), ({}, "i64 3; i64 2")],
    "RandomNormal": [
        ({"shape": (3, 4), "seed": 1.0}, ""),
        ({"dtype": DType.BF16, "seed": 4.0}, ""),
    ],
    "RandomUniform": [({"shape": (3, 4), "dtype": DType.FP16, "low": -1.0, "seed": 3.0}, "")],
    "RandomBernoulli": [({"dtype": DType.INT32, "seed": 2.5}, "f32 3 4")],
    "RandomMultinomial": [({"sample_size": 5, "seed": -3.0}, "f32 3 4")],
    "ImageDecoder": [
        *(({"pixel_format": p}, "u8 40") for p in ("RGB", "BGR", "Grayscale")),
        ({}, "u8 9"),
    ],
    "TrainingDropout": [({"seed": 3}, "f32 3 4; f32; bool")],
    "QuantizeLinear": [({"axis": 0, "saturate": True}, "f32 3 5; f32 3; i8 3")],
    "DequantizeLinear": [({"axis": 1, "block_size": 2}, "i8 3 6; f32 3 3")],
    "IntegerConvolution": [
        ({"pads": (1, 0, 1, 2), "pad_value": 3}, "u8 2 6 7 9; i8 4 6 3 2; i32 4")
    ],
    "WideConvolution": [({"pads": (1, 0, 1, 2)}, "bf16 2 6 7 9; bf16 4 6 3 2; f32 4")],
    "WideConvTranspose": [({"strides": (2, 3)}, "bf16 2 6 7 9; bf16 6 4 2 3; f32 4")],
    "WideMatMul": [({}, "f16 3 4 5; f16 5 6; f32 6")],
    "WideGlobalAveragePool": [({}, "bf16 2 3 4 5")],
    "IntegerMatMul": [({}, "i8 3 4 5; i8 5 6; i32 6")],
    "Float8MatMul": [({}, "f8e4m3 3 4 16; f8e4m3 16 6")],
    **{name: [({}, "bool 3 1; bool 4")] for name in ("And", "Or", "Xor")},
    **{
        name: [({}, "i32 3 1; i32 4")]
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
    },
    "Not": [({}, "bool 3 4")],
    "BitwiseNot": [({}, "i32 3 4")],
    "Where": [({}, "bool 3 1; f32 4; f32 3 4")],
    "Cast": [({"to": DType.INT32}, "f32 3 4"), ({"to": DType.FP8}, "f32 3 4")],
    **{
        name: [({}, "f32 3 1; f32 4")]
        for name in (
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Mod",
            "Min",
            "Max",
            "PRelu",
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
        )
    },
}

_SAME = {"pads": (1, 1, 1, 1)}
_EACH = {**_SAME, "group": 32}
LARGER: dict[str, list[Example]] = {
    "MatMul": [({}, "f32 70 130; f32 130 50")],
    "WideMatMul": [
        ({}, "bf16 70 130; bf16 130 50; f32 50"),
        ({}, "bf16 130 256; bf16 256 96; f32 96"),
    ],
    "IntegerMatMul": [({}, "u8 70 130; i8 130 50; i32 50"), ({}, "u8 130 256; i8 256 96; i32 96")],
    "Convolution": [
        (_SAME, "f32 1 32 9 11; f32 48 32 3 3; f32 48"),
        (_EACH, "f32 1 32 9 11; f32 32 1 3 3; f32 32"),
    ],
    "WideConvolution": [(_SAME, "bf16 1 32 9 11; bf16 48 32 3 3; f32 48")],
    "IntegerConvolution": [
        (_SAME, "u8 1 64 9 11; i8 48 64 3 3; i32 48"),
        (_EACH, "u8 1 32 9 11; i8 32 1 3 3; i32 32"),
    ],
    "WideConvTranspose": [({"strides": (2, 2)}, "bf16 2 32 7 9; bf16 32 16 2 2; f32 16")],
    "LSTM": [({"hidden_size": 6}, "f32 5 3 4; f32 1 24 4; f32 1 24 6; f32 1 48")],
    "MaxPool": [({"kernel_shape": (2, 2), "strides": (2, 2)}, "u8 2 6 8 8")],
}
"""Such as kernels of whole tiles, and of single layers' plain forms, are for."""


def examples_of(layer: Layer) -> list[Example]:
    """The layer's own that are no ``wrong_examples``, those of the table, or matrices for each
    parameter of its function; none if nothing is known.
    """
    if own := getattr(layer, "examples", ()):
        return [x for x in own if not _why_no_example(layer, x)]
    if layer.key.startswith("tactix.") and layer.name in EXAMPLES:
        return EXAMPLES[layer.name] + LARGER.get(layer.name, [])
    function = getattr(layer, "function", None)
    if function is None:
        return []
    named = {f.name for f in dataclasses.fields(layer.Attrs)}
    found = [p for p in inspect.signature(function).parameters.values() if p.name not in named]
    arity = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)
    return [({}, "; ".join(["f32 3 5"] * arity))]


def wrong_examples(layer: Layer) -> Iterator[str]:
    """What is wrong with each of the layer's own that is none."""
    for own in getattr(layer, "examples", ()):
        if why := _why_no_example(layer, own):
            yield f"{layer.key}: {own!r:.80} is no example: {why}"


def _why_no_example(layer: Layer, given: Any) -> str:
    """Empty if it is one."""
    if not (isinstance(given, tuple | list) and [type(x) for x in given] == [dict, str]):
        return 'give (attributes by name, "f32 3 4; f32 5")'
    try:
        attributes_of(layer, given[0])
        specs_of(given[1])
    except InvalidArgument as e:
        return str(e)
    return ""


def specs_of(text: str) -> list[TensorSpec]:
    """The specs that an example's text names. Raises InvalidArgument."""
    return [_spec(part) for part in text.split(";") if part.strip()]


def _spec(text: str) -> TensorSpec:
    try:
        dtype, *sizes = text.split()
        return TensorSpec(DType(dtype), tuple(map(int, sizes)))
    except ValueError as e:
        do = "Write a dtype and sizes for each input, as in 'f32 3 4; i64 2'"
        raise InvalidArgument(f"no spec: {text.strip()!r}", why=str(e), do=do) from None


def resized(specs: Sequence[TensorSpec], by: dict[int, int]) -> list[TensorSpec]:
    """The specs with sizes replaced: equal ones by equal ones, as they belong together."""
    return [TensorSpec(s.dtype, tuple(by.get(d, d) for d in s.at({}))) for s in specs]
