"""Chains: a layer joins the one that makes its input, though neither is pointwise, so that a kernel
can hold what is between them in a cache, some lines at a time.

For processors. A build times the two apart, too (``pipeline/settle.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, P, Rule, anchor, fuse, var
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import used_only_by

CONVOLUTION = "tactix.Convolution@1"
MOST_ROWS = 8
"""Rows of a window: so many lines of a convolution are held. No measurement of it is on record."""


def _convolution(x: Value, root: Node, graph: Any) -> Node | None:
    """The convolution in float32, with constant weights, whose results that node alone reads."""
    p = x.producer
    own = p.anchor if p is not None else None
    if p is None or own is None or own.layer.key != CONVOLUTION or p.body.anchor != 0:
        return None
    w = p.given[own.inputs[1]]
    floats = all(v.spec.dtype is DType.FP32 for v in (*(p.given[i] for i in own.inputs[:2]), x))
    alone = len(p.outputs) == 1 and used_only_by(graph, x, root) and w.const is not None
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES
    return p if floats and alone and few else None


def _window(p: Node) -> tuple[Any, ...]:
    """Sizes of the window of a convolution with constant weights."""
    assert p.anchor is not None
    return tuple(p.given[p.anchor.inputs[1]].spec.shape[2:])


def _pooled(root: Node, graph: Any) -> Node | None:
    """The convolution of an image, over more than single pixels, of which the node pools all."""
    (x,) = root.given
    p = _convolution(x, root, graph)
    if p is None or x.spec.rank != 4 or all(d == 1 for d in _window(p)):
        return None
    dense = all(d == 1 for d in root.attrs.dilations)
    return p if dense and root.attrs.kernel_shape[0] <= MOST_ROWS else None


def _expanded(root: Node, graph: Any) -> Node | None:
    """The convolution of single pixels whose results the node reads, which is a depthwise one and
    has what follows it.
    """
    own = root.anchor
    if own is None or own.layer.key != CONVOLUTION or root.body.anchor != 0:
        return None
    x, w = (root.given[i] for i in own.inputs[:2])
    deep = own.attrs.group == x.spec.shape[1] == w.spec.shape[0] and w.const is not None
    if not deep or _awaits(root, graph):
        return None
    p = _convolution(x, root, graph)
    few = isinstance(high := w.spec.shape[2], int) and high <= MOST_ROWS
    return p if p is not None and few and _is_single(p) else None


def _is_single(p: Node) -> bool:
    """Whether a convolution is one of single pixels, side by side, without groups."""
    assert p.anchor is not None
    a = p.anchor.attrs
    plain = all(s == 1 for s in a.strides) and not any(a.pads) and a.group == 1
    return plain and all(d == 1 for d in _window(p))


def _awaits(root: Node, graph: Any) -> bool:
    """Whether a pointwise layer, or a mean of all pixels, may still join the node."""
    (y, *more) = root.outputs
    readers = [n for n, _ in graph.uses(y)]
    alone = len(readers) == 1 and readers[0].is_pointwise
    return not more and (alone or any(n.layer.summarizes for n in readers))


def _pool(root: Node, graph: Any) -> Fuse:
    return fuse(_pooled(root, graph), root)


def _expand(root: Node, graph: Any) -> Fuse:
    return fuse(_expanded(root, graph), root)


def _pool_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 3, 9, "w"])
    w = net.add_constant(rng.standard_normal((5, 3, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], pads=(1, 1, 1, 1))
    pool = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    net.mark_output(net.add_layer("tactix.MaxPool", [y], **pool)[0], "y")


def _expand_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 3, 5, "w"])
    w = net.add_constant(rng.standard_normal((7, 3, 1, 1), dtype=np.float32))
    d = net.add_constant(rng.standard_normal((7, 1, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w])
    net.mark_output(net.add_layer("tactix.Convolution", [y, d], pads=(1, 1, 1, 1), group=7)[0], "y")


RULES = (
    Rule(
        "tactix.pooling_of_convolution",
        P.tactix.MaxPool(var("x")),
        _pool,
        lambda root, graph: _pooled(root, graph) is not None,
        benefit=10,
        example=_pool_example,
        phase="fuse",
        device="cpu",
    ),
    Rule(
        "tactix.depthwise_of_pointwise",
        anchor(),
        _expand,
        lambda root, graph: _expanded(root, graph) is not None,
        benefit=10,
        example=_expand_example,
        phase="fuse",
        device="cpu",
    ),
)
