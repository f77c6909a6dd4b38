"""Reshape and Transpose: those that do nothing vanish, neighbours become one, and a Reshape sinks
below pointwise layers so that they meet the kernel that can run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import Dim, Shape
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import ANY, Op, P, Rule, pointwise, var
from tactix_ops.rules.anchors import takes_epilogue
from tactix_ops.rules.facts import again, used_only_by

# -- reshape --------------------------------------------------------------------------------------


def _same_shape(root: Node, x: Value) -> bool:
    return x.spec.shape == root.outputs[0].spec.shape


def _same_reshape_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=x.spec.shape)
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


def _outer_shape(root: Node, x: Value) -> Op:
    return P.tactix.Reshape(x, shape=root.attrs.shape)


def _reshape_twice_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 6])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(x.spec.shape[0], 2, 3))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(x.spec.shape[0], 3, 2))[0], "y")


# -- transpose -----------------------------------------------------------------------------------


def _in_order(axes: list[int]) -> bool:
    return axes == sorted(axes)


def _identity_perm(root: Node) -> bool:
    return _in_order(list(root.attrs.perm))


def _identity_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(
        net.add_layer("tactix.Relu", [net.add_layer("tactix.Transpose", [x], perm=(0, 1))[0]])[0],
        "y",
    )


def _composed(root: Node, x: Value, inner: Node) -> Op:
    return P.tactix.Transpose(x, perm=tuple(inner.attrs.perm[p] for p in root.attrs.perm))


def _composed_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(2, 0, 1))
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))[0], "y")


def _moves_ones(root: Node, x: Value) -> bool:
    moved = [p for p in root.attrs.perm if x.spec.shape[p] != 1]
    return _in_order(moved) and not _identity_perm(root)


def _as_reshape(root: Node, x: Value) -> Op:
    return P.tactix.Reshape(x, shape=root.outputs[0].spec.shape)


def _ones_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 1, 5])
    net.mark_output(net.add_layer("tactix.Transpose", [x], perm=(1, 0, 2))[0], "y")


def groups_of(shape: Shape, merged: Shape) -> list[list[int]] | None:
    """Consecutive axes of ``shape`` whose products are the dims of ``merged``; None if there are
    none such.
    """
    out: list[list[int]] = []
    axis = 0
    for d in merged:
        group: list[int] = []
        size: Dim = 1
        while axis < len(shape) and (not group or size != d):
            size = size * shape[axis]
            group.append(axis)
            axis += 1
        if size != d:
            return None
        out.append(group)
    return out if axis == len(shape) else None


def _unmerged_perm(root: Node, x: Value, turn: Node) -> tuple[int, ...] | None:
    """The order of x's axes that merging them, transposing and splitting them again comes to."""
    groups = groups_of(x.spec.shape, turn.inputs[0].spec.shape)  # type: ignore[union-attr]
    if groups is None:
        return None
    perm = tuple(axis for p in turn.attrs.perm for axis in groups[p])
    return perm if tuple(x.spec.shape[p] for p in perm) == root.attrs.shape else None


def _unmerged(root: Node, x: Value, turn: Node) -> Op:
    return P.tactix.Transpose(x, perm=_unmerged_perm(root, x, turn))


def _unmerged_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 3, 5])
    n = x.spec.shape[0]
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(n * 4, 3, 5))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(n, 4, 5, 3))[0], "y")


def _turned_groups(root: Node, x: Value, turn: Node) -> list[list[int]] | None:
    """The axes of x that each axis of the Reshape merges, if they follow one another in x too."""
    perm = turn.attrs.perm
    groups = groups_of(tuple(x.spec.shape[p] for p in perm), root.attrs.shape)
    if groups is None:
        return None
    axes = [[perm[i] for i in g] for g in groups]
    return axes if all(g and g == list(range(g[0], g[0] + len(g))) for g in axes) else None


def _merged_before(root: Node, x: Value, turn: Node) -> Op:
    axes = _turned_groups(root, x, turn)
    assert axes is not None
    order = sorted(range(len(axes)), key=lambda i: axes[i][0])
    inner = P.tactix.Reshape(x, shape=tuple(root.attrs.shape[i] for i in order))
    return P.tactix.Transpose(inner, perm=tuple(order.index(i) for i in range(len(axes))))


def _axes_kept(x: Value, turn: Node) -> list[int]:
    """Those that are longer than 1; and the one sample of an image whose channels go last or come
    back, since kernels know blocks of channels by the axis of samples before them.
    """
    rank, perm = x.spec.rank, turn.attrs.perm
    image = perm in ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1)))
    return [axis for axis, d in enumerate(x.spec.shape) if d != 1 or (axis == 0 and image)]


def _without_ones(root: Node, x: Value, turn: Node) -> Op:
    kept = _axes_kept(x, turn)
    inner = P.tactix.Reshape(x, shape=tuple(x.spec.shape[axis] for axis in kept))
    turned = P.tactix.Transpose(
        inner, perm=tuple(kept.index(p) for p in turn.attrs.perm if p in kept)
    )
    return P.tactix.Reshape(turned, shape=root.attrs.shape)


def _without_ones_example(net: Any) -> None:
    x = net.add_input("x", "f32", [1, "n", 3, 5])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(2, 1, 0, 3))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(3, x.spec.shape[1], 5))[0], "y")


def _split_shape(root: Node, turn: Node) -> tuple[Shape, tuple[int, ...]] | None:
    """The shape that splits the axes of what is transposed as the Reshape does, and how to
    transpose that.
    """
    perm, shape = turn.attrs.perm, root.attrs.shape
    groups = groups_of(shape, turn.outputs[0].spec.shape)
    if groups is None:
        return None
    order = [axis for i in sorted(range(len(perm)), key=lambda i: perm[i]) for axis in groups[i]]
    return tuple(shape[axis] for axis in order), tuple(
        order.index(axis) for axis in range(len(shape))
    )


def _split_before(root: Node, x: Value, turn: Node) -> Op:
    found = _split_shape(root, turn)
    assert found is not None
    return P.tactix.Transpose(P.tactix.Reshape(x, shape=found[0]), perm=found[1])


def _split_before_example(net: Any) -> None:
    x = net.add_input("x", "f32", [5, "n", 12])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(1, 2, 0))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(x.spec.shape[1], 3, 4, 5))[0], "y")


def _merged_before_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(1, 2, 0))
    net.mark_output(net.add_layer("tactix.Reshape", [y], shape=(15, x.spec.shape[0]))[0], "y")


# -- below pointwise -----------------------------------------------------------------------------


def _source(v: Value | None) -> Value | None:
    """What a Reshape of its own reads."""
    p = v.producer if v is not None else None
    return p.inputs[0] if p is not None and p.layer.name == "Reshape" else None


def _fits_source(v: Value, out: Shape, source: Shape) -> bool:
    """Whether an operand means the same beside the tensor before the Reshape: the axes it lies
    along are there.
    """
    rank = v.spec.rank
    same_tail = rank <= len(source) and out[len(out) - rank :] == source[len(source) - rank :]
    return same_tail or all(d == 1 for d in v.spec.shape)


def _sinking(root: Node, graph: Any) -> Value | None:
    """What the Reshape before this pointwise node reads, if the Reshape may go below it."""
    out = root.outputs[0].spec.shape
    for v in root.given:
        x = _source(v)
        if (
            x is None
            or x.producer is None
            or v.spec.shape != out
            or not used_only_by(graph, v, root)
        ):
            continue
        ready = x.producer.anchor is None or takes_epilogue(x.producer)
        fits = all(_fits_beside(o, x, out, root, graph) for o in root.given if o is not v)
        if ready and fits and used_only_by(graph, x, v.producer):  # type: ignore[arg-type]
            return x
    return None


def _fits_beside(v: Value, x: Value, out: Shape, root: Node, graph: Any) -> bool:
    other = _source(v)
    if other is None or v.spec.shape != out:
        return _fits_source(v, out, x.spec.shape)
    if other.spec.shape == x.spec.shape:
        return used_only_by(graph, v, root)
    # a view that is there in any case may have the kernel's shape as well
    return x.producer is not None and x.producer.anchor is not None


def _sink(root: Node, graph: Any) -> Op:
    x = _sinking(root, graph)
    assert x is not None
    shape = root.outputs[0].spec.shape
    inputs = [_beside(v, x, shape) for v in root.given]
    return P.tactix.Reshape(again(root, inputs), shape=shape)


def _beside(v: Value, x: Value, shape: Shape) -> Any:
    source = _source(v)
    if source is not None and v.spec.shape == shape:
        same = source.spec.shape == x.spec.shape
        return source if same else P.tactix.Reshape(source, shape=x.spec.shape)
    return P.tactix.Reshape(v, shape=()) if v.spec.rank > x.spec.rank else v


def _sink_when(root: Node, graph: Any) -> bool:
    return not root.is_fused and _sinking(root, graph) is not None


def _sink_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6])
    n = x.spec.shape[0]
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(np.eye(6, dtype=np.float32) * 2)])
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(n * 4, 6))
    (y,) = net.add_layer("tactix.Add", [net.add_constant(np.arange(6, dtype=np.float32)), y])
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


def _rows(x: Value, rows: Node) -> Shape | None:
    """The shape with x's own leading axes and the last one of the Reshape; None if the Reshape has
    it already.
    """
    shape = rows.attrs.shape
    groups = groups_of(x.spec.shape, shape)
    keeps_last = bool(x.spec.rank) and bool(shape) and x.spec.shape[-1] == shape[-1]
    if len(shape) < 2 or (groups is None and not keeps_last):
        return None
    merged = 1 if groups is None else len(groups[-1])
    own = (*x.spec.shape[: x.spec.rank - merged], shape[-1])
    return None if own == shape or len(own) < 2 else own


def _rows_below(root: Node, x: Value, w: Value, rows: Node) -> Op:
    inner = P.tactix.Reshape(x, shape=_rows(x, rows))
    return P.tactix.Reshape(P.tactix.MatMul(inner, w), shape=root.outputs[0].spec.shape)


def _rows_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 2, 3])
    (y,) = net.add_layer("tactix.Reshape", [x], shape=(x.spec.shape[0] * 4, 6))
    w = net.add_constant(np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5))
    net.mark_output(net.add_layer("tactix.MatMul", [y, w])[0], "y")


RULES = (
    Rule(
        "tactix.same_reshape",
        P.tactix.Reshape(var("x")),
        lambda x: x,
        _same_shape,
        benefit=60,
        example=_same_reshape_example,
    ),
    Rule(
        "tactix.reshape_twice",
        P.tactix.Reshape(P.tactix.Reshape(var("x"), shape=ANY), shape=ANY),
        _outer_shape,
        benefit=55,
        exclusive=False,
        example=_reshape_twice_example,
    ),
    Rule(
        "tactix.identity_transpose",
        P.tactix.Transpose(var("x")),
        lambda x: x,
        _identity_perm,
        benefit=60,
        example=_identity_example,
    ),
    Rule(
        "tactix.transpose_twice",
        P.tactix.Transpose(P.tactix.Transpose(var("x")) >> "inner"),
        _composed,
        benefit=55,
        exclusive=False,
        example=_composed_example,
    ),
    Rule(
        "tactix.transpose_of_ones",
        P.tactix.Transpose(var("x")),
        _as_reshape,
        _moves_ones,
        benefit=50,
        example=_ones_example,
    ),
    Rule(
        "tactix.transpose_of_merged",
        P.tactix.Reshape(P.tactix.Transpose(P.tactix.Reshape(var("x"), shape=ANY)) >> "turn"),
        _unmerged,
        lambda root, x, turn: _unmerged_perm(root, x, turn) is not None,
        benefit=50,
        exclusive=False,
        example=_unmerged_example,
    ),
    Rule(
        "tactix.transpose_below_reshape",
        P.tactix.Reshape(P.tactix.Transpose(var("x")) >> "turn"),
        _merged_before,
        lambda root, x, turn: _turned_groups(root, x, turn) is not None,
        benefit=45,
        example=_merged_before_example,
    ),
    Rule(
        "tactix.transpose_without_ones",
        P.tactix.Reshape(P.tactix.Transpose(var("x")) >> "turn"),
        _without_ones,
        lambda x, turn: len(_axes_kept(x, turn)) < x.spec.rank,
        benefit=48,
        example=_without_ones_example,
    ),
    Rule(
        "tactix.transpose_below_split",
        P.tactix.Reshape(P.tactix.Transpose(var("x")) >> "turn"),
        _split_before,
        lambda root, turn: _split_shape(root, turn) is not None,
        benefit=45,
        example=_split_before_example,
    ),
    Rule(
        "tactix.reshape_below_pointwise",
        pointwise().reading("tactix.Reshape"),
        _sink,
        _sink_when,
        benefit=30,
        example=_sink_example,
    ),
    Rule(
        "tactix.reshape_below_matmul",
        P.tactix.MatMul(P.tactix.Reshape(var("x")) >> "rows", var("w")),
        _rows_below,
        lambda x, w, rows: w.spec.rank == 2 and _rows(x, rows) is not None,
        benefit=30,
        exclusive=False,
        example=_rows_example,
    ),
)
