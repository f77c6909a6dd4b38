"""Constant folding, known shape tensors, numbers that follow from input shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import fold


def test_layers_of_constants_become_constants(net, apply):
    w = net.add("Transpose", net.random(4, 3), perm=(1, 0))
    w = net.add("Mul", net.add("Exp", w), net.c(2))
    net.mark_output(net.add("MatMul", net.x("n", 3), w), "y")
    kinds, out, trace = apply(net, "fold_constants")
    assert kinds == ["MatMul"]
    assert trace.counts == {"tactix.fold_constants": 3}
    assert [v.spec.shape for v in out.constants] == [(3, 4)], "what was folded is no longer kept"


def test_several_outputs(net, apply):
    a, b = net.add_layer("tactix.Split", [net.random(2, 5)], axis=1, sizes=(2, 3))
    x = net.x("n", 2)
    net.mark_output(net.add("MatMul", x, a), "y")
    net.mark_output(net.add("MatMul", x, b), "z")
    kinds, _, _ = apply(net, "fold_constants")
    assert kinds == ["MatMul"] * 2


def test_a_scalar_keeps_rank_zero(net, apply):
    s = net.add("Neg", net.c(3.0))
    net.mark_output(net.add("Mul", net.x("n"), s), "y")
    _, out, _ = apply(net, "fold_constants")
    assert out.constants[0].spec.shape == ()


def test_results_may_be_large_or_not_much_larger_than_their_inputs(net, monkeypatch):
    monkeypatch.setattr(fold, "MAX_BYTES", 64)
    for name, n, wide in (("a", 16, 1), ("b", 100, 1), ("c", 100, 5)):
        column, row = net.random(n, 1), net.random(wide)
        net.mark_output(
            net.add("Sub", net.x("n", n, wide, name=f"x{name}"), net.add("Add", column, row)), name
        )
    out, _ = fuse(net, fold.RULES)
    assert sorted(n.layer.name for n in out.nodes) == ["Add", "Sub", "Sub", "Sub"]


def test_many_small_results_are_no_more_than_the_weights_allow(net, monkeypatch):
    """A file of a few bytes may ask for any number of them."""
    monkeypatch.setattr(fold, "MAX_BYTES", 1 << 12)
    for i in range(20):
        wide = net.add("Add", net.random(16, 1), net.random(16))
        net.mark_output(net.add("Sub", net.x(16, 16, name=f"x{i}"), wide), f"y{i}")
    out, trace = fuse(net, fold.RULES)
    left = [n for n in out.nodes if n.layer.name == "Add"]
    assert 0 < len(left) < 20
    held = sum(v.const.nbytes for v in out.constants)
    assert held <= (1 << 12) + 2 * fold.MAX_GROWTH * 20 * 2 * 64
    assert any("constants would grow" in m.reason for m in trace.near_misses)


def test_large_results_stay_layers(net, monkeypatch):
    monkeypatch.setattr(fold, "MAX_BYTES", 64)
    monkeypatch.setattr(fold, "MAX_REPEATED", 1 << 12)
    small = net.add("Expand", net.c(1.0), shape=(1 << 10,))
    large = net.add("Expand", net.c(2.0), shape=((1 << 10) + 1,))
    grown = net.add("Neg", net.random((1 << 10) + 1))
    for name, v in (("a", small), ("b", large), ("c", grown)):
        net.mark_output(net.add("Sub", net.x(*v.spec.shape, name=f"x{name}"), v), name)
    out, trace = fuse(net, fold.RULES)
    assert sorted(n.layer.name for n in out.nodes) == ["Expand", "Sub", "Sub", "Sub"]
    assert [m.reason for m in trace.near_misses] == ["the result has 4100 bytes, more than 4096"]


def test_quantised_weights_stay_small(net, apply):
    q = net.c(np.arange(-6, 6).reshape(4, 3), np.int8)
    w = net.add("DequantizeLinear", q, net.c(0.5), net.c(0, np.int8))
    net.mark_output(net.add("MatMul", net.x("n", 4), w), "y")
    assert apply(net, "fold_constants")[0] == ["DequantizeLinear", "MatMul"]


def test_known_sizes_become_constants(net, apply):
    x = net.x("n", 6, 5)
    last = net.add("Gather", net.add("Shape", x), net.c(2, np.int64), axis=0)
    net.mark_output(
        net.add("Mul", x, net.add("Cast", net.add("Mul", last, last), to=x.spec.dtype)), "y"
    )
    kinds, out, _ = apply(net, "fold_known")
    assert kinds == ["Mul"]
    assert [(v.const.item(), v.const.dtype) for v in out.constants] == [(25.0, np.float32)]


def test_symbolic_sizes_become_dims(net, apply):
    x = net.x("n", "s", 3)
    s = net.add("Gather", net.add("Shape", x), net.c(1, np.int64), axis=0)
    s = net.add("Add", net.add("Mul", s, net.c(2, np.int64)), net.c(1, np.int64))
    net.mark_output(net.add("Mul", x, net.add("Cast", s, to=x.spec.dtype)), "y")
    kinds, out, _ = apply(net, "dims")
    assert kinds == ["Dims", "Mul"]
    assert str(out.nodes[0].attrs.values[0]) == "2*s + 1"


def test_sizes_that_only_running_gives_are_left_alone(net):
    x, shape = net.x("n", 6), net.x(2, name="shape", dtype="i64")
    y = net.add("DynamicReshape", x, shape, symbol="late")
    net.mark_output(net.add("Neg", net.add("Shape", y)), "size")
    out, _ = fuse(net, fold.RULES)
    assert [n.layer.name for n in out.nodes] == ["DynamicReshape", "Shape", "Neg"]


@pytest.mark.parametrize("layer", ["Add", "Softmax"])
def test_inputs_are_not_constants(net, apply, layer):
    x = net.x("n", 3)
    net.mark_output(net.add(layer, *([x, net.c(1)] if layer == "Add" else [x])), "y")
    assert apply(net, "fold_constants", "fold_known")[0] == [layer]
