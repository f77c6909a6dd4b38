"""Support vector machines of ``ai.onnx.ml``: kernels, pairs of classes and votes as products of
small matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx_ml.classical import (
    ML,
    Labels,
    as_rows,
    best_place,
    class_labels,
    complement,
    float_input,
    floats,
    label_at,
    transformed,
    two,
)
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()


@dataclass(frozen=True)
class SvmKernel:
    """How x is compared with a vector: LINEAR, POLY, RBF or SIGMOID, as libsvm defines them."""

    kind: str
    gamma: float
    offset: float
    degree: float

    @staticmethod
    def of(ctx: Context) -> SvmKernel:
        gamma, offset, degree = ctx.attr("kernel_params", ()) or (0.0, 0.0, 0.0)
        return SvmKernel(ctx.attr("kernel_type", "LINEAR"), gamma, offset, degree)

    def compared(self, ctx: Context, x: Value, vectors: Any) -> Value:
        """x (N, F) with each of ``vectors`` (V, F): (N, V). Raises UnsupportedOperator."""
        if self.kind == "RBF":
            n, f = x.spec.shape
            apart = two(ctx, "Sub", ctx.reshape(x, (n, 1, f)), vectors[None])
            squares = ctx.layer(
                "tactix.ReduceSum", [two(ctx, "Mul", apart, apart)], axes=(2,), keepdims=False
            )
            return ctx.layer("tactix.Exp", [two(ctx, "Mul", squares, -self.gamma)])
        if self.kind == "LINEAR":
            return weighted(ctx, x, vectors)
        product = weighted(ctx, x, vectors, np.float32(self.offset), self.gamma)
        if self.kind == "SIGMOID":
            return ctx.layer("tactix.Tanh", [product])
        return two(ctx, "Pow", product, self.degree)


def weighted(ctx: Context, x: Value, rows: Any, bias: Any = None, alpha: float = 1.0) -> Value:
    """``alpha x rows' + bias``."""
    inputs = [x, ctx.constant(floats(rows))]
    inputs += [] if bias is None else [ctx.constant(floats(bias))]
    return ctx.layer("tactix.Gemm", inputs, transB=True, alpha=alpha)


@CONVERTERS("SVMRegressor", domain=ML)
def regressor(ctx: Context, node: Any) -> Value:
    """Without support vectors the coefficients are those of a linear model."""
    ctx.ignore("post_transform")  # ONNX Runtime heeds none
    x, weights = as_rows(ctx, float_input(ctx)), floats(ctx.attr("coefficients"))[None]
    count, kernel = ctx.attr("n_supports", 0), SvmKernel.of(ctx)
    if count:
        x = kernel.compared(ctx, x, _vectors(ctx, count))
    else:
        ctx.ignore("support_vectors")
    y = weighted(ctx, x, weights, ctx.attr("rho"))
    if not ctx.attr("one_class", 0):
        return y
    above = two(ctx, "Greater", y, 0)
    return ctx.layer("tactix.Where", [above, ctx.scalar(1, y), ctx.scalar(-1, y)])


def _vectors(ctx: Context, count: int) -> Any:
    return floats(ctx.attr("support_vectors")).reshape(count, -1)


@CONVERTERS("SVMClassifier", domain=ML)
def classifier(ctx: Context, node: Any) -> list[Value]:
    labels, counts = class_labels(ctx), ctx.attr("vectors_per_class", ())
    kernel, x = SvmKernel.of(ctx), as_rows(ctx, float_input(ctx))
    if sum(counts):
        return _by_pairs(ctx, labels, counts, kernel.compared(ctx, x, _vectors(ctx, sum(counts))))
    ctx.ignore("support_vectors", "prob_a", "prob_b")
    return _by_class(ctx, labels, x)


def _by_pairs(
    ctx: Context, labels: Labels, counts: tuple[int, ...], compared: Value
) -> list[Value]:
    """Each pair of classes has a score, whose sign is a vote; the class with most votes wins, the
    first of equals.
    """
    pairs = list(combinations(range(len(labels)), 2))
    scores = weighted(
        ctx, compared, _pair_weights(ctx, counts, pairs), floats(ctx.attr("rho"))[: len(pairs)]
    )
    for_first, for_second = (
        np.eye(len(labels), dtype=np.float32)[[p[side] for p in pairs]].T for side in (0, 1)
    )
    first = ctx.cast(two(ctx, "Greater", scores, 0), scores.spec.dtype)
    votes = weighted(ctx, first, for_first - for_second, for_second.sum(1))
    label = label_at(ctx, best_place(ctx, votes), labels)
    if ctx.attr("prob_a", ()):
        return [label, transformed(ctx, _probabilities(ctx, scores, len(labels)))]
    if len(pairs) > 1:
        return [label, transformed(ctx, scores)]
    return [label, _of_two(ctx, scores)]


def _of_two(ctx: Context, score: Value) -> Value:
    """Both classes' scores from that of their pair, as ONNX Runtime gives them for each
    ``post_transform``.
    """
    kind = ctx.attr("post_transform", "NONE")
    if kind == "NONE":
        return ctx.layer("tactix.Concat", [ctx.layer("tactix.Neg", [score]), score], axis=1)
    return complement(ctx, transformed(ctx, score) if kind == "LOGISTIC" else score)


def _pair_weights(ctx: Context, counts: tuple[int, ...], pairs: list[tuple[int, int]]) -> Any:
    """Of every vector for every pair (pairs, vectors). The file leaves out what a class would be
    against itself.
    """
    total, starts = sum(counts), np.cumsum((0, *counts))
    given = floats(ctx.attr("coefficients")).reshape(-1, total)
    out = np.zeros((len(pairs), total), np.float32)
    for row, (i, j) in enumerate(pairs):
        out[row, starts[i] : starts[i + 1]] = given[j - 1, starts[i] : starts[i + 1]]
        out[row, starts[j] : starts[j + 1]] = given[i, starts[j] : starts[j + 1]]
    return out


def _probabilities(ctx: Context, scores: Value, classes: int) -> Value:
    """Of the classes, from those of the pairs, a logistic function of the scores (Platt)."""
    slope, offset = (
        floats(ctx.attr(name))[: scores.spec.shape[1]] for name in ("prob_a", "prob_b")
    )
    against = two(ctx, "Add", two(ctx, "Mul", scores, slope), offset)
    pairwise = ctx.layer("tactix.Sigmoid", [ctx.layer("tactix.Neg", [against])])
    return ctx.layer("tactix.PairwiseCoupling", [pairwise], classes=classes)


def _by_class(ctx: Context, labels: Labels, x: Value) -> list[Value]:
    """A linear model for each class. Of two classes the second wins where a score says so by
    itself.
    """
    weights = floats(ctx.attr("coefficients"))
    scores = weighted(ctx, x, weights.reshape(len(labels), -1), floats(ctx.attr("rho"))[:1])
    place = best_place(ctx, scores)
    if len(labels) == 2 and not ctx.attr("prob_a", ()):
        most = ctx.layer("tactix.ReduceMax", [scores], axes=(1,), keepdims=False)
        even = bool(np.all(weights >= 0))
        enough = two(ctx, "GreaterOrEqual", most, 0.5) if even else two(ctx, "Greater", most, 0)
        place = ctx.layer("tactix.Where", [enough, ctx.constant(np.int64(1)), place])
    return [label_at(ctx, place, labels), transformed(ctx, scores)]
