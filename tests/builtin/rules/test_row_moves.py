"""Rows that are moved several times: which chains are one Gather, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import row_moves
from tactix_sdk.evaluate import evaluate


def kinds(net: Any) -> list[str]:
    """Layers after the rule; the numbers stay."""
    out, _ = fuse(net, row_moves.RULES)
    rng = np.random.default_rng(4)
    sizes = dict.fromkeys(net.symbols(), 2)
    feed = {v.name: rng.standard_normal(v.spec.at(sizes), dtype=np.float32) for v in net.inputs}
    want, got = evaluate(net, feed), evaluate(out, feed)
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)
    return [n.layer.name for n in out.nodes if n.layer.name != "Reshape"]


def windows(net: Any, x: Any, size: int = 4) -> Any:
    n, h, w, c = x.spec.shape
    y = net.add("Reshape", x, shape=(n, h // 2, 2, w // 2, 2, c))
    return net.add("Transpose", y, perm=(0, 1, 3, 2, 4, 5))


def test_examples_fire_alone(net):
    row_moves.RULES[0].example(net)
    assert kinds(net) == ["Exp", "Gather", "Exp"]


def test_windows_of_rolled_tokens_and_back(net):
    x = net.add("Exp", net.x(2, 4, 6, 5))
    y = windows(net, net.add("Roll", x, axes=(2, 1), begins=(5, 1)))
    y = net.add("Exp", net.add("Reshape", y, shape=(12, 4, 5)))
    y = net.add(
        "Transpose", net.add("Reshape", y, shape=(2, 2, 3, 2, 2, 5)), perm=(0, 1, 3, 2, 4, 5)
    )
    y = net.add("Roll", net.add("Reshape", y, shape=(2, 4, 6, 5)), axes=(1, 2), begins=(3, 1))
    net.mark_output(y, "y")
    assert kinds(net) == ["Exp", "Gather", "Exp", "Gather"]


@pytest.mark.parametrize(
    "case", ["once", "read between", "open sizes", "columns move", "columns seen"]
)
def test_what_stays(net, case):
    x = net.add("Exp", net.x("n" if case == "open sizes" else 2, 4, 6, 5))
    y = x if case == "once" else net.add("Roll", x, axes=(1,), begins=(1,))
    if case == "read between":
        net.mark_output(net.add("Exp", y), "z")
    if case == "columns move":
        y = net.add("Transpose", y, perm=(0, 1, 3, 2))
    if case == "columns seen":
        y = net.add("Reshape", y, shape=(2, 4, 3, 10))
        y = net.add("Transpose", y, perm=(0, 2, 1, 3))
    else:
        y = (
            windows(net, y)
            if case != "columns move"
            else net.add("Roll", y, axes=(1,), begins=(1,))
        )
    net.mark_output(y, "y")
    assert "Gather" not in kinds(net)
