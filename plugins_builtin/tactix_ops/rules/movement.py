"""Slice, Split, Concat and Pad: those that do nothing vanish, and what one undoes of another; and
what is cut and joined again the other way round (``torch.roll``), or pixels of each place of small
windows (patches that are merged).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim, Shape, compare
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, var
from tactix_ops.rules.facts import used_only_by


def _same_shape(root: Node, x: Value) -> bool:
    return x.spec.shape == root.outputs[0].spec.shape


def _all_forward(root: Node, x: Value) -> bool:
    a = root.attrs
    return _same_shape(root, x) and all(b == 0 for b in a.begins) and all(s == 1 for s in a.steps)


def _slice_all_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Slice", [x], begins=(0,), sizes=(3,), axes=(1,), steps=(1,))
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


def _range_of(node: Node, shape: Shape, axis: int) -> tuple[Dim, Dim, int]:
    """Begin, size and step of a Slice along one axis of its input."""
    a = node.attrs
    for begin, size, where, step in zip(a.begins, a.sizes, a.axes, a.steps, strict=True):
        if where % len(shape) == axis:
            return begin, size, step
    return 0, shape[axis], 1


def _composed_slice(root: Node, x: Value, inner: Node) -> Op:
    axes = tuple(range(x.spec.rank))
    begins, sizes, steps = [], [], []
    for axis in axes:
        first, _, stride = _range_of(inner, x.spec.shape, axis)
        begin, size, step = _range_of(root, inner.outputs[0].spec.shape, axis)
        begins.append(first + begin * stride)
        sizes.append(size)
        steps.append(stride * step)
    return P.tactix.Slice(
        x, begins=tuple(begins), sizes=tuple(sizes), axes=axes, steps=tuple(steps)
    )


def _slice_twice_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 9, 5])
    (y,) = net.add_layer("tactix.Slice", [x], begins=(8,), sizes=(4,), axes=(1,), steps=(-2,))
    (y,) = net.add_layer(
        "tactix.Slice", [y], begins=(1, 2), sizes=(2, 3), axes=(1, -1), steps=(2, 1)
    )
    net.mark_output(y, "y")


def _offsets(sizes: list[Dim]) -> list[Dim]:
    out: list[Dim] = [0]
    for n in sizes:
        out.append(out[-1] + n)
    return out


def _sliced_part(root: Node, parts: Node) -> tuple[Value, Dim] | None:
    """The joined tensor that holds the whole slice, and where it begins there."""
    shape = root.inputs[0].spec.shape  # type: ignore[union-attr]
    axis = parts.attrs.axis % len(shape)
    begin, size, step = _range_of(root, shape, axis)
    if step != 1:
        return None
    offsets = _offsets([v.spec.shape[axis] for v in parts.given])
    for v, low, high in zip(parts.given, offsets, offsets[1:], strict=False):
        if compare(begin, low) in ("==", ">=", ">") and compare(begin + size, high) in (
            "==",
            "<=",
            "<",
        ):
            return v, begin - low
    return None


def _slice_of_part(root: Node, parts: Node) -> Op:
    found = _sliced_part(root, parts)
    assert found is not None
    v, begin = found
    joined = parts.attrs.axis % v.spec.rank
    whole = root.given[0].spec.shape
    ranges = [_range_of(root, whole, i) for i in range(v.spec.rank)]
    begins = tuple(begin if i == joined else r[0] for i, r in enumerate(ranges))
    sizes, steps = tuple(r[1] for r in ranges), tuple(r[2] for r in ranges)
    return P.tactix.Slice(
        v, begins=begins, sizes=sizes, axes=tuple(range(v.spec.rank)), steps=steps
    )


def _slice_of_part_example(net: Any) -> None:
    a, b = net.add_input("a", "f32", ["n", 3]), net.add_input("b", "f32", ["n", 4])
    (y,) = net.add_layer("tactix.Concat", [a, b], axis=1)
    (z,) = net.add_layer("tactix.Slice", [y], begins=(4,), sizes=(2,), axes=(1,), steps=(1,))
    net.mark_output(z, "z")


# -- concat and split ----------------------------------------------------------------------------


def _concat_one_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(
        net.add_layer("tactix.Relu", [net.add_layer("tactix.Concat", [x], axis=1)[0]])[0], "y"
    )


def _split_one_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(
        net.add_layer("tactix.Relu", [net.add_layer("tactix.Split", [x], axis=1, sizes=(3,))[0]])[
            0
        ],
        "y",
    )


def _rejoined(root: Node) -> Value | None:
    """What was split, if all of its parts are joined again in order."""
    split = root.given[0].producer
    if split is None or split.layer.name != "Split" or root.given != split.outputs:
        return None
    (x,) = split.given
    return x if split.attrs.axis % x.spec.rank == root.attrs.axis % x.spec.rank else None


def _rejoined_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 5])
    parts = net.add_layer("tactix.Split", [x], axis=1, sizes=(2, 3))
    net.mark_output(
        net.add_layer("tactix.Relu", [net.add_layer("tactix.Concat", parts, axis=-1)[0]])[0], "y"
    )


def _flat_parts(root: Node, graph: Any) -> list[Value]:
    """The joined tensors, with those of inner Concats of that axis that are read here alone."""
    out: list[Value] = []
    for v in root.given:
        p = v.producer
        same = (
            p is not None
            and p.layer.name == "Concat"
            and (p.attrs.axis - root.attrs.axis) % v.spec.rank == 0
        )
        out += p.given if same and used_only_by(graph, v, root) else [v]  # type: ignore[union-attr]
    return out


def _flat(root: Node, graph: Any) -> Op:
    return P.tactix.Concat(*_flat_parts(root, graph), axis=root.attrs.axis)


def _flat_example(net: Any) -> None:
    a, b, c = (net.add_input(k, "f32", ["n", i + 1]) for i, k in enumerate("abc"))
    (y,) = net.add_layer("tactix.Concat", [a, b], axis=1)
    net.mark_output(net.add_layer("tactix.Concat", [y, c], axis=-1)[0], "y")


# -- roll ----------------------------------------------------------------------------------------


def _cut(root: Node, x: Value, last: Node, first: Node) -> tuple[int, Dim] | None:
    """The axis of which the Slices are all elements from a place on and all before it, and the
    place.
    """
    rank = x.spec.rank
    axis = root.attrs.axis % rank
    ranges = [[_range_of(n, x.spec.shape, i) for i in range(rank)] for n in (last, first)]
    others = [(0, d, 1) for i, d in enumerate(x.spec.shape) if i != axis]
    if any([r for i, r in enumerate(part) if i != axis] != others for part in ranges):
        return None
    (begin, size, step), before = ranges[0][axis], ranges[1][axis]
    whole = begin + size == x.spec.shape[axis] and before == (0, begin, 1)
    return (axis, begin) if step == 1 and whole else None


def _roll(root: Node, x: Value, last: Node, first: Node) -> Op:
    found = _cut(root, x, last, first)
    assert found is not None
    axis, begin = found
    return P.tactix.Roll(x, axes=(axis,), begins=(begin,))


def _rolled(net: Any, x: Value, axis: int) -> Value:
    """An example's tensor, rolled by two elements, as it is exported."""
    size = x.spec.shape[axis]
    parts = [
        net.add_layer("tactix.Slice", [x], begins=(b,), sizes=(n,), axes=(axis,), steps=(1,))[0]
        for b, n in ((2, size - 2), (0, 2))
    ]
    return net.add_layer("tactix.Concat", parts, axis=axis)[0]  # type: ignore[no-any-return]


def _roll_example(net: Any) -> None:
    net.mark_output(_rolled(net, net.add_input("x", "f32", ["n", 5, 3]), 1), "y")


def _rolls(root: Node, x: Value, inner: Node) -> Op:
    a, b = inner.attrs, root.attrs
    return P.tactix.Roll(x, axes=(*a.axes, *b.axes), begins=(*a.begins, *b.begins))


def _along_others(root: Node, x: Value, inner: Node) -> bool:
    axes = [axis % x.spec.rank for axis in (*root.attrs.axes, *inner.attrs.axes)]
    return len(set(axes)) == len(axes)


def _roll_twice_example(net: Any) -> None:
    y = net.add_input("x", "f32", ["n", 5, 3])
    for axis in (1, -1):
        (y,) = net.add_layer("tactix.Roll", [y], axes=(axis,), begins=(1,))
    net.mark_output(y, "y")


# -- windows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Places:
    """Of ``x``, windows of ``steps`` elements along ``axes``, whose places follow each other, those
    of the last axis fastest.
    """

    x: Value
    axes: tuple[int, ...]
    steps: tuple[int, ...]


def _cut_of(v: Value) -> tuple[Value, list[tuple[Dim, Dim, int]]]:
    """What a value is a Slice of, of a Slice perhaps, and begin, size and step along each axis."""
    ranges: list[tuple[Dim, Dim, int]] = [(0, d, 1) for d in v.spec.shape]
    while (p := v.producer) is not None and p.layer.name == "Slice":
        (v,) = p.given[:1]
        for axis, (begin, size, step) in enumerate(ranges):
            first, _, stride = _range_of(p, v.spec.shape, axis)
            ranges[axis] = (first + begin * stride, size, stride * step)
    return v, ranges


def _places(root: Node) -> _Places | None:
    """The windows of which the parts are all elements of one place each."""
    (x, first), *others = (_cut_of(v) for v in root.given)
    axes = [i for i, (_, _, step) in enumerate(first) if step > 1]
    steps = [first[i][2] for i in axes]
    joined = root.attrs.axis % x.spec.rank
    if not axes or joined in axes or len(root.given) != math.prod(steps):
        return None
    for axis, step in zip(axes, steps, strict=True):
        size = x.spec.shape[axis]
        if not isinstance(size, int) or size % step:
            return None
    wanted = [
        (size // steps[axes.index(i)] if i in axes else size) for i, size in enumerate(x.spec.shape)
    ]
    parts = [ranges for y, ranges in ((x, first), *others) if y is x]
    alike = [
        [r[1] for r in part] == wanted and [r[2] for r in part] == [r[2] for r in first]
        for part in parts
    ]
    if len(parts) != len(root.given) or not all(alike):
        return None
    found = [tuple(part[i][0] for i in axes) for part in parts]
    for order in itertools.permutations(range(len(axes))):
        ranges = [range(steps[i]) for i in order]
        if found == [_back(place, order) for place in itertools.product(*ranges)]:
            return _Places(x, tuple(axes[i] for i in order), tuple(steps[i] for i in order))
    return None


def _back(place: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The place along the axes as they come; ``order``: which of them each number is of."""
    return tuple(place[order.index(i)] for i in range(len(order)))


def _windows(root: Node) -> Op:
    """Each axis apart as windows and places, and these moved before the joined axis."""
    found = _places(root)
    assert found is not None
    shape: list[Dim] = []
    windows, places = [], {}
    for i, size in enumerate(found.x.spec.shape):
        windows.append(len(shape))
        if i not in found.axes:
            shape.append(size)
            continue
        step = found.steps[found.axes.index(i)]
        places[i] = len(shape) + 1
        shape += [size // step, step]
    joined = root.attrs.axis % found.x.spec.rank
    perm = [*windows[:joined], *(places[i] for i in found.axes), *windows[joined:]]
    apart = P.tactix.Reshape(found.x, shape=tuple(shape))
    turned = P.tactix.Transpose(apart, perm=tuple(perm))
    return P.tactix.Reshape(turned, shape=root.outputs[0].spec.shape)


def _windows_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6, 3])
    parts = []
    for column, row in itertools.product(range(3), range(2)):
        begins = ((1, row, 2, 2), (2, column, 2, 3))
        y = x
        for axis, begin, size, step in begins:
            part = {"begins": (begin,), "sizes": (size,), "axes": (axis,), "steps": (step,)}
            (y,) = net.add_layer("tactix.Slice", [y], **part)
        parts.append(y)
    net.mark_output(net.add_layer("tactix.Concat", parts, axis=-1)[0], "y")


def _no_pads_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3])
    (y,) = net.add_layer("tactix.Pad", [x], pads=(0, 0, 0, 0), mode="constant", value=0.0)
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


RULES = (
    Rule(
        "tactix.slice_all",
        P.tactix.Slice(var("x")),
        lambda x: x,
        _all_forward,
        benefit=60,
        example=_slice_all_example,
    ),
    Rule(
        "tactix.slice_twice",
        P.tactix.Slice(P.tactix.Slice(var("x")) >> "inner"),
        _composed_slice,
        benefit=50,
        example=_slice_twice_example,
    ),
    Rule(
        "tactix.slice_of_part",
        P.tactix.Slice(P.tactix.Concat() >> "parts"),
        _slice_of_part,
        lambda root, parts: _sliced_part(root, parts) is not None,
        benefit=50,
        exclusive=False,
        example=_slice_of_part_example,
    ),
    Rule(
        "tactix.concat_one",
        P.tactix.Concat(var("x")),
        lambda x: x,
        lambda root: len(root.inputs) == 1,
        benefit=60,
        example=_concat_one_example,
    ),
    Rule(
        "tactix.split_one",
        P.tactix.Split(var("x")),
        lambda x: x,
        lambda root: len(root.outputs) == 1,
        benefit=60,
        example=_split_one_example,
    ),
    Rule(
        "tactix.rejoined",
        P.tactix.Concat(),
        lambda root: _rejoined(root),
        lambda root: _rejoined(root) is not None,
        benefit=55,
        example=_rejoined_example,
    ),
    Rule(
        "tactix.concat_twice",
        P.tactix.Concat(),
        _flat,
        lambda root, graph: len(_flat_parts(root, graph)) > len(root.given),
        benefit=50,
        example=_flat_example,
    ),
    Rule(
        "tactix.roll",
        P.tactix.Concat(P.tactix.Slice(var("x")) >> "last", P.tactix.Slice(var("x")) >> "first"),
        _roll,
        lambda root, x, last, first: _cut(root, x, last, first) is not None,
        benefit=50,
        example=_roll_example,
    ),
    Rule(
        "tactix.windows",
        P.tactix.Concat(),
        _windows,
        lambda root: len(root.given) > 1 and _places(root) is not None,
        benefit=52,
        exclusive=False,
        example=_windows_example,
    ),
    Rule(
        "tactix.roll_twice",
        P.tactix.Roll(P.tactix.Roll(var("x")) >> "inner"),
        _rolls,
        _along_others,
        benefit=50,
        example=_roll_twice_example,
    ),
    Rule(
        "tactix.no_pads",
        P.tactix.Pad(var("x")),
        lambda x: x,
        lambda root: all(p == 0 for p in root.attrs.pads),
        benefit=60,
        example=_no_pads_example,
    ),
)
