"""Normalisations that models spell out."""

from __future__ import annotations

import numpy as np
import pytest


def spelt(net, x, axes, *, centred=True, power=True, divide="Div", keepdims=True, epsilon=1e-5):
    """The layers one by one."""
    top = net.add("Sub", x, net.add("ReduceMean", x, axes=axes, keepdims=True)) if centred else x
    square = net.add("Pow", top, net.c(2)) if power else net.add("Mul", top, top)
    mean = net.add("ReduceMean", square, axes=axes, keepdims=keepdims)
    root = net.add("Sqrt", net.add("Add", mean, net.c(epsilon)))
    if divide == "Div":
        return net.add("Div", top, root)
    if divide == "Reciprocal":
        return net.add("Mul", top, net.add("Reciprocal", root))
    return net.add("Mul", net.add("Div", net.c(1), root), top)


@pytest.mark.parametrize("divide", ["Div", "Reciprocal", "one over"])
@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize(
    ("centred", "layer"), [(True, "LayerNormalization"), (False, "RMSNormalization")]
)
def test_spelt_out(net, apply, centred, layer, power, divide):
    y = spelt(
        net, net.x("n", 4, 6), (-1,), centred=centred, power=power, divide=divide, epsilon=1e-3
    )
    net.mark_output(y, "y")
    kinds, out, _ = apply(net)
    assert kinds == [layer]
    assert (out.nodes[0].attrs.axis, out.nodes[0].attrs.epsilon) == (-1, pytest.approx(1e-3))


def test_over_several_axes(net, apply):
    net.mark_output(spelt(net, net.x("n", 4, 6), (2, 1)), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["LayerNormalization"]
    assert out.nodes[0].attrs.axis == -2


@pytest.mark.parametrize("axes", [(1,), (0, 2), (0,)])
def test_other_axes_stay(net, apply, axes):
    net.mark_output(spelt(net, net.x(3, 4, 6), axes), "y")
    assert "LayerNormalization" not in apply(net)[0]


def test_axes_of_unknown_size_stay(net, apply):
    net.mark_output(spelt(net, net.x(3, "n"), (-1,)), "y")
    assert "LayerNormalization" not in apply(net)[0]


def test_two_different_means_stay(net, apply):
    x = net.x(3, 4, 6)
    top = net.add("Sub", x, net.add("ReduceMean", x, axes=(1, 2), keepdims=True))
    mean = net.add("ReduceMean", net.add("Mul", top, top), axes=(2,), keepdims=True)
    net.mark_output(net.add("Div", top, net.add("Sqrt", net.add("Add", mean, net.c(1e-5)))), "y")
    assert "LayerNormalization" not in apply(net)[0]


@pytest.mark.parametrize("shape", [(6,), (1, 1, 6)])
def test_factor_and_term(net, apply, shape):
    y = spelt(net, net.x("n", 4, 6), (-1,))
    y = net.add("Add", net.random(*shape), net.add("Mul", y, net.random(*shape)))
    net.mark_output(y, "y")
    kinds, out, _ = apply(net)
    assert kinds == ["LayerNormalization"]
    assert [v.spec.shape for v in out.nodes[0].inputs[1:]] == [(6,), (6,)]


def test_a_factor_of_two_axes(net, apply):
    y = net.add("Mul", spelt(net, net.x("n", 4, 6), (1, 2)), net.random(4, 6))
    net.mark_output(y, "y")
    assert apply(net)[0] == ["LayerNormalization"]


@pytest.mark.parametrize("shape", [(), (4, 1), (4, 6)])
def test_other_factors_are_an_epilogue(net, apply, shape):
    net.mark_output(
        net.add("Mul", spelt(net, net.x("n", 4, 6), (-1,)), net.c(np.full(shape, 2.0))), "y"
    )
    assert apply(net)[0] == ["LayerNormalization+Mul"]


def test_one_factor_only(net, apply):
    y = net.add("LayerNormalization", net.x("n", 6), net.random(6))
    net.mark_output(net.add("Mul", y, net.random(6)), "y")
    assert apply(net)[0] == ["LayerNormalization+Mul"]


def test_one_term_only(net, apply):
    y = net.add("LayerNormalization", net.x("n", 6), net.random(6), net.random(6))
    net.mark_output(net.add("Add", y, net.random(6)), "y")
    assert apply(net)[0] == ["LayerNormalization+Add"]


@pytest.mark.parametrize("spatial", [(4, 5), (20,), (2, 3, 4)])
def test_groups_of_channels_are_one_layer(net, apply, spatial):
    x = net.x("n", 6, *spatial)
    y = net.add("Reshape", x, shape=(x.spec.shape[0], 3, int(2 * np.prod(spatial))))
    y = net.add("InstanceNormalization", y, net.random(3), net.random(3), epsilon=1e-3)
    net.mark_output(net.add("Swish", net.add("Reshape", y, shape=x.spec.shape)), "y")
    assert apply(net)[0] == ["GroupNormalization+Swish"]


def test_parts_of_channels_are_no_groups(net, apply):
    x = net.x(2, 6, 4, 5)
    y = net.add("Reshape", x, shape=(2, 4, 30))
    y = net.add("InstanceNormalization", y, net.random(4), net.random(4))
    net.mark_output(net.add("Reshape", y, shape=(2, 6, 4, 5)), "y")
    assert "tactix.group_norm" not in apply(net)[2].counts
