"""The oracle: symbols from shapes, absent inputs, symbolic attributes, fused nodes."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.contracts.region import FUSED
from tactix.fuse.region import merge
from tactix_sdk.evaluate import bind_symbols, evaluate


def ones(*shape):
    return np.ones(shape, np.float32)


def test_symbols_come_from_the_shapes(net):
    net.add_input("x", "f32", ["n", "s", 4])
    net.add_input("z", "f32", [sym("n") * 2, 1])
    assert bind_symbols(net, {"x": (3, 5, 4), "z": (6, 1)}) == {"n": 3, "s": 5}
    with pytest.raises(ShapeError, match=r"input 'z' is f32\(2\*n, 1\), got shape \(5, 1\)"):
        bind_symbols(net, {"x": (3, 5, 4), "z": (5, 1)})
    with pytest.raises(ShapeError, match="input 'x' has rank 3"):
        bind_symbols(net, {"x": (3, 5), "z": (6, 1)})
    with pytest.raises(ShapeError, match=r"got shape \(3, 5, 7\)"):
        bind_symbols(net, {"x": (3, 5, 7), "z": (6, 1)})


def test_inputs_must_agree_on_a_symbol(net):
    for name in "ab":
        net.add_input(name, "f32", ["n"])
    with pytest.raises(ShapeError, match="input 'b'"):
        bind_symbols(net, {"a": (2,), "b": (3,)})


def test_a_symbol_defined_by_a_later_input(net):
    """The derived dim comes first; the symbol itself only with the second input."""
    net.add_input("twice", "f32", [sym("n") * 2])
    net.add_input("once", "f32", ["n"])
    assert bind_symbols(net, {"twice": (6,), "once": (3,)}) == {"n": 3}


def test_a_limited_symbol(net):
    net.add_input("x", "f32", ["n"])
    net.limit("n", 5)
    assert bind_symbols(net, {"x": (5,)}) == {"n": 5}
    with pytest.raises(ShapeError, match="dimension 'n' is 6, the network takes at most 5"):
        bind_symbols(net, {"x": (6,)})


def test_every_kind_of_layer(net):
    x = net.add_input("x", "f32", ["n", 4])
    (y,) = net.add_layer("toy.Add", [x, net.add_constant(np.arange(4, dtype=np.float32))])
    (y,) = net.add_layer("toy.Flat", [y], shape=(4, sym("n")))
    (y,) = net.add_layer("toy.Optional", [y, None, net.add_constant(np.float32(3))])
    a, b = net.add_layer("toy.Halves", [y])
    net.mark_output(b, "b")
    net.mark_output(a, "a")
    net.mark_output(x, "same")
    array = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = evaluate(net, {"x": array})
    want = ((array + np.arange(4)).reshape(4, 2)) * 3
    assert list(out) == ["b", "a", "same"]
    np.testing.assert_array_equal(out["a"], want[:, :1])
    np.testing.assert_array_equal(out["b"], want[:, 1:])
    np.testing.assert_array_equal(out["same"], array)


def test_a_fused_node_runs_its_body(net):
    x, z = (net.add_input(k, "f32", ["n", 4]) for k in "xz")
    (a,) = net.add_layer("toy.Add", [x, z])
    (b,) = net.add_layer("toy.Flat", [a], shape=(sym("n") * 4,))
    body, inputs = merge([a.producer, b.producer], [b, a])
    outputs = net.add_layer(FUSED, inputs, attrs=body)
    for i, v in enumerate(outputs):
        net.mark_output(v, f"y{i}")
    got = evaluate(net, {"x": ones(3, 4), "z": ones(3, 4) * 2})
    np.testing.assert_array_equal(got["y0"], ones(12) * 3)
    np.testing.assert_array_equal(got["y1"], ones(3, 4) * 3)


def test_a_missing_input_is_named(net):
    for name in "ab":
        net.mark_output(net.add_layer("toy.Neg", [net.add_input(name, "f32", ["n"])])[0])
    with pytest.raises(InvalidArgument, match=r"no array for input 'b'\. Give: a, b"):
        evaluate(net, {"a": ones(2)})
