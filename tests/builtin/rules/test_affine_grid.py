"""AffineGrid of a known size as pointwise layers: the numbers of its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules.affine_grid import RULES
from tactix_sdk.evaluate import evaluate


def rewritten(net: Any, batch: int) -> list[str]:
    """The layers after the rule, whose numbers are compared."""
    out, _ = fuse(net, RULES)
    verify(out, deep=True)
    (theta,) = net.inputs
    shape = theta.spec.at(dict.fromkeys(net.symbols(), batch))
    feed = {
        theta.name: np.random.default_rng(1).standard_normal(shape).astype(theta.spec.dtype.numpy)
    }
    want, got = evaluate(net, feed)["y"], evaluate(out, feed)["y"]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    bound = 1e-6 if theta.spec.dtype is DType.FP32 else 2e-3
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=bound, atol=bound)
    return [n.layer.name for n in out.nodes]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("sizes", [(4, 5), (1, 3), (2, 3, 4)], ids=str)
def test_sums_of_rows_and_columns(net, sizes, align, dtype):
    n = len(sizes)
    theta = net.x("n", n, n + 1, dtype=dtype)
    size = net.c((3, 1, *sizes), np.int64)
    net.mark_output(net.add("AffineGrid", theta, size, align_corners=align), "y")
    assert "AffineGrid" not in rewritten(net, 3)


def test_a_size_that_running_tells_stays(net):
    theta, size = net.x(2, 2, 3), net.x(4, name="size", dtype="i64")
    net.mark_output(net.add("AffineGrid", theta, size), "y")
    out, _ = fuse(net, RULES)
    assert [n.layer.name for n in out.nodes] == ["AffineGrid"]
