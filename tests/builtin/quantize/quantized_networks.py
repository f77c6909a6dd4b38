"""Small networks for tests of quantisation, and how far results are from others."""

from __future__ import annotations

import numpy as np

from tactix.base.arrays import Array
from tactix.builder import Builder
from tactix.network.definition import NetworkDefinition

SHAPE = (2, 3, 12, 12)


def residual(builder: Builder | None = None) -> NetworkDefinition:
    """Convolution with a normalisation, pooling, a residual block with a convolution on each side,
    and a Gemm; one input ``x``, (n, 3, 12, 12).
    """
    rng = np.random.default_rng(5)
    net = (builder or Builder()).create_network("residual")

    def conv(x, channels: int, size: int, name: str):  # type: ignore[no-untyped-def]
        depth = x.spec.shape[1]
        w = rng.standard_normal((channels, depth, size, size), np.float32) / (size * depth**0.5)
        b = rng.standard_normal(channels, np.float32) / 4
        given = [x, net.add_constant(w), net.add_constant(b)]
        pads = (size // 2,) * 4
        return net.add_layer("tactix.Convolution", given, name, pads=pads)[0]

    x = net.add_input("x", "f32", ["n", *SHAPE[1:]])
    y = conv(x, 16, 3, "stem")
    statistics = [rng.uniform(0.5, 1.5, 16).astype(np.float32) for _ in range(4)]
    (y,) = net.add_layer(
        "tactix.BatchNormalization", [y, *map(net.add_constant, statistics)], "norm"
    )
    (y,) = net.add_layer("tactix.Relu", [y], "stem/relu")
    (y,) = net.add_layer("tactix.MaxPool", [y], "pool", kernel_shape=(2, 2), strides=(2, 2))
    (inner,) = net.add_layer("tactix.Relu", [conv(y, 16, 3, "first")], "first/relu")
    (total,) = net.add_layer(
        "tactix.Add", [conv(inner, 32, 3, "second"), conv(y, 32, 1, "side")], "sum"
    )
    (y,) = net.add_layer("tactix.Relu", [total], "sum/relu")
    y = conv(y, 8, 1, "last")
    (y,) = net.add_layer("tactix.Reshape", [y], "flat", shape=(y.spec.shape[0], 8 * 36))
    w = rng.standard_normal((10, 288), np.float32) / 17
    given = [y, net.add_constant(w), net.add_constant(rng.standard_normal(10, np.float32))]
    net.mark_output(net.add_layer("tactix.Gemm", given, "head", transB=True)[0], "y")
    return net


def samples(count: int, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal(SHAPE, np.float32)} for _ in range(count)]


def decibels(found: Array, wanted: Array) -> float:
    """Signal to noise."""
    noise = np.square(found.astype(np.float64) - wanted).sum()
    return float(10 * np.log10(np.square(wanted.astype(np.float64)).sum() / noise))
