"""What convolutions take into their constants."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import conv


def normalised(net, x, channels):
    parameters = [net.random(channels) for _ in range(3)]
    return net.add(
        "BatchNormalization", x, *parameters, net.c(net.rng.random(channels) + 0.5), epsilon=1e-3
    )


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", ["Convolution", "ConvTranspose"])
def test_normalisation_joins(net, apply, layer, bias, group):
    w = net.random(6, 12 // group if layer == "ConvTranspose" else 6 // group, 3, 2)
    channels = 12 if layer == "ConvTranspose" else 6
    y = net.add(
        layer,
        net.x("n", 6, "h", 5),
        w,
        *([net.random(channels)] if bias else []),
        group=group,
        pads=(1, 0, 1, 1),
    )
    net.mark_output(normalised(net, y, channels), "y")
    assert apply(net)[0] == [layer]


@pytest.mark.parametrize("rank", [3, 5])
def test_any_number_of_axes(net, apply, rank):
    y = net.add(
        "Convolution", net.x("n", 2, *[4] * (rank - 2)), net.random(3, 2, *[2] * (rank - 2))
    )
    net.mark_output(normalised(net, y, 3), "y")
    assert apply(net)[0] == ["Convolution"]


@pytest.mark.parametrize("layer", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("convolution", ["Convolution", "ConvTranspose"])
def test_integers_take_in_nothing(net, apply, convolution, layer):
    """Constants behind a convolution of integers: what joins is computed in floats."""
    w = net.c(np.arange(8).reshape(2, 2, 2, 1) + 1, np.int32)
    y = net.add(convolution, net.x("n", 2, 4, 3, dtype="i32"), w)
    net.mark_output(net.add(layer, y, net.c([[[2]], [[3]]], np.int32)), "y")
    assert apply(net)[0] == [convolution, layer]


@pytest.mark.parametrize("layer", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1)])
def test_constants_per_channel_join(net, apply, layer, shape):
    y = net.add("Convolution", net.x("n", 2, 4, 3), net.random(3, 2, 1, 1))
    c = net.c(net.rng.random(shape) + 0.5)
    net.mark_output(net.add(layer, y, c), "y")
    kinds, out, trace = apply(net)
    assert kinds == ["Convolution"]
    assert trace.counts[f"tactix.{layer.lower()}_into_conv"] == 1
    assert len(out.nodes[0].inputs) == 3


@pytest.mark.parametrize(
    ("layer", "shape"),
    [("Mul", (3,)), ("Add", (4, 1)), ("Mul", (2, 1, 1, 1)), ("Add", (1, 3, 4, 3))],
)
def test_other_constants_are_an_epilogue_at_most(net, apply, layer, shape):
    y = net.add("Convolution", net.x(2, 2, 4, 3), net.random(3, 2, 1, 1))
    net.mark_output(net.add(layer, y, net.random(*shape)), "y")
    assert apply(net)[0] == [f"Convolution+{layer}"]


def test_the_quotient_by_a_convolution_is_no_factor(net, apply):
    y = net.add("Convolution", net.x("n", 2, 4), net.random(3, 2, 1))
    net.mark_output(net.add("Sub", net.c(1), y), "y")
    assert apply(net)[0] == ["Convolution+Sub"]


def test_a_convolution_that_others_read_keeps_its_numbers(net, apply):
    y = net.add("Convolution", net.x("n", 2, 4), net.random(3, 2, 1))
    net.mark_output(net.add("Softmax", y), "p")
    net.mark_output(normalised(net, y, 3), "y")
    kinds, _, trace = apply(net)
    assert sorted(kinds) == ["Convolution", "Mul+Add", "Softmax"]
    assert "tactix.norm_into_conv" in {m.rule for m in trace.near_misses}


def test_weights_that_only_running_gives(net, apply):
    y = net.add("Convolution", net.x("n", 2, 4), net.x(3, 2, 1, name="w"))
    net.mark_output(normalised(net, y, 3), "y")
    assert apply(net)[0] == ["Convolution+Mul+Add"]


@pytest.mark.parametrize("shape", [("n", 4), ("n", 4, 3, "w")])
def test_normalisation_elsewhere_is_pointwise(net, apply, shape):
    net.mark_output(normalised(net, net.x(*shape), 4), "y")
    assert apply(net)[0] == ["Mul+Add"]


@pytest.mark.parametrize(
    ("pads", "mode", "value", "joins"),
    [((0, 0, 1, 2, 0, 0, 3, 0), "constant", 0.0, True), ((0, 0, 1, 1, 0, 0, 1, 1), "constant", 1.0, False),
     ((0, 0, 1, 1, 0, 0, 1, 1), "edge", 0.0, False), ((0, 0, -1, 1, 0, 0, 1, 1), "constant", 0.0, False),
     ((1, 0, 0, 0, 0, 0, 0, 0), "constant", 0.0, False), ((0, 0, 0, 0, 0, 1, 0, 0), "constant", 0.0, False)],
)  # fmt: skip
def test_zero_padding_joins(net, apply, pads, mode, value, joins):
    y = net.add("Pad", net.x("n", 2, 6, 5), pads=pads, mode=mode, value=value)
    channels = 2 + pads[1] + pads[5]
    net.mark_output(
        net.add("Convolution", y, net.random(3, channels, 2, 2), pads=(0, 1, 0, 0), strides=(2, 1)),
        "y",
    )
    kinds, out, _ = apply(net)
    assert kinds == (["Convolution"] if joins else ["Pad", "Convolution"])
    assert out.nodes[-1].attrs.pads == ((1, 3, 3, 0) if joins else (0, 1, 0, 0))


def test_half_precision_weights_stay_half(net, apply):
    x = net.x("n", 2, 4, dtype="f16")
    y = net.add("Convolution", x, net.c(net.rng.standard_normal((3, 2, 1)), np.float16))
    net.mark_output(net.add("Mul", y, net.c([[2.0], [0.5], [4.0]], np.float16)), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["Convolution"]
    assert {v.spec.dtype.value for v in out.constants} == {"f16"}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
@pytest.mark.parametrize("shape", [("n", 4), ("n", 4, 5), (2, 4, "h", 3)])
def test_statistics_that_only_running_tells(net, apply, dtype, shape):
    parameters = [net.x(4, name=c, dtype=dtype) for c in "abc"]
    variance = net.add("Exp", net.x(4, name="d", dtype=dtype))
    x = net.x(*shape, dtype=dtype)
    y = net.add("BatchNormalization", x, *parameters, variance, epsilon=1e-3)
    net.mark_output(y, "y")
    kinds = apply(net, rtol=2e-3 if dtype == "f16" else 2e-5)[0]
    assert not any("BatchNormalization" in k for k in kinds)


def test_statistics_of_another_dtype(net, apply):
    x, parameters = net.x(2, 4, 3, dtype="f16"), [net.x(4, name=c) for c in "abc"]
    variance = net.add("Exp", net.x(4, name="d"))
    net.mark_output(net.add("BatchNormalization", x, *parameters, variance), "y")
    kinds = apply(net, rtol=2e-3)[0]
    assert not any("BatchNormalization" in k for k in kinds)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("factor", [1e-6, 3e4])
def test_what_half_weights_cannot_hold_stays_apart(net, transposed, factor):
    layer = "ConvTranspose" if transposed else "Convolution"
    w = net.c(net.rng.standard_normal((4, 4, 3)) * 10, np.float16)
    y = net.add(layer, net.x("n", 4, 9, dtype="f16"), w)
    c = np.ones((4, 1))
    c[2] = factor
    net.mark_output(net.add("Mul", y, net.c(c, np.float16)), "y")
    out, _ = fuse(net, conv.RULES)
    assert [n.layer.name for n in out.nodes] == [layer, "Mul"]


def test_a_normalisation_that_halves_cannot_hold_is_computed_in_float32(net):
    scale, bias, mean, variance = (np.ones(4), np.zeros(4), np.zeros(4), np.ones(4))
    statistics = [net.c(v, np.float16) for v in (scale * 6e-5, bias, mean, variance * 100)]
    w = net.c(net.rng.standard_normal((4, 4, 3)), np.float16)
    y = net.add("Convolution", net.x("n", 4, 9, dtype="f16"), w)
    net.mark_output(net.add("BatchNormalization", y, *statistics), "y")
    out, trace = fuse(net, conv.RULES)
    assert "tactix.norm_into_conv" not in trace.counts
    assert "tactix.norm_of_tensors" in trace.counts
    assert out.nodes[0].inputs[1].array.dtype == np.float16
