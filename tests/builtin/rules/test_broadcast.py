"""Expanded tensors sink below pointwise layers, or vanish."""

from __future__ import annotations

import numpy as np

from tactix.base.dims import sym
from tactix.base.dtypes import DType


def test_vanishes_beside_a_full_operand(net, apply):
    x, bias = net.x("n", 4, 5), net.x(5, name="bias")
    y = net.add("Add", net.add("Expand", bias, shape=(sym("n"), 4, 5)), x)
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net)[0] == ["Add", "Softmax"]


def test_sinks_through_a_chain_to_the_end(net, apply):
    x = net.x("n", 1, 5)
    y = net.add("Expand", x, shape=(1, 7, 5))
    for layer in ("Exp", "Neg", "Tanh"):
        y = net.add(layer, y)
    net.mark_output(net.add("Softmax", y), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Exp+Neg+Tanh", "Expand", "Softmax"]
    assert [str(d) for d in out.nodes[0].outputs[0].spec.shape] == ["n", "1", "5"]


def test_stays_before_layers_that_need_it(net, apply):
    x = net.x("n", 1)
    net.mark_output(net.add("Softmax", net.add("Expand", x, shape=(sym("n"), 6))), "y")
    assert apply(net)[0] == ["Expand", "Softmax"]


def test_masks(net, apply):
    """All true in a wider shape, and the mask itself: what is left is the mask."""
    keep = net.x("b", 1, 1, "s", name="keep", dtype="bool")
    n, s = sym("b"), sym("s")
    true = net.add("Fill", shape=(1, 1, s, 1), value=1.0, dtype=DType.BOOL)
    both = net.add("And", net.add("Expand", true, shape=(n, 1, s, s)), keep)
    mask = net.add("Where", net.add("Expand", both, shape=(n, 1, s, s)), net.c(0), net.c(-np.inf))
    scores = net.x("b", 2, "s", "s")
    net.mark_output(net.add("Softmax", net.add("Add", scores, mask)), "p")
    assert apply(net)[0] == ["Where+Add", "Softmax"]


def test_one_number_moved_about_is_one_number(net, apply):
    x = net.x(2, "n", 6)
    zeros = net.add("Fill", shape=(4, 6, sym("n")), value=0.0, dtype=DType.FP32)
    zeros = net.add("Transpose", zeros, perm=(0, 2, 1))
    part = net.add("Slice", zeros, begins=(2,), sizes=(2,), axes=(0,), steps=(1,))
    net.mark_output(net.add("Softmax", net.add("Add", x, part)), "y")
    assert apply(net)[0] == ["Softmax"]


def test_a_resized_number_is_one_number(net, apply):
    """A mask that hides nothing, as DETR resizes one."""
    for mode in ("nearest", "linear"):
        y = net.add("Expand", net.c(1), shape=(1, 1, 640, 640))
        y = net.add("Resize", y, sizes=(1, 1, 2, 5), mode=mode)
        net.mark_output(net.add("Mul", net.x("n", 4, 2, 5, name=mode), y), f"y_{mode}")
    assert sorted(apply(net)[0]) == ["Expand", "Mul", "Mul", "Resize"]
