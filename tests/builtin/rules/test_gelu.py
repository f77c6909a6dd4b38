"""Activations that models spell out."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType


def halved(net, x, inner, order):
    half = net.c(0.5)
    if order == "half first":
        return net.add("Mul", net.add("Mul", half, x), inner)
    if order == "half last":
        return net.add("Mul", net.add("Mul", x, inner), half)
    return net.add("Mul", net.add("Mul", inner, half), x)


ORDERS = ["half first", "half last", "half inside"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("layer", "number"), [("Div", 2**0.5), ("Mul", 0.5**0.5), ("Div", 1.4142), ("Mul", 0.70711)]
)
def test_by_erf(net, apply, order, layer, number):
    x = net.x("n", 7)
    e = net.add("Add", net.c(1), net.add("Erf", net.add(layer, x, net.c(number))))
    net.mark_output(halved(net, x, e, order), "y")
    kinds, out, _ = apply(net, "gelu")
    assert kinds == ["Gelu"]
    assert out.nodes[0].attrs.approximate == "none"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("layer", "number"), [("Div", 2**0.5), ("Mul", 0.5**0.5)])
def test_by_erf_in_16_bits(net, apply, dtype, layer, number):
    """There the number is further from what it stands for than by four digits."""
    x, t = net.x("n", 7, dtype=dtype), DType(dtype).numpy
    e = net.add("Add", net.c(1, t), net.add("Erf", net.add(layer, x, net.c(number, t))))
    net.mark_output(net.add("Mul", net.add("Mul", x, e), net.c(0.5, t)), "y")
    kinds, *_ = apply(net, "gelu", rtol=2e-2)
    assert kinds == ["Gelu"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_by_tanh_in_16_bits(net, apply, dtype):
    x, t = net.x("n", 7, dtype=dtype), DType(dtype).numpy
    cubed = net.add("Mul", net.add("Pow", x, net.c(3, t)), net.c(0.044715, t))
    e = net.add("Tanh", net.add("Mul", net.add("Add", x, cubed), net.c(0.7978845608, t)))
    net.mark_output(
        net.add("Mul", net.add("Mul", x, net.c(0.5, t)), net.add("Add", e, net.c(1, t))), "y"
    )
    assert apply(net, "gelu_tanh", rtol=2e-2)[0] == ["Gelu"]


@pytest.mark.parametrize(
    ("layer", "number"), [("Div", 1.5), ("Mul", 1.4142135), ("Div", 0.70710678)]
)
def test_another_number_is_no_gelu(net, apply, layer, number):
    x = net.x("n", 7)
    e = net.add("Add", net.add("Erf", net.add(layer, x, net.c(number))), net.c(1))
    net.mark_output(halved(net, x, e, "half first"), "y")
    assert "Gelu" not in apply(net)[0][0]


def test_a_number_of_higher_rank_is_no_gelu(net, apply):
    x = net.x("n", 7)
    e = net.add("Add", net.c(1), net.add("Erf", net.add("Div", x, net.c(2**0.5))))
    net.mark_output(net.add("Mul", net.add("Mul", x, net.c([[[0.5]]])), e), "y")
    assert "Gelu" not in apply(net)[0][0]


def test_another_tensor_is_no_gelu(net, apply):
    x, z = net.x("n", 7), net.x("n", 7, name="z")
    e = net.add("Add", net.add("Erf", net.add("Div", x, net.c(2**0.5))), net.c(1))
    net.mark_output(halved(net, z, e, "half first"), "y")
    assert "Gelu" not in apply(net)[0][0]


def cube(net, x, how):
    if how == "power":
        return net.add("Pow", x, net.c(3))
    return net.add("Mul", x, net.add("Mul", x, x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", ["power", "product"])
def test_by_tanh(net, apply, order, how):
    x = net.x("n", 7)
    inner = net.add("Add", x, net.add("Mul", net.c(0.044715), cube(net, x, how)))
    t = net.add("Add", net.add("Tanh", net.add("Mul", inner, net.c(0.7978845608))), net.c(1))
    net.mark_output(halved(net, x, t, order), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Gelu"]
    assert out.nodes[0].attrs.approximate == "tanh"


def test_by_tanh_factored(net, apply):
    x = net.x("n", 7)
    square = net.add("Mul", net.add("Mul", x, net.c(0.044715)), x)
    inner = net.add("Mul", net.add("Mul", x, net.c(0.7978845608)), net.add("Add", net.c(1), square))
    t = net.add("Add", net.add("Tanh", inner), net.c(1))
    net.mark_output(halved(net, x, t, "half first"), "y")
    assert apply(net)[0] == ["Gelu"]


@pytest.mark.parametrize(("cubic", "factor"), [(0.05, 0.79788), (0.044715, 0.8)])
def test_other_numbers_are_no_gelu(net, apply, cubic, factor):
    x = net.x("n", 7)
    inner = net.add("Add", x, net.add("Mul", net.c(cubic), cube(net, x, "power")))
    t = net.add("Add", net.add("Tanh", net.add("Mul", inner, net.c(factor))), net.c(1))
    net.mark_output(halved(net, x, t, "half first"), "y")
    assert "Gelu" not in apply(net)[0][0]


def test_a_part_that_others_read_stays(net, apply):
    x = net.x("n", 7)
    e = net.add("Erf", net.add("Div", x, net.c(2**0.5)))
    net.mark_output(net.add("Softmax", e), "p")
    net.mark_output(halved(net, x, net.add("Add", e, net.c(1)), "half first"), "y")
    kinds, _, trace = apply(net, "gelu")
    assert "Gelu" not in kinds
    assert [m.rule for m in trace.near_misses] == ["tactix.gelu"]


@pytest.mark.parametrize("alpha", [None, 1.702, -1.0])
def test_swish(net, apply, alpha):
    x = net.x("n", 7)
    inner = x if alpha is None else net.add("Mul", net.c(alpha), x)
    net.mark_output(net.add("Mul", net.add("Sigmoid", inner), x), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Swish"]
    assert out.nodes[0].attrs.alpha == pytest.approx(1.0 if alpha is None else alpha)


def test_a_gate_is_no_swish(net, apply):
    x, z = net.x("n", 7), net.x("n", 7, name="z")
    net.mark_output(net.add("Mul", net.add("Sigmoid", z), x), "y")
    net.mark_output(
        net.add("Mul", x, net.add("Sigmoid", net.add("Mul", x, net.c(np.arange(7))))), "w"
    )
    assert "Swish" not in "".join(apply(net)[0])
