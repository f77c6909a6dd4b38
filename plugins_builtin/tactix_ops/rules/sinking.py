"""Slices rise above what only moves, and exchanged rows and batches sink, so that each meets its
like.

Sequences come first in torch's ``MultiheadAttention``, with q, k and v as slices of one product's
columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim, prod
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, pointwise, var
from tactix_ops.rules.facts import again, used_only_by
from tactix_ops.rules.reshape import groups_of

T = P.tactix
SWAP = (1, 0, 2)
"""(batch, sequence, width) to (sequence, batch, width), and back."""

# -- slices ---------------------------------------------------------------------------------------


def _only_sliced(graph: Any, v: Value) -> bool:
    return all(n.layer.name == "Slice" for n, _ in graph.uses(v)) and not graph.is_output(v)


def _sliced_before(root: Node, x: Value, turn: Node) -> Op:
    perm = turn.attrs.perm
    axes = tuple(perm[axis % len(perm)] for axis in root.attrs.axes)
    return T.Transpose(again(root, [x], axes=axes), perm=perm)


def _sliced_before_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(2, 0, 1))
    (y,) = net.add_layer(
        "tactix.Slice", [y], begins=(2, 1), sizes=(1, 2), axes=(-1, 0), steps=(1, 2)
    )
    net.mark_output(y, "y")


def _ranges(root: Node, x: Value, split: Node) -> list[tuple[Dim, Dim, int]] | None:
    """Begin, size and axis of x for each range of the slice, if each is one range of x."""
    shape, a, out = split.attrs.shape, root.attrs, []
    kept, whole = ([i for i, d in enumerate(s) if d != 1] for s in (shape, x.spec.shape))
    groups = groups_of(tuple(shape[i] for i in kept), tuple(x.spec.shape[i] for i in whole))
    for begin, size, where, step in zip(a.begins, a.sizes, a.axes, a.steps, strict=True):
        axis = where % len(shape)
        if (begin, size, step) == (0, shape[axis], 1):
            continue
        heads = {kept[g[0]]: i for i, g in enumerate(groups or ())}
        if groups is None or step != 1 or axis not in heads:
            return None
        own = heads[axis]
        each = prod(shape[kept[i]] for i in groups[own][1:])
        out.append((begin * each, size * each, whole[own]))
    return out


def _is_rejoined(root: Node, graph: Any) -> bool:
    """Whether the slice is joined with others of the same tensor alone, as where it is rolled."""
    uses = graph.uses(root.outputs[0])
    joined = uses[0][0] if len(uses) == 1 else None
    if joined is None or joined.layer.name != "Concat":
        return False
    parts = [v.producer for v in joined.given]
    return all(p is not None and p.given[:1] == root.given[:1] for p in parts)


def _sliced_columns(root: Node, x: Value, split: Node) -> Op:
    begins, sizes, axes = zip(*(_ranges(root, x, split) or []), strict=True)
    y = T.Slice(x, begins=begins, sizes=sizes, axes=axes, steps=(1,) * len(axes))
    return T.Reshape(y, shape=root.outputs[0].spec.shape)


def _sliced_columns_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 24])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(x.spec.shape[0], 4, 6))
    net.mark_output(
        net.add_layer("tactix.Slice", [y], begins=(1,), sizes=(2,), axes=(1,), steps=(1,))[0], "y"
    )


# -- exchanged rows and batches ------------------------------------------------------------------


def _below_product_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Transpose", [net.add_input("x", "f32", ["n", 3, 4])], perm=SWAP)
    w = net.add_constant(np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5))
    net.mark_output(net.add_layer("tactix.MatMul", [y, w])[0], "y")


def _swapped(root: Node, graph: Any) -> Value | None:
    """The only operand that is such a Transpose, if all others are vectors along the last axis. A
    Dequantize sinks itself, so that bytes are moved.
    """
    if root.layer.name == "Dequantize":
        return None
    found = [v for v in root.given if v.spec.rank > 1]
    p = found[0].producer if len(set(found)) == 1 else None
    turned = p is not None and p.layer.name == "Transpose" and p.attrs.perm == SWAP
    return (
        found[0] if turned and not root.is_fused and used_only_by(graph, found[0], root) else None
    )


def _below_pointwise(root: Node, graph: Any) -> Op:
    turned = _swapped(root, graph)
    assert turned is not None
    assert turned.producer is not None
    inputs = [turned.producer.given[0] if v is turned else v for v in root.inputs]
    return T.Transpose(again(root, inputs), perm=SWAP)


def _below_pointwise_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Transpose", [net.add_input("x", "f32", ["n", 3, 4])], perm=SWAP)
    net.mark_output(
        net.add_layer("tactix.Add", [net.add_constant(np.arange(4, dtype=np.float32)), y])[0], "y"
    )


RULES = (
    Rule(
        "tactix.slice_above_transpose",
        T.Slice(T.Transpose(var("x")) >> "turn"),
        _sliced_before,
        lambda turn, graph: _only_sliced(graph, turn.outputs[0]),
        benefit=50,
        exclusive=False,
        example=_sliced_before_example,
    ),
    Rule(
        "tactix.slice_above_reshape",
        T.Slice(T.Reshape(var("x")) >> "split"),
        _sliced_columns,
        lambda root, x, split, graph: (
            bool(_ranges(root, x, split)) and not _is_rejoined(root, graph)
        ),
        benefit=50,
        exclusive=False,
        example=_sliced_columns_example,
    ),
    Rule(
        "tactix.swap_below_product",
        T.MatMul(T.Transpose(var("x"), perm=SWAP), var("w")),
        lambda x, w: T.Transpose(T.MatMul(x, w), perm=SWAP),
        lambda w: w.spec.rank == 2,
        benefit=30,
        example=_below_product_example,
    ),
    Rule(
        "tactix.swap_below_pointwise",
        pointwise().reading("tactix.Transpose"),
        _below_pointwise,
        lambda root, graph: _swapped(root, graph) is not None,
        benefit=30,
        example=_below_pointwise_example,
    ),
)
