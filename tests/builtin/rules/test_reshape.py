"""Reshape and Transpose: neighbours become one, a Reshape sinks below pointwise layers and
products.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules
from tactix_sdk.evaluate import evaluate

N = sym("n")


@pytest.mark.parametrize("first", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("second", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_two_transposes_are_one_or_none(net, apply, first, second):
    y = net.add("Transpose", net.add("Transpose", net.x("n", 3, 5), perm=first), perm=second)
    net.mark_output(net.add("Exp", y), "y")
    kinds = apply(net, "transpose_twice", "identity_transpose")[0]
    together = tuple(first[p] for p in second)
    assert kinds == (["Exp"] if together == (0, 1, 2) else ["Transpose", "Exp"])


@pytest.mark.parametrize(
    ("shape", "perm", "moves"),
    [(("n", 1, 5), (1, 0, 2), False), (("n", 1, 5), (0, 2, 1), False), (("n", 2, 5), (1, 0, 2), True),
     ((1, "n", 1, 5), (2, 1, 3, 0), False), ((1, "n", 1, 5), (0, 3, 2, 1), True)],
)  # fmt: skip
def test_moving_ones_is_reshaping(net, apply, shape, perm, moves):
    net.mark_output(net.add("Transpose", net.x(*shape), perm=perm), "y")
    assert apply(net, "transpose_of_ones")[0] == ["Transpose" if moves else "Reshape"]


@pytest.mark.parametrize(
    ("shape", "perm", "kept"), [((1, 6, 5), (0, 2, 1), 3), ((1, 6, 5), (2, 1, 0), 2)]
)
def test_one_sample_stays_where_channels_come_back(net, apply, shape, perm, kept):
    """Kernels know blocks of channels by the axis of samples before them."""
    y = net.add("Transpose", net.x(*shape), perm=perm)
    net.mark_output(net.add("Reshape", y, shape=(30,)), "y")
    out = apply(net, "transpose_without_ones")[1]
    (turn,) = (n for n in out.nodes if n.layer.name == "Transpose")
    assert len(turn.attrs.perm) == kept


def test_keys_of_attention(net, apply):
    """What torch's exporter makes of ``k.transpose(-2, -1)``."""
    k = net.add("Transpose", net.x("n", "s", 4, 8), perm=(0, 2, 1, 3))
    y = net.add("Reshape", k, shape=(N * 4, sym("s"), 8))
    y = net.add("Transpose", y, perm=(0, 2, 1))
    net.mark_output(net.add("Reshape", y, shape=(N, 4, 8, sym("s"))), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Transpose"]
    assert out.nodes[0].attrs.perm == (0, 2, 3, 1)


def test_other_splits_of_the_same_size_are_left_alone(net, apply):
    y = net.add("Reshape", net.x("n", 4, 6, 2), shape=(N * 4, 6, 2))
    y = net.add("Transpose", y, perm=(0, 2, 1))
    net.mark_output(net.add("Reshape", y, shape=(N, 8, 3, 2)), "y")
    assert apply(net)[0] == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_merging_after_and_before_a_transpose(net, apply, order):
    shape = ("n", 3, 2, 5)
    y = net.add("Transpose", net.x(*shape), perm=order)
    first, second, *rest = y.spec.shape
    net.mark_output(net.add("Reshape", y, shape=(first * second, *rest)), "y")
    kinds, _, trace = apply(net, "transpose_below_reshape")
    adjacent = order[1] == order[0] + 1
    assert kinds == (["Reshape", "Transpose"] if adjacent else ["Transpose", "Reshape"])
    assert bool(trace.firings) is adjacent


def test_linear_layers_between_reshapes(net, apply):
    """Row-wise layers as the exporter flattens them, with a residual and heads merged on the way
    in.
    """
    x, z = net.x("n", "s", 2, 3), net.x("n", "s", 5, name="z")
    y = net.add("Reshape", x, shape=(N * sym("s"), 6))
    y = net.add("Gemm", y, net.random(6, 5), net.random(5))
    y = net.add("Reshape", y, shape=(N, sym("s"), 5))
    net.mark_output(net.add("Add", y, z), "y")
    assert apply(net)[0] == ["Reshape", "MatMul+Add+Add"]


def test_an_activation_between_reshapes(net, apply):
    y = net.add("Reshape", net.x("n", "s", 6), shape=(N * sym("s"), 6))
    y = net.add("Relu", net.add("Gemm", y, net.random(6, 5), net.random(5)))
    net.mark_output(net.add("Reshape", y, shape=(N, sym("s"), 5)), "y")
    assert apply(net)[0] == ["MatMul+Add+Relu"]


def test_flattening_all_but_the_batch_stays_before_the_product(net, apply):
    y = net.add("Reshape", net.x("n", 2, 3, 1), shape=(N, 6))
    net.mark_output(net.add("MatMul", y, net.random(6, 5)), "y")
    assert apply(net)[0] == ["Reshape", "MatMul"]


def test_a_reshape_after_a_convolution_lets_the_activation_through(net, apply):
    y = net.add("Convolution", net.x("n", 2, 5), net.random(3, 2, 2))
    y = net.add("Relu", net.add("Reshape", y, shape=(N, 12)))
    net.mark_output(net.add("MatMul", y, net.random(12, 2)), "y")
    assert apply(net)[0] == ["Convolution+Relu", "Reshape", "MatMul"]


@pytest.mark.parametrize(
    ("operand", "sinks"), [((4,), True), ((1, 1, 1), True), ((3, 1), False), ((3, 4), False)]
)
def test_operands_must_mean_the_same_before_the_reshape(net, apply, operand, sinks):
    y = net.add("MatMul", net.x("n", 3, 2), net.random(2, 4))
    y = net.add("Reshape", y, shape=(N, 3, 1, 4) if operand == (1, 1, 1) else (N * 3, 4))
    y = net.add("Add", y, net.random(*operand)) if len(operand) != 2 else _grouped(net, y, operand)
    net.mark_output(net.add("Softmax", y), "y")
    assert bool(apply(net, "reshape_below_pointwise")[2].firings) is sinks


def _grouped(net, y, operand):
    rows = net.add("Reshape", y, shape=(N, 1, 3, 4))
    return net.add("Add", rows, net.random(2, *operand))


def test_two_reshapes_of_the_same_shape_sink_together(net, apply):
    a, b = (net.add("MatMul", net.x("n", 3, 2, name=k), net.random(2, 4)) for k in "ab")
    a, b = (net.add("Reshape", v, shape=(N * 3, 4)) for v in (a, b))
    net.mark_output(net.add("Softmax", net.add("Add", a, b)), "y")
    assert apply(net)[0] == ["MatMul", "MatMul+Add", "Reshape", "Softmax"]


def test_a_reshape_that_others_read_stays(net, apply):
    y = net.add("Reshape", net.add("MatMul", net.x("n", 3, 2), net.random(2, 4)), shape=(N * 3, 4))
    net.mark_output(net.add("Add", net.add("Neg", y), net.add("Softmax", y)), "y")
    assert apply(net, "reshape_below_pointwise")[0][:2] == ["MatMul", "Reshape"]


def test_empty_batches(net):
    y = net.add("Reshape", net.x("n", "s", 6), shape=(N * sym("s"), 6))
    y = net.add("Reshape", net.add("MatMul", y, net.random(6, 5)), shape=(N, sym("s"), 5))
    net.mark_output(y, "y")
    out, _ = fuse(net, all_rules())
    assert evaluate(out, {"x": np.zeros((0, 3, 6), np.float32)})["y"].shape == (0, 3, 5)


def test_a_sum_with_another_view_joins_the_kernel_before_the_reshape(net, apply):
    x = net.add("Transpose", net.x(2, 3, 5, 2), perm=(0, 2, 1, 3))
    x = net.add("Reshape", x, shape=(2, 5, 6))
    y = net.add("MatMul", net.x(10, 4, name="y"), net.random(4, 6))
    y = net.add("Add", net.add("Reshape", y, shape=(2, 5, 6)), x)
    net.mark_output(net.add("Softmax", y), "y")
    net.mark_output(net.add("Softmax", x, axis=1), "z")
    assert "MatMul+Add" in apply(net)[0]
