"""What a plan tells of the build that made it."""

from __future__ import annotations

import numpy as np
import pytest

import tactix
from tactix.base.dtypes import DType


@pytest.mark.parametrize(("dtype", "tells"), [("f32", False), ("f16", False), ("i8", True)])
def test_nodes_that_no_rule_has_seen_are_told_where_numbers_are_quantized(
    dtype: str, tells: bool
) -> None:
    builder = tactix.Builder()
    net = builder.create_network()
    (y,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", [4])], "relu")
    if dtype == "i8":
        scale = net.add_constant(np.float32(0.1))
        (y,) = net.add_layer("tactix.QuantizeLinear", [y, scale], "bytes")
    elif dtype == "f16":
        (y,) = net.add_layer("tactix.Cast", [y], "narrow", to=DType.FP16)
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    source = builder.build_plan(net, config).ledger["source"]
    assert ("relu" in source) is tells
