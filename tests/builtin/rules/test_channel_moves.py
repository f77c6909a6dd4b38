"""Windows of images move rows of channels on GPUs; so do products of one pixel."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builtin.rules.conftest import arrays, compare

from tactix.base.dims import sym
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, graphics_rules


def after(net: Any) -> list[Any]:
    """The nodes after the rules, whose numbers are those before."""
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    verify(out, deep=True)
    compare(net, out, arrays(net, 1, [2]))
    return list(out.nodes)


def named(nodes: list[Any], name: str) -> list[Any]:
    """Those that run such a layer, by themselves or fused."""
    return [n for n in nodes if any(b.layer.name == name for b in n.body.nodes)]


def image(net: Any, n: Any) -> Any:
    return net.add("Convolution", net.x(n, 3, 4, 6), net.random(5, 3, 1, 1))


def parted(net: Any, x: Any, n: Any, size: tuple[int, ...] = (2, 2, 3, 2)) -> Any:
    y = net.add("Reshape", x, shape=(n, 5, *size))
    return net.add("Transpose", y, perm=(0, 2, 4, 3, 5, 1))


@pytest.mark.parametrize("n", [1, 2, sym("n")])
def test_parts_of_an_image_are_rows(net: Any, n: Any) -> None:
    net.mark_output(net.add("Softmax", parted(net, image(net, n), n)), "y")
    moves = named(after(net), "Transpose")
    assert moves[0].attrs.perm == (0, 2, 3, 1)
    assert all(m.attrs.perm[-1] == m.given[0].spec.rank - 1 for m in moves[1:])


@pytest.mark.parametrize("n", [1, 2, sym("n")])
def test_an_image_is_put_together_of_rows(net: Any, n: Any) -> None:
    y = net.add("Softmax", net.x(n, 2, 3, 2, 2, 5))
    y = net.add("Transpose", y, perm=(0, 5, 1, 3, 2, 4))
    y = net.add("Relu", net.add("Reshape", y, shape=(n, 5, 4, 6)))
    net.mark_output(net.add("Convolution", y, net.random(3, 5, 3, 3)), "y")
    *moves, last = named(after(net), "Transpose")
    assert last.attrs.perm == (0, 3, 1, 2)
    assert all(m.attrs.perm[-1] == m.given[0].spec.rank - 1 for m in moves)


@pytest.mark.parametrize("n", [1, 2])
def test_windows_that_become_other_windows_are_one_gather(net: Any, n: int) -> None:
    y = net.add("Softmax", net.x(n, 2, 3, 2, 2, 5))
    y = net.add("Transpose", y, perm=(0, 5, 1, 3, 2, 4))
    net.mark_output(net.add("Softmax", parted(net, y, n, (2, 2, 2, 3))), "y")
    nodes = after(net)
    assert len(named(nodes, "Gather")) == 1
    assert not named(nodes, "Transpose")


def test_what_no_convolution_makes_stays_as_it_is(net: Any) -> None:
    y = parted(net, net.add("Softmax", net.x(2, 5, 4, 6)), 2)
    net.mark_output(net.add("Softmax", y), "y")
    (move,) = named(after(net), "Transpose")
    assert move.attrs.perm == (0, 2, 4, 3, 5, 1)


def shuffled(net: Any, y: Any, n: Any, groups: int) -> Any:
    """The twelve channels of each group in turn."""
    y = net.add("Reshape", y, shape=(n, groups, 12 // groups, 4, 6))
    y = net.add("Transpose", y, perm=(0, 2, 1, 3, 4))
    return net.add("Reshape", y, shape=(n, 12, 4, 6))


@pytest.mark.parametrize("n", [1, 2, sym("n")])
@pytest.mark.parametrize("groups", [2, 3])
def test_shuffled_channels_change_places_within_rows(net: Any, n: Any, groups: int) -> None:
    y = net.add("Convolution", net.x(n, 3, 4, 6), net.random(12, 3, 1, 1))
    y = shuffled(net, net.add("Relu", y), n, groups)
    net.mark_output(net.add("Convolution", y, net.random(3, 12, 1, 1)), "y")
    first, move, last = named(after(net), "Transpose")
    assert (first.attrs.perm, last.attrs.perm) == ((0, 2, 3, 1), (0, 3, 1, 2))
    assert move.attrs.perm[-2:] == (len(move.attrs.perm) - 1, len(move.attrs.perm) - 2)


@pytest.mark.parametrize("n", [1, 2, sym("n")])
@pytest.mark.parametrize("stacks", [False, True])
def test_images_whose_channels_are_taken_in_turn_are_joined_by_one_move(
    net: Any, n: Any, stacks: bool
) -> None:
    x = net.add("Convolution", net.x(n, 3, 4, 6), net.random(6, 3, 1, 1))
    parts = [x, net.add("Relu", x)]
    if stacks:
        parts = [net.add("Reshape", v, shape=(n, 6, 1, 4, 6)) for v in parts]
        y = net.add("Reshape", net.add("Concat", *parts, axis=2), shape=(n, 12, 4, 6))
    else:
        y = shuffled(net, net.add("Concat", *parts, axis=1), n, 2)
    net.mark_output(net.add("Convolution", y, net.random(3, 12, 1, 1)), "y")
    nodes = after(net)
    (joined,) = named(nodes, "Concat")
    assert joined.given[0].spec.shape[-2:] == (6, 1)
    perms = {m.attrs.perm for m in named(nodes, "Transpose")}
    assert perms == {(0, 2, 3, 1), (0, 3, 1, 2)}


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_of_one_pixel_is_one_of_rows(net: Any, bias: bool) -> None:
    y = net.add("GlobalAveragePool", net.x("n", 6, 4, 5))
    y = net.add("Convolution", y, net.random(4, 6, 1, 1), *([net.random(4)] if bias else []))
    y = net.add("Convolution", net.add("Relu", y), net.random(6, 4, 1, 1))
    net.mark_output(net.add("Sigmoid", y), "y")
    nodes = after(net)
    assert len(named(nodes, "MatMul")) + len(named(nodes, "Gemm")) == 2
    assert not named(nodes, "Convolution")


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_larger_images_stay_convolutions(net: Any, pads: tuple[int, ...]) -> None:
    size = 1 if any(pads) else 2
    x = net.x("n", 6, size, size)
    y = net.add("Convolution", x, net.random(4, 6, 1, 1), pads=pads)
    net.mark_output(y, "y")
    assert named(after(net), "Convolution")


def test_numbers_of_a_whole_block_stay(net: Any) -> None:
    """An image, its windows, other windows of them, and an image again."""
    y = parted(net, net.add("Relu", image(net, 1)), 1)
    y = net.add("Softmax", y)
    y = net.add("Transpose", y, perm=(0, 5, 1, 3, 2, 4))
    y = net.add("Softmax", parted(net, y, 1, (2, 2, 3, 2)))
    y = net.add("Reshape", net.add("Transpose", y, perm=(0, 5, 1, 3, 2, 4)), shape=(1, 5, 4, 6))
    net.mark_output(net.add("Convolution", y, net.random(3, 5, 1, 1)), "y")
    assert len(named(after(net), "Convolution")) == 2
