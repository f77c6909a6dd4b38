"""Random graphs of everyday layers: all rules together keep them well formed and their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import sym

N = sym("n")
UNARY = ("Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Erf", "Exp")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


def same(net, rng, x):
    """A layer whose result has the shape of x: (n, 4, 6)."""
    kind = rng.integers(0, 12)
    if kind < 3:
        return net.add(str(rng.choice(UNARY)), x)
    if kind == 3:
        return net.add(str(rng.choice(BINARY)), x, net.c(rng.choice([0.0, 1.0, 0.5])))
    if kind == 4:
        return net.add(str(rng.choice(BINARY)), net.random(6), x)
    if kind == 5:
        return net.add("MatMul", x, net.random(6, 6))
    if kind == 6:
        flat = net.add("Reshape", x, shape=(N * 4, 6))
        flat = net.add("Gemm", flat, net.random(6, 6), net.random(6), transB=bool(rng.integers(2)))
        return net.add("Reshape", flat, shape=(N, 4, 6))
    if kind == 7:
        return net.add("Transpose", net.add("Transpose", x, perm=(2, 0, 1)), perm=(1, 2, 0))
    if kind == 8:
        return net.add("Convolution", x, net.random(4, 4, 3), pads=(1, 1))
    if kind == 9:
        parts = net.add_layer("tactix.Split", [x], axis=2, sizes=(2, 4))
        return net.add("Concat", *(parts if rng.integers(2) else parts[::-1]), axis=2)
    if kind == 10:
        return net.add("LayerNormalization", x, net.random(6), net.random(6))
    return net.add("Softmax", x, axis=int(rng.integers(1, 3)))


def narrow(net, rng, x):
    """Something that broadcasts to (n, 4, 6)."""
    kind = rng.integers(0, 4)
    if kind == 0:
        return net.add("ReduceMean", x, axes=(2,), keepdims=True)
    if kind == 1:
        return net.add("Expand", net.add("ReduceMax", x, axes=(1,), keepdims=True), shape=(N, 4, 6))
    if kind == 2:
        return net.add("Slice", x, begins=(1,), sizes=(1,), axes=(1,), steps=(1,))
    return net.add("Gather", x, net.c([int(rng.integers(0, 4))], np.int64), axis=1)


def grow(net, rng, steps):
    tensors = [net.x("n", 4, 6, name="a"), net.x("n", 4, 6, name="b")]
    for _ in range(steps):
        x = tensors[-1 - int(min(rng.geometric(0.4), len(tensors)) - 1)]
        if rng.random() < 0.65:
            tensors.append(same(net, rng, x))
        else:
            other = tensors[int(rng.integers(len(tensors)))]
            other = narrow(net, rng, other) if rng.random() < 0.5 else other
            tensors.append(net.add(str(rng.choice(BINARY)), x, other))
    made = [t for t in tensors if t.producer is not None]
    read = {v for t in made for v in t.producer.given}
    for i, t in enumerate(t for t in made if t not in read or rng.random() < 0.1):
        net.mark_output(t, f"y{i}")


@pytest.mark.parametrize("seed", range(40))
def test_all_rules(net, apply, seed):
    rng = np.random.default_rng(seed)
    grow(net, rng, int(rng.integers(3, 25)))
    kinds, _, trace = apply(net)
    assert len(kinds) <= len(net.nodes) + 2
    assert all(f.seconds >= 0 for f in trace.firings)
