"""Classical models, ``ai.onnx.ml``: scalers, linear models, tables, maps from labels to scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx.text import is_text, known
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

ML = "ai.onnx.ml"


def float_input(ctx: Context) -> Value:
    """The first input in float32."""
    return ctx.cast(ctx.tensor(), DType.FP32)


def as_rows(ctx: Context, x: Value) -> Value:
    """One sample without a batch axis as a batch of one."""
    return ctx.reshape(x, (1, *x.spec.shape)) if x.spec.rank == 1 else x


def floats(values: Sequence[float]) -> Any:
    return np.array(values, np.float32)


def two(ctx: Context, layer: str, a: Value, b: Any) -> Value:
    """A pointwise layer of a tensor and a tensor or numbers of its dtype."""
    other = b if isinstance(b, Value) else ctx.constant(np.asarray(b).astype(a.spec.dtype.numpy))
    return ctx.layer(f"tactix.{layer}", [a, other])


@CONVERTERS("Scaler", domain=ML)
def scaler(ctx: Context, node: Any) -> Value:
    centred = two(ctx, "Sub", float_input(ctx), ctx.attr("offset", (0.0,)))
    return two(ctx, "Mul", centred, ctx.attr("scale", (1.0,)))


@CONVERTERS("Normalizer", domain=ML)
def normalizer(ctx: Context, node: Any) -> Value:
    """Rows by their largest element, sum of magnitudes or length; a row whose norm is 0 stays."""
    x, norm = float_input(ctx), ctx.attr("norm", "MAX")
    last = {"axes": (x.spec.rank - 1,), "keepdims": True}
    if norm == "MAX":
        size = ctx.layer("tactix.ReduceMax", [x], **last)
    elif norm == "L1":
        size = ctx.layer("tactix.ReduceSum", [ctx.layer("tactix.Abs", [x])], **last)
    else:
        size = ctx.layer(
            "tactix.Sqrt", [ctx.layer("tactix.ReduceSum", [two(ctx, "Mul", x, x)], **last)]
        )
    zero = two(ctx, "Equal", size, 0)
    return two(ctx, "Div", x, ctx.layer("tactix.Where", [zero, ctx.scalar(1, size), size]))


@CONVERTERS("Binarizer", domain=ML)
def binarizer(ctx: Context, node: Any) -> Value:
    above = two(ctx, "Greater", ctx.tensor(), ctx.attr("threshold", 0.0))
    return ctx.cast(above, ctx.spec().dtype)


@CONVERTERS("ArrayFeatureExtractor", domain=ML)
def feature_extractor(ctx: Context, node: Any) -> Value:
    x, places = as_rows(ctx, ctx.tensor()), ctx.tensor(1)
    flat = ctx.reshape(places, (places.spec.numel,))
    return ctx.layer("tactix.Gather", [x, flat], axis=x.spec.rank - 1)


@CONVERTERS("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: Context, node: Any) -> Value:
    ctx.ignore("inputdimensions")
    parts = [ctx.cast(ctx.tensor(i), DType.FP32) for i in range(len(ctx.inputs))]
    rows = [
        ctx.reshape(
            p, (p.spec.shape[0] if p.spec.rank > 1 else 1, prod(p.spec.shape[p.spec.rank > 1 :]))
        )
        for p in parts
    ]
    return rows[0] if len(rows) == 1 else ctx.layer("tactix.Concat", rows, axis=1)


@CONVERTERS("Imputer", domain=ML)
def imputer(ctx: Context, node: Any) -> Value:
    x = ctx.tensor()
    kind = "float" if x.spec.dtype.is_float else "int64"
    values, gone = ctx.attr(f"imputed_value_{kind}s", ()), ctx.attr(f"replaced_value_{kind}", 0)
    ctx.ignore(
        "replaced_value_float",
        "replaced_value_int64",
        "imputed_value_floats",
        "imputed_value_int64s",
    )
    missing = ctx.layer("tactix.IsNaN", [x]) if gone != gone else two(ctx, "Equal", x, gone)
    filled = ctx.constant(np.array(values, x.spec.dtype.numpy))
    return ctx.layer("tactix.Where", [missing, filled, x])


@CONVERTERS("LabelEncoder", domain=ML)
def label_encoder_of_strings(ctx: Context, node: Any) -> Value:
    """Version 1: strings to their places in a list, or the reverse."""
    names = np.array(ctx.attr("classes_strings", ()), object)
    ctx.ignore("default_string", "default_int64")
    to_text = not is_text(ctx.tensor())
    keys, values = (np.arange(len(names)), names) if to_text else (names, np.arange(len(names)))
    return lookup(
        ctx, keys, values, ctx.attr("default_string") if to_text else ctx.attr("default_int64")
    )


@CONVERTERS("LabelEncoder", domain=ML, since=2)
def label_encoder(ctx: Context, node: Any) -> Value:
    keys, values = _listed(ctx, "keys"), _listed(ctx, "values")
    if keys is None or values is None:
        ctx.fail("it has no keys or no values")
    return lookup(ctx, keys, values, _default(ctx, values))


@CONVERTERS("CategoryMapper", domain=ML)
def category_mapper(ctx: Context, node: Any) -> Value:
    names, numbers = (
        np.array(ctx.attr("cats_strings", ()), object),
        np.array(ctx.attr("cats_int64s", ()), np.int64),
    )
    ctx.ignore("default_int64", "default_string")
    if is_text(ctx.tensor()):
        return lookup(ctx, names, numbers, ctx.attr("default_int64", -1))
    return lookup(ctx, numbers, names, ctx.attr("default_string", "_Unused"))


def lookup(ctx: Context, keys: Any, values: Any, default: Any) -> Value:
    """For each element of the input the value of its key; they may be strings only if it is."""
    x = ctx.tensor()
    if is_text(x) != (DType.of(keys.dtype) is DType.STRING):
        ctx.fail(f"keys {DType.of(keys.dtype).value} do not fit elements {x.spec.dtype.value}")
    tables = (keys.astype(x.spec.dtype.numpy), values, np.asarray(default).astype(values.dtype))
    return ctx.layer("tactix.Lookup", [x, *(known(ctx, a) for a in tables)])


_LISTS = {"int64s": np.int64, "floats": np.float32, "strings": object, "tensor": None}


def _listed(ctx: Context, what: str) -> Any:
    for kind, dtype in _LISTS.items():
        if ctx.has_attr(f"{what}_{kind}"):
            found = ctx.attr(f"{what}_{kind}")
            return found.reshape(-1) if dtype is None else np.array(found, dtype)
    return None


def _default(ctx: Context, values: Any) -> Any:
    """Of the same kind as the values; others that are given say nothing."""
    ctx.ignore("default_float", "default_int64", "default_string")
    if ctx.has_attr("default_tensor"):
        return ctx.attr("default_tensor").reshape(())
    if DType.of(values.dtype) is DType.STRING:
        return ctx.attr("default_string", "_Unused")
    return (
        ctx.attr("default_int64", -1)
        if values.dtype.kind in "iu"
        else ctx.attr("default_float", -0.0)
    )


@CONVERTERS("OneHotEncoder", domain=ML)
def one_hot_encoder(ctx: Context, node: Any) -> Value:
    """Numbers are compared as integers."""
    x, zeros = ctx.tensor(), bool(ctx.attr("zeros", 1))
    kind = ("cats_strings", object) if is_text(x) else ("cats_int64s", np.int64)
    categories = known(ctx, np.array(ctx.attr(kind[0], ()), kind[1]))
    whole = x if is_text(x) else ctx.cast(x, DType.INT64)
    if is_text(x) or not zeros:
        return ctx.layer("tactix.OneHotCategories", [whole, categories], zeros=zeros)
    column = ctx.reshape(whole, (*x.spec.shape, 1))
    return ctx.cast(ctx.layer("tactix.Equal", [column, categories]), DType.FP32)


# -- linear models -------------------------------------------------------------------------------


def transformed(ctx: Context, scores: Value) -> Value:
    """``post_transform`` of scores (N, classes)."""
    kind = ctx.attr("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return ctx.layer("tactix.Sigmoid", [scores])
    if kind == "SOFTMAX":
        return ctx.layer("tactix.Softmax", [scores], axis=1)
    if kind == "SOFTMAX_ZERO":
        soft = ctx.layer("tactix.Softmax", [scores], axis=1)
        return ctx.layer(
            "tactix.Where", [two(ctx, "Equal", scores, 0), ctx.scalar(0, scores), soft]
        )
    return ctx.fail(f"post_transform {kind!r} is not supported")


def linear_scores(ctx: Context, targets: int) -> Value:
    """``x coefficients' + intercepts``."""
    x = as_rows(ctx, float_input(ctx))
    weights = ctx.constant(floats(ctx.attr("coefficients")).reshape(targets, -1))
    inputs = [x, weights]
    if ctx.attr("intercepts", ()):
        inputs.append(ctx.constant(floats(ctx.attr("intercepts"))))
    return ctx.layer("tactix.Gemm", inputs, transB=True)


@CONVERTERS("LinearRegressor", domain=ML)
def linear_regressor(ctx: Context, node: Any) -> Value:
    return transformed(ctx, linear_scores(ctx, ctx.attr("targets", 1)))


@CONVERTERS("LinearClassifier", domain=ML)
def linear_classifier(ctx: Context, node: Any) -> list[Value]:
    ctx.ignore("multi_class")
    labels = class_labels(ctx)
    rows = len(ctx.attr("intercepts", ())) or len(labels)
    scores = linear_scores(ctx, rows)
    if rows == 1 and len(labels) == 2:
        return [second_label(ctx, scores, labels, 0.0), complement(ctx, transformed(ctx, scores))]
    if rows != len(labels):
        ctx.fail(f"it has {rows} rows of coefficients for {len(labels)} classes")
    return [label_at(ctx, best_place(ctx, scores), labels), transformed(ctx, scores)]


Labels = Any
"""An array of integers or of strings (object), one for each class."""


def class_labels(ctx: Context) -> Labels:
    """Of the classes, as the node lists them. Raises UnsupportedOperator."""
    numbers, words = ("classlabels_int64s", "classlabels_ints"), "classlabels_strings"
    ctx.ignore(*numbers, words)
    if ctx.attr(words):
        return np.array(ctx.attr(words), object)
    for name in numbers:
        if ctx.attr(name):
            return np.array(ctx.attr(name), np.int64)
    return ctx.fail("it has no labels")


def best_place(ctx: Context, scores: Value) -> Value:
    """The place of the highest score of each row, the first of equals."""
    return ctx.layer("tactix.ArgMax", [scores], axis=1, keepdims=False)


def label_at(ctx: Context, places: Value, labels: Labels) -> Value:
    """The labels at places, which are in range."""
    if labels.dtype != object:
        return ctx.layer("tactix.Gather", [ctx.constant(labels), places], axis=0)
    tables = (np.arange(len(labels)), labels, np.array("", object))
    return ctx.layer("tactix.Lookup", [places, *(known(ctx, a) for a in tables)])


def second_label(ctx: Context, score: Value, labels: Labels, threshold: float) -> Value:
    """The second of two labels where the score (N, 1) is above the threshold, else the first."""
    above = ctx.reshape(two(ctx, "Greater", score, threshold), (score.spec.shape[0],))
    return label_at(ctx, ctx.cast(above, DType.INT64), labels)


def complement(ctx: Context, score: Value) -> Value:
    """``1 - score`` beside the score (N, 1)."""
    return ctx.layer(
        "tactix.Concat", [two(ctx, "Add", ctx.layer("tactix.Neg", [score]), 1.0), score], axis=1
    )


@CONVERTERS("ZipMap", domain=ML)
def zip_map(ctx: Context, node: Any) -> Value:
    """For each row a map from labels to scores."""
    return ctx.layer("tactix.ZipMap", [as_rows(ctx, ctx.tensor()), known(ctx, class_labels(ctx))])
