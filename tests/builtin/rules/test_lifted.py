"""Activations above Transposes, and reductions of what a Transpose moves."""

from __future__ import annotations

import itertools

import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules, graphics_rules


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


def moved_product(net, columns=8):
    """A product of tokens, moved to (n, columns, 3, 3)."""
    x = net.add("MatMul", net.x("n", 3, 3, 4, name=f"x{len(net.inputs)}"), net.random(4, columns))
    return net.add("Transpose", x, perm=(0, 3, 1, 2))


@pytest.mark.parametrize("layer", ["Add", "Sub", "Mul"])
def test_what_is_moved_alike_is_joined_before(net, apply, layer):
    y = net.add(layer, moved_product(net), moved_product(net))
    net.mark_output(net.add("Softmax", y), "y")
    assert sorted(apply(net)[0]) == ["MatMul", f"MatMul+{layer}", "Softmax", "Transpose"]


@pytest.mark.parametrize("case", ["another way", "a broadcast", "both are read"])
def test_what_is_not_moved_alike_stays(net, apply, case):
    x, y = moved_product(net), moved_product(net, 1 if case == "a broadcast" else 8)
    if case == "another way":
        y = net.add("Transpose", net.add("Tanh", net.x("n", 3, 3, 8, name="y")), perm=(0, 3, 2, 1))
    if case == "both are read":
        net.mark_output(net.add("Softmax", x), "x")
        net.mark_output(net.add("Softmax", y), "z")
    net.mark_output(net.add("Softmax", net.add("Add", x, y)), "y")
    assert "tactix.moved_alike" not in apply(net)[2].counts


@pytest.mark.parametrize("convolved", [True, False])
def test_an_image_of_a_convolution_joins_tokens_on_a_gpu(net, convolved):
    image = net.x("n", 8, 3, 3, name="image")
    if convolved:
        image = net.add("Convolution", image, net.random(8, 8, 1, 1))
    net.mark_output(net.add("Softmax", net.add("Add", moved_product(net), image)), "y")
    net.mark_output(net.add("Softmax", image), "z")
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    assert ("MatMul+Add" in names(out)) == convolved
    compare(net, out, arrays(net, 3, (4,)))
    out, _ = fuse(net, all_rules())
    assert "MatMul+Add" not in names(out)
