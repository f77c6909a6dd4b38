"""Chains: a layer joins the one that makes its input, though neither is pointwise, so that a kernel
can hold what is between them in a cache, some lines at a time.

For processors, and on CUDA for what an image network begins with. A build times the two apart, too
(``pipeline/settle.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, P, Rule, anchor, fuse, var
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import used_only_by

CONVOLUTION = "tactix.Convolution@1"
FIRST_KINDS = (CONVOLUTION, "tactix.IntegerConvolution@1")
FIRST_DTYPES = (DType.FP16, DType.BF16, DType.INT8, DType.UINT8)
"""Kinds and elements of convolutions that are pooled in one on CUDA."""
MOST_CHANNELS, MOST_OUTPUTS = 4, 64
"""Of an image network's first layer, whose results are many times what it reads and what is pooled;
with more of them a block would hold few results.
"""
MOST_ROWS = 8
"""Rows of a window: so many lines of a convolution are held. No measurement of it is on record."""


def _before(x: Value, root: Node, graph: Any, kinds: Sequence[str]) -> Node | None:
    """The convolution with constant weights whose results that node alone reads."""
    p = x.producer
    own = p.anchor if p is not None else None
    if p is None or own is None or own.layer.key not in kinds or p.body.anchor != 0:
        return None
    alone = len(p.outputs) == 1 and used_only_by(graph, x, root)
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES
    return p if alone and few and p.given[own.inputs[1]].const is not None else None


def _operands(p: Node) -> tuple[Value, ...]:
    """What a convolution reads of pixels, and of weights."""
    assert p.anchor is not None
    return tuple(p.given[i] for i in p.anchor.inputs[:2])


def _convolution(x: Value, root: Node, graph: Any) -> Node | None:
    """The same in float32."""
    p = _before(x, root, graph, (CONVOLUTION,))
    floats = p is not None and all(v.spec.dtype is DType.FP32 for v in (*_operands(p), x))
    return p if floats else None


def _window(p: Node) -> tuple[Any, ...]:
    """Sizes of the window of a convolution with constant weights."""
    return tuple(_operands(p)[1].spec.shape[2:])


def _pooled(root: Node, graph: Any) -> Node | None:
    """The convolution of an image, over more than single pixels, of which the node pools all."""
    (x,) = root.given
    p = _convolution(x, root, graph)
    if p is None or x.spec.rank != 4 or all(d == 1 for d in _window(p)):
        return None
    dense = all(d == 1 for d in root.attrs.dilations)
    return p if dense and root.attrs.kernel_shape[0] <= MOST_ROWS else None


def _first_pooled(root: Node, graph: Any) -> Node | None:
    """The convolution of an image of few channels, in 16 bits or bytes, of which the node pools
    all.
    """
    (x,) = root.given
    p = _before(x, root, graph, FIRST_KINDS)
    if p is None or p.anchor is None or x.spec.rank != 4 or all(d == 1 for d in _window(p)):
        return None
    image, w = _operands(p)
    low = image.spec.dtype in FIRST_DTYPES and x.spec.dtype in FIRST_DTYPES
    sizes = zip(w.spec.shape[:2], (MOST_OUTPUTS, MOST_CHANNELS), strict=True)
    few = all(isinstance(d, int) and d <= most for d, most in sizes)
    dense = all(d == 1 for d in root.attrs.dilations)
    return p if low and few and dense and p.anchor.attrs.group == 1 else None


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


def _pool_first(root: Node, graph: Any) -> Fuse:
    return fuse(_first_pooled(root, graph), root)


def _expand(root: Node, graph: Any) -> Fuse:
    return fuse(_expanded(root, graph), root)


def _pool_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f32", ["n", 3, 9, "w"])
    w = net.add_constant(rng.standard_normal((5, 3, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], pads=(1, 1, 1, 1))
    pool = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    net.mark_output(net.add_layer("tactix.MaxPool", [y], **pool)[0], "y")


def _pool_first_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x = net.add_input("x", "f16", ["n", 3, 9, "w"])
    w = net.add_constant(rng.standard_normal((16, 3, 3, 3)).astype(np.float16))
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
        "tactix.pooling_of_first_convolution",
        P.tactix.MaxPool(var("x")),
        _pool_first,
        lambda root, graph: _first_pooled(root, graph) is not None,
        benefit=10,
        example=_pool_first_example,
        phase="fuse",
        device="cuda",
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
