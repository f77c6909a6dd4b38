"""Pads before pooling: which become its own, and which stay."""

from __future__ import annotations

import pytest

INFINITE = -float("inf")


def padded(net, x, value=0.0, pads=(1, 0, 1, 2)):
    around = (0, 0, *pads[:2], 0, 0, *pads[2:])
    return net.add("Pad", x, pads=around, mode="constant", value=value)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("dilations", [(), (1, 2)])
def test_zeros_around_an_activation(net, apply, pool, dilations):
    x = net.add("Sigmoid", net.x("n", 3, 7, 8))
    y = net.add(pool, padded(net, x), kernel_shape=(3, 3), strides=(2, 1), dilations=dilations)
    net.mark_output(y, "y")
    kinds, out, _ = apply(net, "pad_into_max_pool", "pad_into_mean_pool")
    assert kinds == ["Sigmoid", pool]
    assert out.nodes[1].attrs.pads == (1, 0, 1, 2)


def test_what_never_wins_around_anything(net, apply):
    x = net.x("n", 3, "h", "h")
    y = net.add("MaxPool", padded(net, x, INFINITE), kernel_shape=(3, 3), pads=(0, 1, 1, 0))
    net.mark_output(y, "y")
    kinds, out, _ = apply(net, "pad_into_max_pool")
    assert kinds == ["MaxPool"]
    assert out.nodes[0].attrs.pads == (1, 1, 2, 2)


def test_borders_of_a_mean_that_counts_its_own(net, apply):
    y = net.add(
        "AveragePool", padded(net, net.x("n", 3, 7, 8)), kernel_shape=(3, 4),
        pads=(1, 1, 1, 1), count_include_pad=True,
    )  # fmt: skip
    net.mark_output(y, "y")
    assert apply(net, "pad_into_mean_pool")[0] == ["AveragePool"]


@pytest.mark.parametrize(
    ("pool", "value", "pads", "more"),
    [
        ("MaxPool", 0.0, (1, 1, 1, 1), {}),
        ("MaxPool", INFINITE, (3, 0, 0, 0), {}),
        ("MaxPool", INFINITE, (1, 1, 1, 1), {"ceil_mode": True}),
        ("MaxPool", INFINITE, (-1, 0, 0, 0), {}),
        ("AveragePool", 1.0, (1, 1, 1, 1), {}),
        ("AveragePool", 0.0, (1, 1, 1, 1), {"pads": (1, 1, 1, 1)}),
    ],
)
def test_others_stay(net, apply, pool, value, pads, more):
    x = net.x("n", 3, 7, 8)
    net.mark_output(net.add(pool, padded(net, x, value, pads), kernel_shape=(3, 3), **more), "y")
    assert apply(net, "pad_into_max_pool", "pad_into_mean_pool")[0] == ["Pad", pool]


def test_channels_stay(net, apply):
    x = net.add("Relu", net.x("n", 3, 7, 8))
    y = net.add("Pad", x, pads=(0, 1, 1, 1, 0, 0, 1, 1), mode="constant", value=0.0)
    net.mark_output(net.add("MaxPool", y, kernel_shape=(3, 3)), "y")
    assert apply(net, "pad_into_max_pool")[0] == ["Relu", "Pad", "MaxPool"]
