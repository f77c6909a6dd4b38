"""Convolutions of single pixels before images grow: which change places, and which stay."""

from __future__ import annotations

import pytest

RULES = ("pixels_before_resize", "pixels_of_joined_sizes")


def enlarged(net, x, times=2.0, **attrs):
    n, c, *pixels = x.spec.shape
    sizes = (n, c, *(int(d * times) if isinstance(d, int) else d * int(times) for d in pixels))
    scales = (1.0, 1.0, *[times] * len(pixels))
    return net.add("Resize", x, **{"sizes": sizes, "scales": scales, "mode": "linear", **attrs})


def mixed(net, y, channels=8, kernel=(1, 1), bias=True, **attrs):
    w = net.random(channels, y.spec.shape[1] // attrs.get("group", 1), *kernel)
    return net.add("Convolution", y, w, *([net.random(channels)] if bias else []), **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "where", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
def test_an_image_grows_after_its_channels_are_mixed(net, apply, mode, bias, where):
    y = enlarged(net, net.x("n", 32, 3, "w"), mode=mode, coordinate_transformation_mode=where)
    net.mark_output(mixed(net, y, bias=bias), "y")
    kinds, out, _ = apply(net, *RULES)
    assert kinds == ["Convolution", "Resize"]
    assert out.nodes[1].attrs.sizes[1] == 8


def test_weights_that_leave_out_what_is_outside_add_up_to_one_too(net, apply):
    y = enlarged(net, net.x("n", 32, 3, 5), mode="cubic", exclude_outside=True)
    net.mark_output(mixed(net, y), "y")
    assert apply(net, *RULES)[0] == ["Convolution", "Resize"]


@pytest.mark.parametrize("rank", [1, 3])
def test_images_of_other_ranks(net, apply, rank):
    y = enlarged(net, net.x("n", 32, *[4] * rank))
    net.mark_output(mixed(net, y, kernel=(1,) * rank), "y")
    assert apply(net, *RULES)[0] == ["Convolution", "Resize"]


@pytest.mark.parametrize(
    ("channels", "times", "conv", "resize"),
    [
        (32, 2.0, {"kernel": (3, 3), "pads": (1, 1, 1, 1)}, {}),
        (32, 2.0, {"strides": (2, 2)}, {}),
        (32, 2.0, {"pads": (1, 0, 0, 0)}, {}),
        (32, 2.0, {"group": 2}, {}),
        (32, 0.5, {}, {}),
        (32, 1.25, {}, {}),
        (8, 2.0, {}, {}),
        (16, 2.0, {"channels": 64}, {}),
        (
            32, 2.0, {},
            {"coordinate_transformation_mode": "tf_crop_and_resize",
             "roi": (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0)},
        ),
    ],
)  # fmt: skip
def test_others_stay(net, apply, channels, times, conv, resize):
    y = enlarged(net, net.x("n", channels, 8, 8), times, **resize)
    net.mark_output(mixed(net, y, **conv), "y")
    assert apply(net, *RULES)[0] == ["Resize", "Convolution"]


def test_an_enlarged_image_with_another_reader_stays(net, apply):
    y = enlarged(net, net.x("n", 32, 3, 3))
    net.mark_output(mixed(net, y), "y")
    net.mark_output(net.add("Relu", y), "z")
    assert sorted(apply(net, *RULES)[0]) == ["Convolution", "Relu", "Resize"]


def test_channels_that_grow_stay(net, apply):
    x = net.x("n", 16, 3, 3)
    y = net.add("Resize", x, sizes=(x.spec.shape[0], 32, 6, 6), mode="linear")
    net.mark_output(mixed(net, y), "y")
    assert apply(net, *RULES)[0] == ["Resize", "Convolution"]


def test_joined_maps_of_several_sizes_become_a_sum(net, apply):
    large, small = net.x("n", 32, 8, 8, name="a"), net.x("n", 48, 4, 4, name="b")
    joined = net.add(
        "Concat", enlarged(net, small), large, enlarged(net, net.add("Exp", small)), axis=1
    )
    net.mark_output(mixed(net, joined), "y")
    kinds = apply(net, *RULES)[0]
    assert sorted(kinds) == ["Add"] * 2 + ["Convolution"] * 3 + ["Exp"] + ["Resize"] * 2


def test_maps_of_one_size_stay_joined(net, apply):
    a, b, small = (net.x("n", 32, s, s, name=n) for n, s in (("a", 8), ("b", 8), ("c", 4)))
    net.mark_output(mixed(net, net.add("Concat", a, enlarged(net, small), b, axis=-3)), "y")
    kinds = apply(net, *RULES)[0]
    assert sorted(kinds) == ["Add", "Concat", "Convolution", "Convolution", "Resize"]


def test_all_of_them_enlarged(net, apply):
    a, b = net.x("n", 32, 2, 2, name="a"), net.x("n", 32, 4, 4, name="b")
    joined = net.add("Concat", enlarged(net, a, 4.0), enlarged(net, b), axis=1)
    net.mark_output(mixed(net, joined), "y")
    kinds = apply(net, *RULES)[0]
    assert sorted(kinds) == ["Add", "Convolution", "Convolution", "Resize", "Resize"]


def test_what_joins_pixels_stays(net, apply):
    x = net.x("n", 32, 4, 4)
    joined = net.add("Concat", enlarged(net, x), enlarged(net, x), axis=2)
    net.mark_output(mixed(net, joined), "y")
    assert "Convolution" not in apply(net, *RULES)[0][:-1]
