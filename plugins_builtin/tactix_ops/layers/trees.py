"""Ensembles of decision trees, and tables from keys to values: what of ``ai.onnx.ml`` is no
composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer, random_array
from tactix_ops.layers.common import Array, Specs, pick, required, wide

MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
    "LEAF",
)
"""What a node asks of its feature, by number: ``<= < >= > == !=`` its split, or whether it is in
its set.
"""

_MEMBER, _LEAF = 6, 7
_TESTS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
PATIENCE = 4096
"""Depth of a tree from which it is made sure that it has an end."""

AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


@dataclass(frozen=True)
class TreeEnsembleAttrs:
    """``targets``: numbers per sample. ``aggregate``: how those of the trees become one."""

    targets: int = 1
    aggregate: str = "SUM"


class TreeEnsemble(Layer):
    """x (N, features) through trees: (N, targets).

    Inputs: x; of every node the feature, mode, split, next node if it holds and if not, and whether
    it holds for NaN; the trees' roots; leaves, targets and weights of the entries; and optionally
    nodes and members of their sets.
    """

    key = "tactix.TreeEnsemble@1"
    Attrs = TreeEnsembleAttrs

    def infer(self, attrs: TreeEnsembleAttrs, inputs: Specs) -> list[TensorSpec]:
        x, *_ = required(self, inputs, 11)
        if x.rank != 2:
            raise ShapeError(f"{self.key} takes (N, features), not {x}")
        if attrs.aggregate not in AGGREGATES:
            raise InvalidArgument(
                f"{self.key} knows no aggregate {attrs.aggregate!r}", do=f"It has {AGGREGATES}"
            )
        return [TensorSpec(x.dtype, (x.shape[0], attrs.targets))]

    def reference(self, attrs: TreeEnsembleAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, feature, mode, split, yes, no, missing, roots, leaf, target, weight = inputs[:11]
        sets = (pick(inputs, 11), pick(inputs, 12))
        found, sound = [], False
        for root in roots:
            place, steps = np.full(len(x), root), 0
            while (inner := mode[place] != _LEAF).any():
                steps += 1
                if steps > PATIENCE and not sound:
                    check_trees(mode, yes, no)
                    sound = True
                value = x[np.arange(len(x)), np.where(inner, feature[place], 0)]
                holds = _holds(value, mode[place], split[place], place, sets) | (
                    np.isnan(value) & missing[place]
                )
                place = np.where(inner, np.where(holds, yes[place], no[place]), place)
            found.append(place)
        leaves = np.stack(found, axis=1) if found else np.zeros((len(x), 0), np.int64)
        return (
            _aggregated(attrs, leaves, len(mode), leaf, target, weight.astype(np.float64)).astype(
                x.dtype
            ),
        )

    def sample(self, attrs: TreeEnsembleAttrs, inputs: Specs, rng: Any) -> list[Any]:
        """Every node a leaf, but for the first."""
        given = required(self, inputs, 11)
        out = [random_array(s, rng) for s in given]
        count = given[1].at({})[0]
        features, entries = given[0].at({})[1], given[8].at({})[0]
        fresh = [
            0 * out[1] + features - 1,
            np.where(np.arange(count) == 0, 0, _LEAF),
            out[3],
            0 * out[4] + 1,
            0 * out[5] + count - 1,
            out[6],
            0 * out[7],
            np.arange(entries) % count,
            np.arange(entries) % attrs.targets,
            out[10],
        ]
        return [
            out[0],
            *(s.const if s.is_const else v.astype(s.dtype.numpy) for s, v in zip(given[1:], fresh)),
        ]


def check_trees(mode: Array, yes: Array, no: Array) -> None:
    """Raises InvalidArgument for nodes that are not there, and for a walk that might never end."""
    (inner,) = np.nonzero(mode != _LEAF)
    ends = np.concatenate([yes[inner], no[inner]]).astype(np.int64)
    if len(wrong := ends[(ends < 0) | (ends >= len(mode))]):
        raise InvalidArgument(f"a tree goes on at node {wrong[0]}", why=f"there are {len(mode)}")
    before = np.bincount(ends, minlength=len(mode)).tolist()
    ready = [i for i in inner.tolist() if not before[i]]
    after = dict(
        zip(inner.tolist(), zip(yes[inner].tolist(), no[inner].tolist(), strict=True), strict=True)
    )
    while ready:
        for n in after.pop(ready.pop()):
            before[n] -= 1
            if not before[n] and n in after:
                ready.append(n)
    if after:
        why = (
            "it comes back to itself"
            if len(after) == 1
            else f"it and {len(after) - 1} others come back to themselves"
        )
        raise InvalidArgument(
            f"node {min(after)} of a tree", why=why, do="Write trees without cycles"
        )


def _holds(
    value: Array, mode: Array, split: Array, place: Array, sets: tuple[Array | None, Array | None]
) -> Array:
    out = np.select(
        [mode == i for i in range(len(_TESTS))], [test(value, split) for test in _TESTS], False
    )
    nodes, members = sets
    if nodes is not None and members is not None:
        inside = ((place[:, None] == nodes) & (value[:, None] == members)).any(axis=1)
        out = np.where(mode == _MEMBER, inside, out)
    return out


def _aggregated(
    attrs: TreeEnsembleAttrs, leaves: Array, nodes: int, leaf: Array, target: Array, weight: Array
) -> Array:
    """(N, targets) of the weights at the leaves (N, trees); 0 where no tree says anything."""
    table, said = np.zeros((nodes, attrs.targets)), np.zeros((nodes, attrs.targets), bool)
    np.add.at(table, (leaf, target), weight)
    said[leaf, target] = True
    if attrs.aggregate in ("SUM", "AVERAGE"):
        total = table[leaves].sum(axis=1)
        return total / max(1, leaves.shape[1]) if attrs.aggregate == "AVERAGE" else total
    lowest = attrs.aggregate == "MIN"
    values = np.where(said[leaves], table[leaves], np.inf if lowest else -np.inf)
    best = (np.min if lowest else np.max)(values, axis=1)
    return np.where(np.isfinite(best), best, 0)


class Lookup(Layer):
    """For each element of x the value of its key, or the default; NaN may be a key.

    Inputs: x, keys, values, default.
    """

    key = "tactix.Lookup@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        x, keys, values, default = required(self, inputs, 4)
        if keys.shape != values.shape or default.dtype is not values.dtype:
            raise ShapeError(f"{self.key}: keys {keys}, values {values}, default {default}")
        return [TensorSpec(values.dtype, x.shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, keys, values, default = wide(inputs[0]), wide(inputs[1]), *inputs[2:]
        if keys.dtype == object:
            return (_looked_up(x, keys, values, default.reshape(())),)
        order = np.argsort(keys, kind="stable")
        place = np.minimum(np.searchsorted(keys, x, sorter=order), max(0, len(keys) - 1))
        if not len(keys):
            return (np.full(x.shape, default.reshape(()), values.dtype),)
        found = order[place]
        hit = (keys[found] == x) | ((keys[found] != keys[found]) & (x != x))
        return (np.where(hit, values[found], default.reshape(())),)


def _looked_up(x: Array, keys: Array, values: Array, default: Array) -> Array:
    """The values of text; the first of a key that comes again."""
    places = dict(zip(reversed(keys.tolist()), range(len(keys) - 1, -1, -1), strict=True))
    found = [places.get(key, len(keys)) for key in x.ravel().tolist()]
    return np.append(values, default)[np.array(found, np.int64)].reshape(x.shape)


@dataclass(frozen=True)
class PairwiseCouplingAttrs:
    """``classes``: how many there are."""

    classes: int = 2


class PairwiseCoupling(Layer):
    """Probabilities of classes (N, classes) from those of pairs (N, pairs): that of the first, by
    pairs in order.

    The second approach of Wu, Lin and Weng, "Probability estimates for multi-class classification
    by pairwise coupling" (2004), stopped as libsvm and ONNX Runtime do.
    """

    key = "tactix.PairwiseCoupling@1"
    Attrs = PairwiseCouplingAttrs

    def infer(self, attrs: PairwiseCouplingAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        pairs = attrs.classes * (attrs.classes - 1) // 2
        if x.rank != 2 or x.shape[1] != pairs:
            raise ShapeError(f"{self.key} takes (N, {pairs}) for {attrs.classes} classes, not {x}")
        return [TensorSpec(x.dtype, (x.shape[0], attrs.classes))]

    def reference(self, attrs: PairwiseCouplingAttrs, *inputs: Array) -> tuple[Array, ...]:
        k, given = attrs.classes, np.clip(inputs[0].astype(np.float64), _LEAST, 1 - _LEAST)
        first, second = np.triu_indices(k, 1)
        won = np.zeros((len(given), k, k))
        won[:, first, second], won[:, second, first] = given, 1 - given
        rows = [_coupled(r) for r in won]
        return (np.array(rows, inputs[0].dtype).reshape(-1, k),)

    def sample(self, attrs: PairwiseCouplingAttrs, inputs: Specs, rng: Any) -> list[Array]:
        return [
            rng.uniform(0.05, 0.95, s.shape).astype(s.dtype.numpy)
            for s in required(self, inputs, 1)
        ]


_LEAST = 1e-7
"""What libsvm keeps probabilities of pairs away from 0 and 1."""


def _coupled(won: Array) -> Array:
    """Probabilities (classes) that fit ``won[i, j]``, that i wins over j."""
    k = len(won)
    q = -won.T * won
    np.fill_diagonal(q, (won**2).sum(0))
    p = np.full(k, 1 / k)
    for _ in range(100):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / k:
            break
        for i in range(k):
            step = (pqp - qp[i]) / q[i, i]
            p[i] += step
            pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) ** 2
            qp = (qp + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


LAYERS: tuple[Layer, ...] = (TreeEnsemble(), Lookup(), PairwiseCoupling())
