"""Gathers: constant tuples as flat places, and a Transpose around one undone by one before."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import prod
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, const, literal, var
from tactix_ops.rules.facts import is_static

T = P.tactix

# -- tuples ---------------------------------------------------------------------------------------


def _flat_when(root: Node, data: Value, indices: Value) -> bool:
    sizes = data.spec.shape[: indices.array.shape[-1]]
    if root.attrs.batch_dims or not is_static(sizes):
        return False
    inside = (indices.const < np.array(sizes)) & (indices.const >= -np.array(sizes))
    return bool(inside.all())


def _flat(root: Node, data: Value, indices: Value) -> Op:
    depth = indices.array.shape[-1]
    sizes = tuple(int(d) for d in data.spec.shape[:depth])  # type: ignore[arg-type]
    places = np.ravel_multi_index(tuple(np.moveaxis(indices.const % np.array(sizes), -1, 0)), sizes)
    rows = T.Reshape(data, shape=(prod(sizes), *data.spec.shape[depth:]))
    return T.Gather(rows, literal(np.asarray(places, np.int64)), axis=0)


def _flat_example(net: Any) -> None:
    x = net.add_input("x", "f32", [3, 4, "n"])
    places = net.add_constant(np.array([[[0, 1], [2, -1]], [[1, 3], [-3, 0]]], np.int64))
    net.mark_output(net.add_layer("tactix.GatherND", [x, places])[0], "y")


# -- transposes around ---------------------------------------------------------------------------


def _turned(root: Node, x: Value, indices: Value, gather: Node, inner: Node) -> Op:
    before = inner.attrs.perm
    perm = tuple(before[p] for p in root.attrs.perm)
    return T.Transpose(T.Gather(x, indices, axis=before[gather.attrs.axis]), perm=perm)


def _turned_example(net: Any) -> None:
    x = net.add_input("x", "f32", [3, 4, "n"])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(2, 0, 1))
    (y,) = net.add_layer("tactix.Gather", [y, net.add_constant(np.array([2, 0, 1, 1, -1]))], axis=1)
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))[0], "y")


RULES = (
    Rule(
        "tactix.constant_gather_nd",
        T.GatherND(var("data"), const("indices")),
        _flat,
        _flat_when,
        benefit=45,
        example=_flat_example,
    ),
    Rule(
        "tactix.gather_between_transposes",
        T.Transpose(T.Gather(T.Transpose(var("x")) >> "inner", var("indices")) >> "gather"),
        _turned,
        lambda indices: indices.spec.rank == 1,
        benefit=45,
        example=_turned_example,
    ),
)
