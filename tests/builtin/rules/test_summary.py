"""Means that a depthwise convolution takes on the way, and those that it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.fuse.split import split
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, summary
from tactix_sdk.evaluate import evaluate


def layers(net: Any) -> list[str]:
    """Layers after all rules; the numbers stay."""
    out, _ = fuse(net, [*summary.RULES, *all_rules()])
    verify(out, deep=True)
    same(net, out)
    return kinds(out)


def kinds(net: Any) -> list[str]:
    return ["+".join(b.layer.name for b in n.body.nodes) for n in net.nodes]


def same(net: Any, other: Any) -> None:
    rng = np.random.default_rng(4)
    sizes = dict.fromkeys(net.symbols(), 3)
    feed = {v.name: rng.standard_normal(v.spec.at(sizes)).astype("f4") for v in net.inputs}
    want, got = evaluate(net, feed), evaluate(other, feed)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5)


def excited(net: Any, group: int = 16, size: Any = 5, shared: bool = True) -> None:
    x = net.x("n", 16, size, 5)
    y = net.add("Convolution", x, net.random(16, 16 // group, 3, 3), pads=(1,) * 4, group=group)
    y = net.add("Relu", y)
    mean = net.add("GlobalAveragePool", y)
    net.mark_output(net.add("Mul", y, mean) if shared else mean, "y")


def test_the_example_fires(net):
    summary.RULES[0].example(net)
    assert layers(net) == ["Convolution+GlobalAveragePool"]


def test_a_mean_joins_what_makes_the_image(net):
    excited(net)
    assert layers(net) == ["Convolution+Relu+GlobalAveragePool", "Mul"]


def test_a_mean_of_halves_joins(net):
    x, w = net.x("n", 16, 5, 5, dtype="bf16"), net.c(np.ones((16, 1, 3, 3)), DType.BF16.numpy)
    y = net.add("WideConvolution", x, w, pads=(1,) * 4, group=16)
    y = net.add("Cast", net.add("Relu", y), to=DType.BF16)
    net.mark_output(y, "y")
    net.mark_output(net.add("WideGlobalAveragePool", y), "mean")
    out, _ = fuse(net, [*summary.RULES, *all_rules()])
    assert kinds(out) == ["WideConvolution+Relu+Cast+WideGlobalAveragePool"]


@pytest.mark.parametrize("changed", [{"group": 8}, {"size": "h"}, {"shared": False}])
def test_others_stay_by_themselves(net, changed):
    excited(net, **changed)
    assert layers(net)[:2] == ["Convolution+Relu", "GlobalAveragePool"]


def test_what_no_kernel_takes_is_taken_apart(net):
    excited(net)
    out, _ = fuse(net, [*summary.RULES, *all_rules()])
    split(out, out.nodes[0])
    assert kinds(out) == ["Convolution+Relu", "GlobalAveragePool", "Mul"]
    verify(out, deep=True)
    same(net, out)
