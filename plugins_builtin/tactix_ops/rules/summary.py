"""Means over the pixels of an image that a depthwise convolution makes: it takes them on the way,
where others read the image, too (squeeze and excitation).

For processors: the image is not read again, which threads would have to fetch from each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.rule import Fuse, P, Rule, any_of, fuse, var

CONVOLUTIONS = frozenset({"Convolution", "WideConvolution"})
FLOATS = (DType.FP32, DType.BF16)


def _maker(root: Node, graph: Any) -> Node | None:
    """The depthwise convolution that makes what the node takes the mean of."""
    (x,) = root.given
    p = x.producer
    own = p.anchor if p is not None else None
    if p is None or own is None or own.layer.name not in CONVOLUTIONS or p.body.anchor != 0:
        return None
    made, w = (p.given[own.inputs[i]] for i in range(2))
    channels, sizes = made.spec.shape[1], x.spec.shape[2:]
    depthwise = own.attrs.group == channels == w.spec.shape[0]
    shared = (len(graph.uses(x)) > 1 or graph.is_output(x)) and len(p.outputs) == 1
    floats = all(v.spec.dtype in FLOATS for v in (made, w, x))
    floats = floats and root.outputs[0].spec.dtype is DType.FP32
    known = len(sizes) <= 2 and all(isinstance(d, int) for d in sizes) and w.const is not None
    return p if depthwise and shared and floats and known else None


def _join(root: Node, graph: Any) -> Fuse:
    return fuse(_maker(root, graph), root)


def _example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 5, 4, 3])
    w = net.add_constant(rng.standard_normal((5, 1, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], pads=(1, 1, 1, 1), group=5)
    net.mark_output(y, "y")
    net.mark_output(net.add_layer("tactix.GlobalAveragePool", [y])[0], "mean")


RULES = (
    Rule(
        "tactix.mean_of_depthwise",
        any_of(P.tactix.GlobalAveragePool(var("x")), P.tactix.WideGlobalAveragePool(var("x"))),
        _join,
        lambda root, graph: _maker(root, graph) is not None,
        benefit=12,
        numerics="reassociates",
        example=_example,
        phase="fuse",
        device="cpu",
    ),
)
