"""Rotary embeddings: which spellings are one layer, how it meets attention, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, processor_rules
from tactix_ops.rules.heads import TURN
from tactix_sdk.evaluate import evaluate

RULES = {rule.key.removeprefix("tactix."): rule for rule in all_rules()}


def kinds(net: Any, *names: str) -> list[str]:
    """Layers after the rules of these names, or all; the numbers stay."""
    rules = [RULES[n] for n in names] or [*all_rules(), *processor_rules()]
    out, _ = fuse(net, rules)
    verify(out, deep=True)
    rng = np.random.default_rng(2)
    sizes = dict.fromkeys(net.symbols(), 3)
    feed = {v.name: rng.standard_normal(v.spec.at(sizes), dtype=np.float32) for v in net.inputs}
    want, got = evaluate(net, feed), evaluate(out, feed)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)
    return ["+".join(b.layer.name for b in n.body.nodes) for n in out.nodes]


def part(net: Any, x: Any, begin: int, size: int) -> Any:
    return net.add("Slice", x, begins=(begin,), sizes=(size,), axes=(-1,), steps=(1,))


def rotated(net: Any, x: Any, first: int = 0, axis: int = -1, tables: Any = None) -> Any:
    size = x.spec.shape[-1]
    half = size // 2
    parts = [net.add("Neg", part(net, x, half, half)), part(net, x, first, half)]
    turned = net.add("Concat", *parts, axis=axis)
    cosines, sines = tables or (net.random(3, size), net.random(3, size))
    return net.add("Add", net.add("Mul", x, cosines), net.add("Mul", sines, turned))


@pytest.mark.parametrize(
    "name", ["rotary", "rotary_by_parts", "rotary_of_tokens", "rotary_of_one_product"]
)
def test_examples_fire_alone(name, net):
    RULES[name].example(net)
    assert "RotaryEmbedding" in kinds(net, name)


@pytest.mark.parametrize("form", ["slices", "split"])
def test_halves_are_one_layer(net, form):
    x = net.x("n", 2, 3, 8)
    if form == "slices":
        y = rotated(net, x)
    else:
        split = net.add_layer("tactix.Split", [x], axis=3, sizes=(4, 4))
        turned = net.add("Concat", net.add("Neg", split[1]), split[0], axis=3)
        y = net.add(
            "Add", net.add("Mul", turned, net.random(3, 8)), net.add("Mul", net.random(8), x)
        )
    net.mark_output(y, "y")
    assert kinds(net, "rotary") == ["RotaryEmbedding"]


def by_parts(net: Any, x: Any, second: int) -> Any:
    """Each half of the result as its own sum; the second half of x begins there."""
    first, other = part(net, x, 0, 4), part(net, x, second, 4)
    cosines, sines = net.random(3, 4), net.random(3, 4)
    products = [net.add("Mul", a, t) for t in (cosines, sines) for a in (first, other)]
    real = net.add("Sub", products[0], products[3])
    return net.add("Concat", real, net.add("Add", products[1], products[2]), axis=-1)


@pytest.mark.parametrize(("second", "found"), [(4, True), (0, False), (3, False)])
def test_halves_of_the_result_are_one_layer(net, second, found):
    net.mark_output(by_parts(net, net.x("n", 2, 3, 8), second), "y")
    assert ("RotaryEmbedding" in kinds(net, "rotary_by_parts")) is found


@pytest.mark.parametrize("case", ["same half twice", "other tables", "parts read", "tables of one"])
def test_what_is_none(net, case):
    x = net.x(2, 3, 8)
    if case == "same half twice":
        y = rotated(net, x, first=4)
    elif case == "other tables":
        y = rotated(net, x, tables=(net.random(4, 2, 3, 8), net.random(8)))
    elif case == "tables of one":
        y = rotated(net, x, tables=(net.random(3, 1), net.random(3, 1)))
    else:
        y = rotated(net, x)
        net.mark_output(net.add("Exp", y.producer.inputs[1]), "z")
    net.mark_output(y, "y")
    assert "RotaryEmbedding" not in kinds(net, "rotary")


@pytest.mark.parametrize(
    ("case", "rotations"),
    [("plain", 1), ("bias", 1), ("other tables", 2), ("a bias alone", 1), ("read twice", 2)],
)
def test_one_product_is_turned_at_once(net, case, rotations):
    """q of four heads and k of two, which share keys; values beside them stay."""
    x, tables = net.x("n", 3, 5), [net.random(3, 8) for _ in range(4)]
    parts = []
    for i, heads in enumerate((4, 2, 2)):
        y = net.add("MatMul", x, net.random(5, heads * 8))
        if case == "bias" or (case == "a bias alone" and not i):
            y = net.add("Add", y, net.random(heads * 8))
        if case == "read twice" and i == 1:
            net.mark_output(y, "k")
        y = net.add("Reshape", y, shape=(x.spec.shape[0], 3, heads, 8))
        y = net.add("Transpose", y, perm=TURN)
        own = tables[2:] if case == "other tables" and i else tables[:2]
        parts.append(rotated(net, y, tables=own) if i < 2 else y)
    y = net.add("Attention", *parts, scale=0.5)
    net.mark_output(net.add("Transpose", y, perm=TURN), "y")
    found = kinds(net)
    assert found.count("RotaryEmbedding") == rotations
    assert ("Transpose" in found) is False
    assert sum("MatMul" in k for k in found) == (1 if rotations == 1 else 3)


def test_attention_reads_rows_of_tokens(net):
    parts = []
    for name in "qkv":
        x = net.add("Reshape", net.x(1, 3, 16, name=name), shape=(1, 3, 2, 8))
        x = net.add("Transpose", x, perm=TURN)
        parts.append(x if name == "v" else rotated(net, x))
    y = net.add("Attention", *parts, scale=0.5)
    net.mark_output(net.add("Relu", net.add("Transpose", y, perm=TURN)), "y")
    found = [k for k in kinds(net) if k != "Reshape"]
    assert found == ["RotaryEmbedding", "RotaryEmbedding", "TokenAttention+Relu"]
