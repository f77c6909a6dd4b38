"""Weights of few bits are written out for GPUs; on a processor they stay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules, graphics_rules, processor_rules

RNG = np.random.default_rng(38)


def product(net, zero, dtype="f32"):
    """Rows of 40 numbers times 5 rows of 4 bits."""
    raw = net.c(RNG.integers(0, 256, (5, 2, 16)), np.uint8)
    scale = net.c(RNG.uniform(0.1, 0.2, (5, 2)))
    zeros = [net.c(RNG.integers(0, 16, (5, 2)), np.uint8)] if zero else []
    x = net.x("n", 40, dtype=dtype)
    net.mark_output(net.add("FewBitsMatMul", x, raw, scale, *zeros), "y")


@pytest.mark.parametrize("zero", [False, True])
def test_written_out_for_a_gpu(net, zero):
    product(net, zero)
    out, _ = fuse(net, [*all_rules(), *graphics_rules()])
    assert names(out) == ["MatMul"]
    compare(net, out, arrays(net, 3, (4,)))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_kept_on_a_processor(net, dtype):
    """Of 16 bits what it reads and gives is float32, as of other products."""
    product(net, True, dtype)
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    (node,) = (n for n in out.nodes if "FewBitsMatMul" in [b.layer.name for b in n.body.nodes])
    assert node.given[0].spec.dtype.value == "f32"
