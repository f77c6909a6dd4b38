"""Slice, Split, Concat, Pad, gathers."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules


def cut(net, x, begin, size, step=1, axis=1):
    return net.add("Slice", x, begins=(begin,), sizes=(size,), axes=(axis,), steps=(step,))


def patches(net, x, order, steps=(2, 3), axis=-1):
    """Pixels of the places of windows, joined in that order of places."""
    parts = [
        cut(net, cut(net, x, r, 4 // steps[0], steps[0]), c, 6 // steps[1], steps[1], 2)
        for r, c in order
    ]
    return net.add("Concat", *parts, axis=axis)


@pytest.mark.parametrize(("order", "axis", "found"), [
    ([(r, c) for r in range(2) for c in range(3)], -1, True),
    ([(r, c) for c in range(3) for r in range(2)], 3, True),
    ([(r, c) for c in range(3) for r in range(2)], 0, True),
    ([(0, 0), (1, 1), (0, 1), (1, 0), (0, 2), (1, 2)], -1, False),
    ([(0, 0)] * 6, -1, False),
    ([(r, c) for r in range(2) for c in range(2)], -1, False),
])  # fmt: skip
def test_pixels_of_windows_are_moved_once(net, apply, order, axis, found):
    net.mark_output(patches(net, net.x("n", 4, 6, 3), order, axis=axis), "y")
    kinds = apply(net)[0]
    assert ("Concat" in kinds) is not found
    assert not found or [k for k in kinds if k != "Reshape"] == ["Transpose"]


def test_a_roll_of_rows_that_were_seen_flat(net, apply):
    """``torch.roll`` along both axes of an image of tokens."""
    y = net.add("Reshape", net.add("Exp", net.x("n", 20, 3)), shape=(sym("n"), 4, 5, 3))
    for axis, size in ((1, 4), (2, 5)):
        y = net.add(
            "Concat", cut(net, y, 2, size - 2, axis=axis), cut(net, y, 0, 2, axis=axis), axis=axis
        )
    net.mark_output(y, "y")
    assert [k for k in apply(net)[0] if k != "Reshape"] == ["Exp", "Roll"]


def test_the_whole_is_no_slice(net, apply):
    x = net.x("n", 5)
    net.mark_output(net.add("Exp", cut(net, x, 0, 5)), "y")
    net.mark_output(net.add("Exp", cut(net, x, 4, 5, -1)), "z")
    assert sorted(apply(net)[0]) == ["Exp", "Exp", "Slice"]


def test_slices_of_slices(net, apply):
    x = net.x("n", 20, 3)
    y = cut(net, cut(net, cut(net, x, 18, 7, -2), 1, 5), 4, 3, -2)
    net.mark_output(cut(net, y, 1, 2, axis=2), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Slice"]
    assert out.nodes[0].attrs.begins == (0, 8, 1)
    assert out.nodes[0].attrs.steps == (1, 4, 1)


@pytest.mark.parametrize(("begin", "size", "step", "found"), [
    (0, 2, 1, True), (2, 4, 1, True), (3, 2, 1, True), (6, 1, 1, True), (1, 2, 1, False), (2, 5, 1, False),
    (2, 2, 2, False),
])  # fmt: skip
def test_slices_of_what_was_joined(net, apply, begin, size, step, found):
    parts = [net.x("n", k, name=f"x{k}") for k in (2, 4, 1)]
    net.mark_output(cut(net, net.add("Concat", *parts, axis=1), begin, size, step), "y")
    assert ("Concat" in apply(net, "slice_of_part", "slice_all")[0]) is not found


def test_slices_along_other_axes_keep_the_join(net, apply):
    parts = [net.x("n", k, 4, name=f"x{k}") for k in (2, 4)]
    net.mark_output(cut(net, net.add("Concat", *parts, axis=1), 1, 2, axis=2), "y")
    assert apply(net)[0] == ["Concat", "Slice"]


def test_slices_at_symbolic_places(net, apply):
    a, b = net.x("n", "s", name="a"), net.x("n", "t", name="b")
    y = net.add("Concat", a, b, axis=1)
    net.mark_output(net.add("Exp", cut(net, y, 0, sym("s"))), "y")
    net.mark_output(net.add("Exp", cut(net, y, sym("s"), sym("t"))), "z")
    assert apply(net)[0] == ["Exp", "Exp"]


def test_splitting_and_joining(net, apply):
    x = net.x("n", 6)
    parts = net.add_layer("tactix.Split", [x], axis=1, sizes=(1, 2, 3))
    net.mark_output(net.add("Exp", net.add("Concat", *parts, axis=1)), "y")
    swapped = [parts[1], parts[0], parts[2]]
    net.mark_output(net.add("Concat", *swapped, axis=1), "z")
    assert sorted(apply(net)[0]) == ["Concat", "Exp", "Split"]


def test_joins_of_joins(net, apply):
    a, b, c = (net.x("n", 2, 3, name=k) for k in "abc")
    shared = net.add("Concat", b, c, axis=1)
    inner = net.add("Concat", a, b, axis=1)
    net.mark_output(net.add("Concat", inner, shared, net.add("Concat", c, axis=2), axis=-2), "y")
    net.mark_output(net.add("Exp", shared), "z")
    kinds, out, _ = apply(net)
    assert sorted(kinds) == ["Concat", "Concat", "Exp"]
    assert max(len(n.inputs) for n in out.nodes) == 4


def test_joins_along_another_axis_stay(net, apply):
    a, b = (net.x("n", 2, 3, name=k) for k in "ab")
    inner = net.add("Concat", a, b, axis=1)
    net.mark_output(net.add("Concat", inner, net.x("n", 4, 1, name="c"), axis=2), "y")
    assert apply(net)[0] == ["Concat", "Concat"]


# -- gathers -------------------------------------------------------------------------------------


def counting(net, x, axis, dtype=np.int64):
    size = net.add("Reshape", net.add("Shape", x, start=axis, end=axis + 1), shape=())
    return net.add("Range", net.c(0, dtype), size, net.c(1, dtype))


def test_positions_are_a_slice_of_the_table(net, apply):
    x = net.x("n", "s", 4)
    places = net.add("Reshape", counting(net, x, 1), shape=(1, sym("s")))
    places = net.add("Add", places, net.c(2, np.int64))
    net.mark_output(net.add("Add", x, net.add("Gather", net.random(9, 4), places, axis=0)), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Slice", "Reshape", "Add"]
    assert out.nodes[0].attrs.begins == (2,)


def test_positions_from_a_constant(net, apply):
    x = net.x("n", "s", 4)
    ids = net.add(
        "Slice",
        net.c(np.arange(9)[None], np.int64),
        begins=(0,),
        sizes=(sym("s"),),
        axes=(1,),
        steps=(1,),
    )
    net.mark_output(net.add("Add", x, net.add("Gather", net.random(9, 4), ids, axis=0)), "y")
    assert apply(net)[0] == ["Slice", "Reshape", "Add"]


@pytest.mark.parametrize("places", [[3, 1, 0], [0, 1, 3], [-1, 0, 1], [1, 1, 1]])
def test_other_places_stay_a_gather(net, apply, places):
    net.mark_output(net.add("Gather", net.x("n", 5), net.c(places, np.int64), axis=1), "y")
    assert apply(net)[0] == ["Gather"]


@pytest.mark.parametrize(
    ("places", "begin", "step"), [([1, 2, 3], 1, 1), ([0, 2, 4], 0, 2), (3, 3, 1), ([[2]], 2, 1)]
)
def test_regular_constant_places_are_a_slice(net, apply, places, begin, step):
    net.mark_output(
        net.add("Exp", net.add("Gather", net.x("n", 5), net.c(places, np.int64), axis=1)), "y"
    )
    kinds, out, _ = apply(net)
    assert kinds[0] == "Slice"
    assert (out.nodes[0].attrs.begins, out.nodes[0].attrs.steps) == ((begin,), (step,))


def test_flat_places_over_rows_and_columns(net, apply):
    """How torch's exporter indexes a mask by batch and key: every element in order."""
    mask = net.x("n", "s", dtype="bool")
    n, s = sym("n"), sym("s")
    rows = net.add("Reshape", counting(net, mask, 0), shape=(n, 1, 1, 1))
    columns = net.add("Reshape", counting(net, mask, 1), shape=(1, 1, 1, s))
    places = net.add(
        "Add",
        columns,
        net.add("Mul", rows, net.add("Gather", net.add("Shape", mask), net.c([1], np.int64))),
    )
    flat = net.add("Gather", net.add("Reshape", mask, shape=(n * s,)), places, axis=0)
    net.mark_output(net.add("Not", flat), "y")
    assert sorted(apply(net)[0]) == ["Not", "Reshape"]


@pytest.mark.parametrize("columns_first", [False, True])
def test_tuples_over_rows_and_columns(net, apply, columns_first):
    x = net.x("n", "s", 3)
    n, s = sym("n"), sym("s")
    rows = net.add("Reshape", counting(net, x, 0), shape=(n, 1, 1))
    columns = net.add("Reshape", counting(net, x, 1), shape=(1, s, 1))
    if columns_first:
        rows, columns = (
            net.add("Reshape", v, shape=sh) for v, sh in ((rows, (1, n, 1)), (columns, (s, 1, 1)))
        )
    shape = (s, n, 1) if columns_first else (n, s, 1)
    tuples = net.add(
        "Concat", *(net.add("Expand", v, shape=shape) for v in (rows, columns)), axis=-1
    )
    net.mark_output(net.add("Exp", net.add("GatherND", x, tuples)), "y")
    assert ("GatherND" in apply(net)[0]) is columns_first


@pytest.mark.parametrize("factor", [1, -1])
def test_tuples_that_count_down_stay_a_gather(net, apply, factor):
    x = net.x("n", 3)
    rows = net.add(
        "Mul", net.add("Reshape", counting(net, x, 0), shape=(sym("n"), 1)), net.c(factor, np.int64)
    )
    net.mark_output(net.add("Exp", net.add("GatherND", x, rows)), "y")
    assert ("GatherND" in apply(net)[0]) is (factor == -1)


def test_pairs_of_a_symmetric_product(net, apply):
    """Recommendation models take the lower triangle of a product by constant tuples, transposed
    there and back.
    """
    x = net.x("n", 4, 6)
    product = net.add("MatMul", x, net.add("Transpose", x, perm=(0, 2, 1)))
    pairs = np.stack(np.tril_indices(4, -1), axis=1)
    y = net.add("GatherND", net.add("Transpose", product, perm=(1, 2, 0)), net.c(pairs, np.int64))
    net.mark_output(net.add("Transpose", y, perm=(1, 0)), "y")
    assert apply(net)[0] == ["Transpose", "MatMul", "Reshape", "Gather"]


@pytest.mark.parametrize("bound", [0, 1])
def test_counting_from_zero_is_never_negative(net, apply, bound):
    x = net.x("n", "s")
    keep = net.add("GreaterOrEqual", counting(net, x, 1), net.c(bound, np.int64))
    net.mark_output(net.add("Where", keep, x, net.c(0)), "y")
    assert ("GreaterOrEqual" in "".join(apply(net)[0])) is (bound == 1)


def rolled(net, x, at, axis):
    size = x.spec.shape[axis]
    parts = cut(net, x, at, size - at, axis=axis), cut(net, x, 0, at, axis=axis)
    return net.add("Concat", *parts, axis=axis)


def test_what_is_cut_and_joined_the_other_way_round_is_rolled_once(net, apply):
    y = rolled(net, rolled(net, net.x("n", 7, 5), 2, 1), 4, 2)
    net.mark_output(net.add("Softmax", y), "y")
    kinds, out, _ = apply(net, "roll", "roll_twice")
    assert kinds == ["Roll", "Softmax"]
    assert (out.nodes[0].attrs.axes, out.nodes[0].attrs.begins) == ((1, 2), (2, 4))


def test_rolls_along_one_axis_stay_two(net, apply):
    y = net.add(
        "Roll", net.add("Roll", net.x(2, 5), axes=(1,), begins=(2,)), axes=(-1,), begins=(1,)
    )
    net.mark_output(y, "y")
    assert apply(net, "roll_twice")[0] == ["Roll", "Roll"]


@pytest.mark.parametrize("case", ["in order", "a gap", "another axis", "backwards", "other rows"])
def test_other_parts_are_joined(net, apply, case):
    x = net.x(2, 6, 6)
    last, first, axis = cut(net, x, 2, 4), cut(net, x, 0, 2), 1
    if case == "in order":
        last, first = first, last
    elif case == "a gap":
        last = cut(net, x, 3, 3)
    elif case == "another axis":
        last, first, axis = cut(net, x, 0, 6), cut(net, x, 0, 6), 2
    elif case == "backwards":
        last = cut(net, x, 5, 4, -1)
    else:
        last = cut(net, cut(net, x, 1, 5, axis=2), 2, 4)
        first = cut(net, cut(net, x, 0, 5, axis=2), 0, 2)
    net.mark_output(net.add("Concat", last, first, axis=axis), "y")
    assert "Roll" not in apply(net)[0]


def test_a_gather_beyond_its_axis_stays(net):
    """Running tells of the index."""
    x = net.x("n", 3)
    at = net.add("Dims", values=(x.spec.shape[0],), shape=(1,))
    net.mark_output(net.add("Gather", x, at, axis=0), "y")
    assert not fuse(net, all_rules())[1].counts
