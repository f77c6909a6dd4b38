"""Channels that become pixels: which moves are one layer, and when a convolution gives its channels
in the order that keeps them together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import channels_as_pixels
from tactix_sdk.evaluate import evaluate


def kinds(net: Any) -> list[str]:
    """Layers after the rules; the numbers stay."""
    out, _ = fuse(net, channels_as_pixels.RULES)
    rng = np.random.default_rng(4)
    sizes = {s: 2 + k for k, s in enumerate(net.symbols())}
    feed = {v.name: rng.standard_normal(v.spec.at(sizes), dtype=np.float32) for v in net.inputs}
    want, got = evaluate(net, feed), evaluate(out, feed)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)
    return [n.layer.name for n in out.nodes]


def convolved(net: Any, x: Any, channels: int, group: int = 1) -> Any:
    rng = np.random.default_rng(1)
    shape = (channels, x.spec.shape[1] // group, *(3,) * (x.spec.rank - 2))
    given = [net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in (shape, channels)]
    return net.add("Convolution", x, *given, group=group, pads=(1,) * 2 * (x.spec.rank - 2))


def shuffled(net: Any, x: Any, blocks: tuple[int, ...], together: bool = True) -> Any:
    """As PyTorch's PixelShuffle, or with all channels of a pixel together."""
    (n, c, *sizes), k = x.spec.shape, len(blocks)
    depth = c // int(np.prod(blocks))
    shape = (n, depth, *blocks, *sizes) if together else (n, *blocks, depth, *sizes)
    inside = [axis for i in range(k) for axis in (k + 2 + i, (2 if together else 1) + i)]
    y = net.add("Reshape", x, shape=shape)
    y = net.add("Transpose", y, perm=(0, 1 if together else k + 1, *inside))
    whole = tuple(s * b for s, b in zip(sizes, blocks, strict=True))
    return net.add("Reshape", y, shape=(n, depth, *whole))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), ("n", 3, "h", "w"), (1, 3, 1, 5)])
@pytest.mark.parametrize("blocks", [(2, 2), (3, 1), (2, 4)])
def test_a_shuffle_behind_a_convolution(net, shape, blocks):
    y = convolved(net, net.x(*shape), 4 * int(np.prod(blocks)))
    net.mark_output(shuffled(net, net.add("Relu", y), blocks), "y")
    assert kinds(net) == ["Convolution", "Relu", "DepthToSpace"]


@pytest.mark.parametrize("shape", [(1, 3, 6), (1, 3, 2, 3, 4)])
def test_other_ranks(net, shape):
    blocks = (2,) * (len(shape) - 2)
    y = convolved(net, net.x(*shape), 3 * 2 ** len(blocks))
    net.mark_output(shuffled(net, y, blocks), "y")
    assert kinds(net) == ["Convolution", "DepthToSpace"]


def test_numbers_of_channels_are_turned_along(net):
    y = convolved(net, net.x(2, 3, 4, 5), 8)
    scale = np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1, 1)
    y = net.add("Mul", y, net.add_constant(scale))
    net.mark_output(shuffled(net, y, (2, 2)), "y")
    assert kinds(net) == ["Convolution", "Mul", "DepthToSpace"]


@pytest.mark.parametrize("shape", [(2, 12, 3, 4), (1, 12, "h", 1)])
def test_whole_channels_move_whoever_made_them(net, shape):
    y = shuffled(net, net.add("Exp", net.x(*shape)), (3, 2), together=False)
    net.mark_output(y, "y")
    assert kinds(net) == ["Exp", "DepthToSpace"]


@pytest.mark.parametrize("case", ["no convolution", "groups", "read twice", "numbers of pixels"])
def test_what_stays(net, case):
    x = net.x(2, 8, 3, 5)
    y = net.add("Exp", x)
    if case != "no convolution":
        y = convolved(net, x, 8, 2 if case == "groups" else 1)
    if case == "read twice":
        net.mark_output(net.add("Exp", y), "z")
    if case == "numbers of pixels":
        scale = np.arange(5, dtype=np.float32)
        y = net.add("Mul", y, net.add_constant(scale))
    net.mark_output(shuffled(net, y, (2, 2)), "y")
    assert "DepthToSpace" not in kinds(net)


def test_pixels_that_turn_are_no_shuffle(net):
    y = convolved(net, net.x(2, 3, 4, 4), 8)
    y = net.add("Reshape", y, shape=(2, 2, 2, 2, 4, 4))
    y = net.add("Transpose", y, perm=(0, 1, 5, 2, 4, 3))
    net.mark_output(net.add("Reshape", y, shape=(2, 2, 8, 8)), "y")
    assert "DepthToSpace" not in kinds(net)
