"""Activations above Transposes, and reductions of what a Transpose moves."""

from __future__ import annotations

import itertools

import pytest


def image(net, *more):
    """A convolution's result."""
    x = net.x("n", 4, 5, 5)
    return net.add("Convolution", x, net.random(8, 4, 3, 3), *more, pads=(1, 1, 1, 1))


@pytest.mark.parametrize("through", ["transpose", "reshape and transpose"])
def test_an_activation_joins_the_kernel_whose_result_is_moved(net, apply, through):
    y = image(net)
    n = y.spec.shape[0]
    if through == "transpose":
        y = net.add("Transpose", y, perm=(0, 2, 3, 1))
    else:
        y = net.add("Transpose", net.add("Reshape", y, shape=(n, 8, 25)), perm=(0, 2, 1))
    y = net.add("Softmax", net.add("Tanh", net.add("Gelu", y)))
    net.mark_output(y, "y")
    kinds = apply(net)[0]
    assert kinds[0] == "Convolution+Gelu+Tanh"
    assert sorted(kinds[1:]) in (["Reshape", "Softmax", "Transpose"], ["Softmax", "Transpose"])


@pytest.mark.parametrize("case", ["read twice", "a factor", "no kernel before"])
def test_an_activation_stays_where_nothing_takes_it(net, apply, case):
    x = net.x("n", 8, 5, 5) if case == "no kernel before" else image(net)
    y = net.add("Transpose", x, perm=(0, 2, 3, 1))
    z = net.add("Mul", y, net.c(3)) if case == "a factor" else net.add("Tanh", y)
    net.mark_output(net.add("Softmax", z), "z")
    if case == "read twice":
        net.mark_output(net.add("Softmax", y, axis=1), "y")
    assert "activation_above_transpose" not in str(
        apply(net, "activation_above_transpose")[2].counts
    )


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(1,), (0, 2), (-1,), ()])
def test_reductions_read_what_is_not_moved(net, apply, perm, keepdims, axes):
    y = net.add("Transpose", net.x("n", 3, 5), perm=perm)
    net.mark_output(net.add("ReduceMax", y, axes=axes, keepdims=keepdims), "y")
    kinds = apply(net, "reduction_of_transpose")[0]
    assert kinds[0] == "ReduceMax"


def test_a_transpose_that_others_read_is_made_once(net, apply):
    y = net.add("Transpose", net.x("n", 3, 5), perm=(0, 2, 1))
    net.mark_output(net.add("ReduceSum", y, axes=(1,), keepdims=False), "s")
    net.mark_output(net.add("Softmax", y), "p")
    assert apply(net, "reduction_of_transpose")[0] == ["Transpose", "ReduceSum", "Softmax"]
