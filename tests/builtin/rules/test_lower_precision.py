"""Which products are computed in bfloat16 on a CPU."""

from __future__ import annotations

import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import lower_precision


@pytest.mark.parametrize(
    ("weights", "group", "lowered"),
    [
        ((32, 16, 3, 3), 2, True),
        ((24, 8, 3, 3), 3, True),
        ((24, 4, 3, 3, 3), 6, True),
        ((6, 1, 3), 6, True),
        ((6, 2, 3), 3, False),
        ((24, 4, 3), 3, False),
    ],
)
def test_groups_of_whole_and_of_parts_of_blocks(net, weights, group, lowered):
    x = net.x("n", weights[1] * group, *(5,) * (len(weights) - 2))
    net.mark_output(net.add("Convolution", x, net.random(*weights), group=group), "y")
    out, trace = fuse(net, lower_precision.RULES)
    assert trace.counts.get("tactix.bf16_convolution", 0) == lowered
    assert any(n.layer.name == "WideConvolution" for n in out.nodes) == lowered
