"""Large windows of MaxPool taken apart by axes: the same numbers to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules.pool import RULES
from tactix_sdk.evaluate import evaluate


def rewritten(net: Any) -> list[str]:
    """The layers after the rule, whose numbers are those before."""
    out, _ = fuse(net, RULES)
    verify(out, deep=True)
    (x,) = net.inputs
    shape = x.spec.at(dict.fromkeys(net.symbols(), 11))
    values = np.random.default_rng(1).standard_normal(shape) * 50
    if x.spec.dtype.is_float:
        values[..., 3] = np.nan
        values[..., 5] = -np.inf
    feed = {x.name: values.astype(x.spec.dtype.numpy)}
    np.testing.assert_array_equal(evaluate(out, feed)["y"], evaluate(net, feed)["y"])
    return [n.layer.name for n in out.nodes]


@pytest.mark.parametrize("dtype", ["f32", "i8"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": (5, 5), "pads": (2, 2, 2, 2)},
        {"kernel_shape": (7, 4), "strides": (2, 3), "pads": (0, 3, 1, 0), "ceil_mode": True},
        {"kernel_shape": (5, 5), "dilations": (2, 1)},
    ],
    ids=str,
)
def test_planes(net, attrs, dtype):
    net.mark_output(net.add("MaxPool", net.x(2, 3, 12, "w", dtype=dtype), **attrs), "y")
    assert rewritten(net) == ["MaxPool", "MaxPool"]


def test_volumes(net):
    net.mark_output(net.add("MaxPool", net.x(1, 2, 5, 6, 7), kernel_shape=(3, 3, 3)), "y")
    assert rewritten(net) == ["MaxPool"] * 3


@pytest.mark.parametrize("kernel", [(3, 3), (1, 30), (4, 5)])
def test_small_windows_and_lines_stay(net, kernel):
    net.mark_output(net.add("MaxPool", net.x(1, 2, 9, 40), kernel_shape=kernel), "y")
    assert rewritten(net) == ["MaxPool"]
