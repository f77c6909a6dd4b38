"""Products of bytes that were made int32: integer products of the bytes, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, processor_rules
from tactix_sdk.evaluate import evaluate


def whole(net: Any, *shape: int, low: int = -128, high: int = 128) -> Any:
    return net.c(net.rng.integers(low, high, shape), np.int32)


def wide(net: Any, x: Any) -> Any:
    return net.add("Cast", x, to=DType.INT32)


def zero_of(net: Any, kind: str, shape: tuple[int, ...]) -> Any:
    """A zero point in int32: none, a constant, or a byte that only running tells."""
    if kind == "none":
        return None
    if kind == "constant":
        return net.c(np.full(shape, 7), np.int32)
    return wide(net, net.x(*shape, name="z", dtype="u8"))


def kinds(net: Any) -> list[str]:
    """The layers after the rules, whose numbers are those before, at two batches."""
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    verify(out, deep=True)
    for batch in (1, 3):
        rng = np.random.default_rng(batch)
        env = dict.fromkeys(net.symbols(), batch)
        feed = {
            v.name: rng.integers(0, 100, v.spec.at(env)).astype(v.spec.dtype.numpy)
            for v in net.inputs
        }
        want, got = evaluate(net, feed), evaluate(out, feed)
        for name, y in want.items():
            np.testing.assert_array_equal(got[name], y)
    return [b.layer.name for n in out.nodes for b in n.body.nodes]


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize(
    ("zero", "shape"),
    [
        ("none", ()),
        ("constant", ()),
        ("constant", (1,)),
        ("told", ()),
        ("told", (1,)),
        ("told", (5, 1)),
    ],
)
def test_matrices(net, dtype, zero, shape):
    x, z = wide(net, net.x("n", 5, 9, dtype=dtype)), zero_of(net, zero, shape)
    y = net.add("MatMul", x if z is None else net.add("Sub", x, z), whole(net, 9, 6))
    net.mark_output(net.add("Mul", net.add("Cast", y, to=DType.FP32), net.c(0.5)), "y")
    assert "IntegerMatMul" in kinds(net)


@pytest.mark.parametrize("dtypes", [("u8", "i8"), ("i8", "u8")], ids=str)
@pytest.mark.parametrize("zeros", [("none", "none"), ("constant", "none"), ("told", "constant")])
def test_two_computed_matrices(net, dtypes, zeros):
    """On processors: elsewhere the products are those of int32."""
    sides = []
    for name, dtype, shape, zero in zip("ab", dtypes, ((2, 5, 9), (2, 9, 6)), zeros, strict=True):
        x, z = wide(net, net.x(*shape, name=name, dtype=dtype)), zero_of(net, zero, (1,))
        sides.append(x if z is None else net.add("Sub", x, z))
    net.mark_output(net.add("MatMul", *sides), "y")
    assert "ByteMatMul" in kinds(net)


def test_computed_matrices_with_zero_points_of_rows_stay(net):
    a, b = (wide(net, net.x(5, 5, name=n, dtype="u8")) for n in "ab")
    net.mark_output(net.add("MatMul", net.add("Sub", a, zero_of(net, "told", (5, 1))), b), "y")
    assert "ByteMatMul" not in kinds(net)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("zero", ["none", "constant", "told"])
def test_convolutions(net, zero, group, pads):
    x, z = wide(net, net.x("n", 4, 6, 5, dtype="u8")), zero_of(net, zero, ())
    w = whole(net, 6, 4 // group, 3, 2)
    x = x if z is None else net.add("Sub", x, z)
    net.mark_output(net.add("Convolution", x, w, group=group, pads=pads, strides=(2, 1)), "y")
    found = kinds(net)
    assert "IntegerConvolution" in found if group == 1 else "Dequantize" in found


@pytest.mark.parametrize(("low", "high", "parts"), [(-130, 126, 2), (-255, 1, 2), (0, 256, 3)])
@pytest.mark.parametrize("zero", ["none", "constant", "told"])
def test_weights_that_leave_int8_are_several(net, zero, low, high, parts):
    """As uint8 weights do less their zero point."""
    x, z = wide(net, net.x("n", 4, 6, 5, dtype="u8")), zero_of(net, zero, ())
    x = x if z is None else net.add("Sub", x, z)
    w = net.rng.integers(low, high, (6, 4, 3, 2))
    w[0, 0, 0] = low, high - 1
    y = net.add("Convolution", x, net.c(w, np.int32), pads=(1, 0, 2, 1))
    net.mark_output(y, "y")
    m = net.rng.integers(low, high, (5, 6))
    m[0, :2] = low, high - 1
    net.mark_output(net.add("MatMul", x, net.c(m, np.int32)), "m")
    found = kinds(net)
    assert [found.count(k) for k in ("IntegerConvolution", "IntegerMatMul")] == [parts] * 2


def test_what_stays(net):
    """Weights that are no differences of bytes, zero points of columns, integers that were no
    bytes.
    """
    x = wide(net, net.x("n", 9, dtype="u8"))
    net.mark_output(net.add("MatMul", x, net.c(np.full((9, 4), 256), np.int32)), "a")
    net.mark_output(net.add("MatMul", net.add("Sub", x, whole(net, 9)), whole(net, 9, 4)), "b")
    short = wide(net, net.x("n", 9, name="s", dtype="i16"))
    net.mark_output(net.add("MatMul", short, whole(net, 9, 4)), "c")
    assert "IntegerMatMul" not in kinds(net)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 1, 2, 1)])
@pytest.mark.parametrize("group", [1, 3])
def test_told_zero_points_and_open_images(net, group, pads):
    """Which taps lie within the image is known only with its size. Sums are exact in floats, for
    which there are kernels at any size.
    """
    x, z = wide(net, net.x("n", 3, "h", 5, dtype="u8")), zero_of(net, "told", ())
    w = whole(net, 6, 3 // group, 2, 3, low=-200, high=200)
    y = net.add("Convolution", net.add("Sub", x, z), w, pads=pads, group=group)
    net.mark_output(y, "y")
    found = kinds(net)
    assert "IntegerConvolution" not in found
    assert found.count("Convolution") == (4 if any(pads) else 2)  # of each part of w: pads count


@pytest.mark.parametrize(("group", "channels"), [(1, 3), (2, 2), (1, 70)])
@pytest.mark.parametrize(
    ("zeros", "shape"),
    [(("none", "none"), ()), (("told", "constant"), ()), (("none", "told"), (4, 1, 1, 1))],
)
def test_convolutions_with_computed_weights(net, group, channels, zeros, shape):
    """On processors in floats, of as many channels at a time as these have sums of."""
    x = wide(net, net.x("n", channels * group, "n", 5, dtype="u8"))
    w = wide(net, net.x(4, channels, 2, 3, name="w", dtype="u8"))
    z, v = zero_of(net, zeros[0], ()), zero_of(net, zeros[1], shape)
    x = x if z is None else net.add("Sub", x, z)
    w = w if v is None else net.add("Sub", w, v)
    y = net.add("Convolution", x, w, group=group, pads=(1, 0, 1, 2), strides=(2, 1))
    net.mark_output(y, "y")
    assert kinds(net).count("Round") == -(-channels // 43)  # 43 * 6 * 255 * 255 < 2 ** 24


def test_computed_weights_whose_sums_floats_do_not_hold_stay_integers(net):
    """Groups of too many channels, open channels, and zero points that may be no bytes."""
    x = wide(net, net.x(1, 600, 5, 5, dtype="u8"))
    w = wide(net, net.x(2, 300, 2, 1, name="w", dtype="u8"))
    net.mark_output(net.add("Convolution", x, w, group=2), "groups")
    o = wide(net, net.x(2, "c", 1, 1, name="o", dtype="u8"))
    net.mark_output(
        net.add("Convolution", wide(net, net.x(1, "c", 5, 5, name="k", dtype="u8")), o), "open"
    )
    shifted = net.add("Sub", x, net.x(name="z", dtype="i32"))
    net.mark_output(
        net.add("Convolution", shifted, wide(net, net.x(2, 600, 1, 1, name="v", dtype="u8"))), "z"
    )
    assert "Round" not in kinds(net)


def test_sums_that_floats_do_not_hold_stay_integers(net):
    """Of 9 taps of 127 by bytes up to 255, those of 57 channels are below 2 ** 24."""
    for channels in (57, 58):
        x = net.x("n", channels, "h", 6, name=f"x{channels}", dtype="u8")
        w = net.c(np.full((2, channels, 3, 3), 127), np.int8)
        net.mark_output(net.add("IntegerConvolution", x, w), f"y{channels}")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    layers = [b.layer.name for n in out.nodes for b in n.body.nodes]
    assert (layers.count("IntegerConvolution"), layers.count("Convolution")) == (1, 1)


@pytest.mark.parametrize(
    ("shape", "weights", "fields"),
    [
        (("n", 4, 5, 6), (8, 2, 3, 3), {"group": 2}),
        (("n", 4, 5, 6), (8, 1, 3, 3), {"group": 4}),
        (("n", 4, 5, 6), (4, 1, 3, 3), {"group": 4, "dilations": (1, 2)}),
        (("n", 4, 3, 5, 6), (8, 4, 1, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
        (("n", 4, "h", 6), (8, 4, 3, 3), {"pads": (1, 1, 1, 1)}),
    ],
    ids=["groups", "multiplied", "dilated", "volume", "open"],
)
def test_a_convolution_that_no_kernel_of_bytes_takes_is_one_of_floats(net, shape, weights, fields):
    w = net.c(net.rng.integers(-128, 128, weights), np.int8)
    b = net.c(net.rng.integers(-999, 999, weights[0]), np.int32)
    x = net.x(*shape, dtype="u8")
    y = net.add("IntegerConvolution", x, w, b, pad_value=119, **fields)
    y = net.add("Mul", net.add("Cast", y, to=DType.FP32), net.c(2.0**-10))
    net.mark_output(net.add("Quantize", y, zero=3), "y")
    env, found = dict.fromkeys(("n", "h"), 7), fuse(net, [*all_rules(), *processor_rules()])[0]
    verify(found, deep=True)
    layers = [b.layer.name for n in found.nodes for b in n.body.nodes]
    assert layers == ["Dequantize", "Convolution", "Round", "Mul", "Quantize"]
    feed = {"x": np.random.default_rng(2).integers(0, 256, x.spec.at(env)).astype(np.uint8)}
    np.testing.assert_array_equal(evaluate(found, feed)["y"], evaluate(net, feed)["y"])


@pytest.mark.parametrize("group", [1, 4])
def test_a_convolution_that_kernels_of_bytes_take_stays(net, group):
    w = net.c(net.rng.integers(-128, 128, (4, 4 // group, 3, 3)), np.int8)
    y = net.add("IntegerConvolution", net.x("n", 4, 5, 6, dtype="u8"), w, group=group)
    net.mark_output(net.add("Cast", y, to=DType.FP32), "y")
    assert "IntegerConvolution" in kinds(net)


def rivals() -> list[Any]:
    """The rules that offer floats beside kernels of bytes, as ones that fire."""
    found = [r for r in processor_rules() if r.key.startswith("tactix.floats_for_byte_")]
    return [replace(r, phase="fuse", benefit=90) for r in found]


@pytest.mark.parametrize("kind", ["IntegerMatMul", "IntegerConvolution"])
def test_floats_in_place_of_bytes_are_rounded_where_integers_are(net, kind):
    """Of steps that are powers of two many sums lie between two bytes."""
    shapes = ((40, 30), (30, 8)) if kind == "IntegerMatMul" else ((2, 6, 9, 9), (8, 6, 3, 3))
    w = net.c(net.rng.integers(-128, 128, shapes[1]), np.int8)
    b = net.c(net.rng.integers(-999, 999, 8), np.int32)
    y = net.add("Cast", net.add(kind, net.x(*shapes[0], dtype="u8"), w, b), to=DType.FP32)
    net.mark_output(net.add("Quantize", net.add("Mul", y, net.c(2.0**-10)), zero=3), "y")
    out, _ = fuse(net, [*all_rules(), *processor_rules(), *rivals()])
    layers = [b.layer.name for n in out.nodes for b in n.body.nodes]
    assert kind not in layers
    assert layers[layers.index("Round") :] == ["Round", "Mul", "Quantize"]
    feed = {"x": net.rng.integers(0, 256, shapes[0]).astype(np.uint8)}
    np.testing.assert_array_equal(evaluate(out, feed)["y"], evaluate(net, feed)["y"])


def test_sums_that_floats_do_not_hold_have_no_rival(net):
    w = net.c(np.full((600, 2), 127), np.int8)
    y = net.add("Cast", net.add("IntegerMatMul", net.x(3, 600, dtype="u8"), w), to=DType.FP32)
    net.mark_output(y, "y")
    out, trace = fuse(net, [*all_rules(), *processor_rules(), *rivals()])
    assert "IntegerMatMul" in [b.layer.name for n in out.nodes for b in n.body.nodes]
    assert any("float32 has all integers to" in m.reason for m in trace.near_misses)
