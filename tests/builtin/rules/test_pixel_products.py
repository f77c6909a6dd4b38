"""Convolutions of single pixels with computed weights as products, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.fuse.rewrite import fuse
from tactix.fuse.rivals import rival
from tactix.network.verify import verify
from tactix_ops.rules import reordering_rules


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("x", "w"),
    [
        (("n", 4, 5), (6, 4, 1)),
        (("n", 4, "h", 3), (6, 4, 1, 1)),
        ((2, "c", "h", 3, 1), ("m", "c", 1, 1, 1)),
    ],
    ids=str,
)
def test_a_product_competes(net: Any, x: Any, w: Any, bias: bool, group: int) -> None:
    by_group = (w[0], "k" if w[1] == "c" else w[1] // group, *w[2:])
    inputs = [net.x(*x), net.x(*by_group, name="w"), *([net.x(w[0], name="b")] if bias else [])]
    net.mark_output(net.add("Convolution", *inputs, group=group), "y")
    out, _ = fuse(net, reordering_rules())
    form = rival(out, out.nodes[0], reordering_rules())
    assert form is not None
    form.take_its_place(out)
    assert "MatMul" in names(out)
    verify(out, deep=True)
    for seed, size in enumerate((4, 2)):  # symbols: c and k, of which k is c by group
        env = {"n": size, "h": 3, "c": 2 * group, "k": 2, "m": 2 * size}
        sizes = [env[s] for s in net.symbols()]
        compare(net, out, arrays(net, seed, sizes), 2e-5)


@pytest.mark.parametrize(
    ("w", "attrs", "dtype"),
    [
        ((6, 4, 1, 2), {}, "f32"),
        ((6, 4, 1, 1), {"strides": (1, 2)}, "f32"),
        ((6, 4, 1, 1), {"pads": (0, 1, 0, 0)}, "f32"),
        ((6, 4, 1, "k"), {}, "f32"),
        ((6, 4, 1, 1), {}, "f64"),
    ],
)
def test_others_stay(net: Any, w: Any, attrs: Any, dtype: str) -> None:
    given = net.x(2, 4, 5, 6, dtype=dtype), net.x(*w, name="w", dtype=dtype)
    net.mark_output(net.add("Convolution", *given, **attrs), "y")
    assert rival(net, net.nodes[0], reordering_rules()) is None


def test_constant_weights_stay(net: Any) -> None:
    net.mark_output(net.add("Convolution", net.x(2, 4, 5, 6), net.random(6, 4, 1, 1)), "y")
    assert rival(net, net.nodes[0], reordering_rules()) is None
