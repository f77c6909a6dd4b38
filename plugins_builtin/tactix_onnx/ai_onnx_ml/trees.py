"""Tree ensembles of ``ai.onnx.ml``: three ways to write them, one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.graph import Value
from tactix_onnx.ai_onnx_ml.classical import (
    ML,
    best_place,
    class_labels,
    complement,
    float_input,
    label_at,
    second_label,
    transformed,
)
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.trees import AGGREGATES, MODES, check_trees

CONVERTERS = Table()

_LEAF = MODES.index("LEAF")


@dataclass
class Forest:
    """The layer's inputs but for x, as arrays: see TreeEnsemble."""

    feature: Any
    mode: Any
    split: Any
    yes: Any
    no: Any
    missing: Any
    roots: Any
    leaf: Any
    target: Any
    weight: Any
    members: tuple[Any, ...] = ()

    def arrays(self, dtype: DType) -> list[Any]:
        """In the layer's order and dtypes."""
        ints, real = np.int64, dtype.numpy
        kinds: tuple[Any, ...] = (ints, ints, real, ints, ints, bool, ints, ints, ints, real)
        values = (
            self.feature,
            self.mode,
            self.split,
            self.yes,
            self.no,
            self.missing,
            self.roots,
            self.leaf,
            self.target,
            self.weight,
        )
        sets = [np.asarray(a).astype(k) for a, k in zip(self.members, kinds[1:], strict=False)]
        return [*(np.asarray(a).astype(k) for a, k in zip(values, kinds, strict=True)), *sets]


def _ensemble(ctx: Context, x: Value, forest: Forest, targets: int, aggregate: str) -> Value:
    arrays = forest.arrays(x.spec.dtype)
    try:
        check_trees(arrays[1], arrays[3], arrays[4])
    except InvalidArgument as e:
        ctx.fail(str(e))
    constants = [ctx.constant(a) for a in arrays]
    return ctx.layer("tactix.TreeEnsemble", [x, *constants], targets=targets, aggregate=aggregate)


def _numbers(ctx: Context, name: str) -> Any:
    """A list, or the tensor of the same name for float64."""
    if ctx.has_attr(f"{name}_as_tensor"):
        return ctx.attr(f"{name}_as_tensor")
    return np.array(ctx.attr(name, ()))


def _forest(ctx: Context, kind: str) -> Forest:
    """Nodes are named by tree and node: they become positions. ``kind`` of the entries: ``target``
    or ``class``.
    """
    ctx.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    names = list(zip(ctx.attr("nodes_treeids"), ctx.attr("nodes_nodeids"), strict=True))
    place = {name: i for i, name in enumerate(names)}
    trees = [t for t, _ in names]
    mode = [MODES.index(m) for m in ctx.attr("nodes_modes")]
    yes, no = (
        [
            0 if m == _LEAF else place[t, n]
            for t, n, m in zip(trees, ctx.attr(f"nodes_{w}nodeids"), mode, strict=True)
        ]
        for w in ("true", "false")
    )
    inner = {i for i, m in enumerate(mode) if m != _LEAF}
    children = {n for i in inner for n in (yes[i], no[i])}
    entries = zip(ctx.attr(f"{kind}_treeids"), ctx.attr(f"{kind}_nodeids"), strict=True)
    missing = ctx.attr("nodes_missing_value_tracks_true", ()) or (0,) * len(mode)
    return Forest(
        ctx.attr("nodes_featureids"),
        mode,
        _numbers(ctx, "nodes_values"),
        yes,
        no,
        missing,
        [i for i in range(len(mode)) if i not in children],
        [place[e] for e in entries],
        ctx.attr(f"{kind}_ids"),
        _numbers(ctx, f"{kind}_weights"),
    )


@CONVERTERS("TreeEnsembleRegressor", domain=ML)
def tree_regressor(ctx: Context, node: Any) -> Value:
    targets = ctx.attr("n_targets", 1)
    scores = _ensemble(
        ctx,
        float_input(ctx),
        _forest(ctx, "target"),
        targets,
        ctx.attr("aggregate_function", "SUM"),
    )
    return transformed(ctx, _with_base(ctx, scores))


def _with_base(ctx: Context, scores: Value) -> Value:
    base = _numbers(ctx, "base_values")
    if not len(base):
        return scores
    return ctx.layer("tactix.Add", [scores, ctx.constant(base.astype(scores.spec.dtype.numpy))])


@CONVERTERS("TreeEnsembleClassifier", domain=ML)
def tree_classifier(ctx: Context, node: Any) -> list[Value]:
    forest, labels = _forest(ctx, "class"), class_labels(ctx)
    single = len(labels) == 2 and len(set(forest.target)) == 1
    even = bool(np.all(np.asarray(forest.weight) >= 0))
    targets = 1 if single and forest.target[0] == 0 else len(labels)
    scores = _with_base(ctx, _ensemble(ctx, float_input(ctx), forest, targets, "SUM"))
    if not single:
        return [label_at(ctx, best_place(ctx, scores), labels), transformed(ctx, scores)]
    last = {"begins": (targets - 1,), "sizes": (1,), "axes": (1,), "steps": (1,)}
    score = scores if targets == 1 else ctx.layer("tactix.Slice", [scores], **last)
    label = second_label(ctx, score, labels, 0.5 if even else 0.0)
    return [label, _both(ctx, score, even) if targets == 1 else transformed(ctx, scores)]


def _both(ctx: Context, score: Value, even: bool) -> Value:
    """Scores of two classes where the trees know one, as ONNX Runtime: probabilities if no weight
    is negative.
    """
    logistic = ctx.attr("post_transform", "NONE") == "LOGISTIC"
    if even and not logistic:
        return complement(ctx, score)
    pair = ctx.layer("tactix.Concat", [ctx.layer("tactix.Neg", [score]), score], axis=1)
    return transformed(ctx, pair) if logistic else pair


@CONVERTERS("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(ctx: Context, node: Any) -> Value:
    """Inner nodes and leaves have lists of their own: leaves become nodes behind the inner ones."""
    ctx.ignore("nodes_hitrates", "post_transform")
    x, inner = ctx.tensor(), len(ctx.attr("nodes_modes"))
    leaves = len(ctx.attr("leaf_targetids"))
    yes, no = (
        [
            n + inner if leaf else n
            for n, leaf in zip(ctx.attr(f"nodes_{w}nodeids"), ctx.attr(f"nodes_{w}leafs"))
        ]
        for w in ("true", "false")
    )
    mode, nothing = ctx.attr("nodes_modes").tolist(), [0] * leaves
    missing = ctx.attr("nodes_missing_value_tracks_true", ()) or (0,) * inner
    forest = Forest(
        [*ctx.attr("nodes_featureids"), *nothing],
        [*mode, *[_LEAF] * leaves],
        np.concatenate([ctx.attr("nodes_splits"), nothing]),
        [*yes, *nothing],
        [*no, *nothing],
        [*missing, *nothing],
        ctx.attr("tree_roots"),
        range(inner, inner + leaves),
        ctx.attr("leaf_targetids"),
        ctx.attr("leaf_weights"),
        _members(ctx, mode),
    )
    kind = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[ctx.attr("post_transform", 0)]
    if kind != "NONE":
        ctx.fail(f"post_transform {kind} is not supported")
    return _ensemble(
        ctx, x, forest, ctx.attr("n_targets", 1), _aggregate(ctx.attr("aggregate_function", 1))
    )


def _aggregate(code: int) -> str:
    return ("AVERAGE", "SUM", "MIN", "MAX")[code] if 0 <= code < len(AGGREGATES) else str(code)


def _members(ctx: Context, mode: Sequence[int]) -> tuple[Any, ...]:
    """Sets follow one another in the order of their nodes, each closed by a NaN."""
    values = ctx.attr("membership_values")
    if values is None:
        return ()
    nodes = [i for i, m in enumerate(mode) if m == MODES.index("BRANCH_MEMBER")]
    owner = np.cumsum(np.isnan(values)) - np.isnan(values)
    kept = ~np.isnan(values)
    return np.array(nodes)[owner[kept]], values[kept]
