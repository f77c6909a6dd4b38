"""Products of 8 bits that attention reads become one: what fires, and the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules, graphics_rules

WIDTHS = (8, 8, 12)
INTEGERS = ("IntegerMatMul", "Cast", "Mul", "Add")


def product(net: Any, x: Any, width: int, layer: str, term: bool = False) -> Any:
    drawn = net.rng.standard_normal((5, width)) * 20
    floats = layer == "Float8MatMul"
    w = net.add_constant(drawn.astype(DType.FP8.numpy if floats else np.int8))
    terms = [net.c(net.rng.integers(-99, 99, width), np.int32)] if term else []
    y = net.add(layer, x, w, *terms)
    y = y if floats else net.add("Cast", y, to=DType.FP32)
    factor = net.rng.random(width) / 64 if width > 8 else np.float32(2**-6)
    return net.add("Mul", y, net.c(factor))


def run(net: Any, parts: Any) -> list[str]:
    """What the network of an attention of these parts computes; its numbers are compared."""
    y = net.add("TokenAttention", *parts, heads=2, dim=4, value_dim=6, scale=0.5)
    net.mark_output(y, "y")
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    compare(net, out, arrays(net, 1, [3]))
    return [b.layer.name for n in out.nodes for b in n.body.nodes]


@pytest.mark.parametrize("layer", ["Float8MatMul", "IntegerMatMul"])
def test_three_products_are_one(net: Any, layer: str) -> None:
    x = net.x("n", 3, 5, dtype="f8e4m3" if layer == "Float8MatMul" else "i8")
    q, k, v = (
        product(net, x, width, layer, term=layer == "IntegerMatMul" and width == 12)
        for width in WIDTHS
    )
    made = run(net, [net.add("Add", q, net.random(8)), k, net.add("Add", v, net.random(12))])
    before = INTEGERS if layer == "IntegerMatMul" else (layer, "Mul", "Add")
    assert made == [*before, "TokenAttention"]


def test_keys_and_values_of_other_tokens_are_one(net: Any) -> None:
    x, other = net.x("n", 3, 5, dtype="u8"), net.x("n", 7, 5, name="o", dtype="u8")
    q, k, v = (
        product(net, t, width, "IntegerMatMul")
        for t, width in zip((x, other, other), WIDTHS, strict=True)
    )
    assert run(net, [q, k, v]).count("IntegerMatMul") == 2


@pytest.mark.parametrize("case", ["kinds", "factor", "computed term"])
def test_what_stays_several_products(net: Any, case: str) -> None:
    x = net.x("n", 3, 5, dtype="i8")
    q, k, v = (product(net, x, width, "IntegerMatMul") for width in WIDTHS)
    if case == "kinds":
        eights = net.x("n", 3, 5, name="f", dtype="f8e4m3")
        k = product(net, eights, 8, "Float8MatMul")
    elif case == "factor":
        k = net.add("Mul", net.add("Cast", net.add("IntegerMatMul", x, net.add_constant(
            np.ones((5, 8), np.int8))), to=DType.FP32), net.c(net.rng.random((3, 1))))  # fmt: skip
    else:
        term = net.x(8, name="t", dtype="i32")
        sums = net.add("IntegerMatMul", x, net.add_constant(np.ones((5, 8), np.int8)), term)
        k = net.add("Mul", net.add("Cast", sums, to=DType.FP32), net.c(2**-6))
    made = run(net, [q, k, v])
    assert made.count("IntegerMatMul") + made.count("Float8MatMul") == 3


def test_turned_heads_are_of_one_product(net: Any) -> None:
    rule = next(r for r in graphics_rules() if r.key.startswith("tactix.rotary_of_one_product"))
    assert rule.example is not None
    rule.example(net)
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    compare(net, out, arrays(net, 1, [3]))
    made = [b.layer.name for n in out.nodes for b in n.body.nodes]
    assert (made.count("IntegerMatMul"), made.count("RotaryEmbedding")) == (1, 1)
