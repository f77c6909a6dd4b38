"""Convolutions of single pixels over images that tokens are: which become products of tokens."""

from __future__ import annotations

import pytest

RULES = ("pixels_of_tokens",)


def mixed(net, y, channels=6, kernel=None, bias=True, **attrs):
    rank = y.spec.rank - 2
    w = net.random(channels, y.spec.shape[1] // attrs.get("group", 1), *(kernel or (1,) * rank))
    return net.add("Convolution", y, w, *([net.random(channels)] if bias else []), **attrs)


@pytest.mark.parametrize("bias", [False, True])
def test_a_sequence(net, apply, bias):
    y = net.add("Transpose", net.x("n", "t", 8), perm=(0, 2, 1))
    net.mark_output(mixed(net, y, bias=bias), "y")
    assert apply(net, *RULES)[0] == ["MatMul", *["Add"] * bias, "Transpose"]


def test_an_image_with_channels_last(net, apply):
    y = net.add("Transpose", net.x("n", 3, "w", 8), perm=(0, 3, 1, 2))
    net.mark_output(mixed(net, y), "y")
    assert apply(net, *RULES)[0] == ["MatMul", "Add", "Transpose"]


@pytest.mark.parametrize(
    "conv",
    [
        {"kernel": (3,)},
        {"strides": (2,)},
        {"pads": (0, 1)},
        {"group": 2},
        {"channels": 9},
    ],
)
def test_others_stay(net, apply, conv):
    y = net.add("Transpose", net.x("n", 5, 8), perm=(0, 2, 1))
    net.mark_output(mixed(net, y, **conv), "y")
    assert apply(net, *RULES)[0] == ["Transpose", "Convolution"]


def test_another_order_of_axes_stays(net, apply):
    y = net.add("Transpose", net.x("n", 5, 7, 8), perm=(0, 3, 2, 1))
    net.mark_output(mixed(net, y), "y")
    assert apply(net, *RULES)[0] == ["Transpose", "Convolution"]


def test_moved_tokens_with_another_reader_stay(net, apply):
    y = net.add("Transpose", net.x("n", 5, 8), perm=(0, 2, 1))
    net.mark_output(mixed(net, y), "y")
    net.mark_output(net.add("Softmax", y), "z")
    assert sorted(apply(net, *RULES)[0]) == ["Convolution", "Softmax", "Transpose"]


def test_tokens_that_are_shaped_as_an_image(net, apply):
    """Other rules leave them as tokens with axes for rows and columns, which are moved."""
    x = net.x("n", 12, 8)
    y = net.add("Transpose", x, perm=(0, 2, 1))
    y = net.add("Reshape", y, shape=(x.spec.shape[0], 8, 3, 4))
    net.mark_output(mixed(net, y), "y")
    kinds = "+".join(apply(net)[0])
    assert "MatMul" in kinds
    assert "Convolution" not in kinds
