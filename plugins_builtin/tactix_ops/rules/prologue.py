"""Prologues: a pointwise node of one tensor joins the reduction that alone reads its result; of a
tensor and a number for each result (the mean, of a variance), too. So does one of an image and
numbers for its channels (the gates of squeeze and excitation) join the convolution by single pixels
that reads it, of float32 or of bfloat16; there the rounding before it joins with them.

For processors, whose kernels of these pass what they load through an expression.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, Rule, anchor, fuse
from tactix_codegen.c.tile import is_light
from tactix_codegen.operations.reduce import axes_of, kept_shape
from tactix_ops.rules.anchors import expressions, in_vectors
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import used_only_by
from tactix_ops.rules.rounded import rounds

REDUCTIONS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
FEWEST_CHANNELS = 16
"""Channels of an image below which what is saved is little: it takes as long as one pass of the
convolution's sums over a block of channels. No measurement of it is on record.
"""
FEW_OPERATIONS = 20
"""Cheap operations, leaves counted, that may stand before a convolution, which computes them once
for every element, or once for each thread where these share channels: a gate and a HardSwish, 12,
are to fit. No measurement of the number is on record.
"""
CONVOLUTIONS = {"Convolution": DType.FP32, "WideConvolution": DType.BF16}
"""What kernels that take something before a convolution multiply."""
NARROW = (DType.FP32, DType.FP16, DType.BF16)


def _before(root: Node, graph: Any) -> Node | None:
    """What makes the reduction's input, element by element, of one tensor that is like it, and at
    most one that is like the results.
    """
    own = root.anchor
    if own is None or own.layer.name not in REDUCTIONS or root.body.anchor != 0:
        return None
    x = root.given[0]
    p = x.producer
    if p is None or p.anchor is not None or not used_only_by(graph, x, root):
        return None
    source, *others = dict.fromkeys(p.given)
    held = kept_shape(x.spec.shape, axes_of(own, x.spec.rank))
    beside = [v.spec for v in others if v.spec.dtype is x.spec.dtype and v.spec.shape == held]
    alike = source.spec == x.spec and len(beside) == len(others) <= 1
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES
    return p if alike and few and x.spec.dtype in NARROW and in_vectors(p) else None


def _join(root: Node, graph: Any) -> Fuse:
    return fuse(_before(root, graph), root)


def _prepares(root: Node, graph: Any) -> Node | None:
    """What makes the image of a convolution by single pixels, element by element and with few
    operations, of an image and of numbers for its channels.
    """
    own = root.anchor
    if own is None or own.layer.name not in CONVOLUTIONS or root.body.anchor != 0:
        return None
    x, w = (root.given[i] for i in own.inputs[:2])
    p = x.producer
    if p is None or not _is_ready(p, graph) or not used_only_by(graph, x, root):
        return None
    whole = [v for v in dict.fromkeys(p.given) if v.spec.shape == x.spec.shape]
    beside = [v for v in p.given if v not in whole]
    per_channel = all(all(d == 1 for d in v.spec.shape[2:]) for v in beside)
    ranks = {v.spec.rank for v in beside if v.const is None} <= {x.spec.rank}
    few = len(p.body.nodes) + len(root.body.nodes) <= MAX_NODES
    light = few and in_vectors(p) and is_light(expressions(p).program.results, FEW_OPERATIONS)
    fits = len(whole) == 1 and whole[0].const is None and per_channel and ranks
    alike = x.spec.dtype is w.spec.dtype is CONVOLUTIONS[own.layer.name] and w.const is not None
    return p if fits and light and alike and _by_single_pixels(own.attrs, x, w) else None


def _is_ready(p: Node, graph: Any) -> bool:
    """Whether the node is pointwise, all that joins it has done so, and it does more than round."""
    makers = [v.producer for v in p.given if used_only_by(graph, v, p)]
    awaits = any(m is not None and m.anchor is None for m in makers)
    return p.anchor is None and not awaits and not rounds(p)


def _by_single_pixels(a: Any, x: Value, w: Value) -> bool:
    """Whether kernels take something before this convolution, by its geometry."""
    single = all(d == 1 for d in w.spec.shape[2:]) and all(s == 1 for s in a.strides)
    channels = x.spec.shape[1]
    wide = isinstance(channels, int) and channels >= FEWEST_CHANNELS
    return single and wide and not any(a.pads) and a.group == 1


def _prepare(root: Node, graph: Any) -> Fuse:
    return fuse(_prepares(root, graph), root)


def _gate_example(net: Any) -> None:
    rng = np.random.default_rng(8)
    x, g = net.add_input("x", "f32", ["n", 16, 3, "w"]), net.add_input("g", "f32", ["n", 16, 1, 1])
    w = net.add_constant(rng.standard_normal((5, 16, 1, 1), dtype=np.float32))
    (y,) = net.add_layer("tactix.Mul", [x, g])
    net.mark_output(net.add_layer("tactix.Convolution", [y, w])[0], "y")


def _example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 5])
    (y,) = net.add_layer("tactix.Mul", [x, x])
    (y,) = net.add_layer("tactix.ReduceSum", [y], axes=(-1,), keepdims=False)
    net.mark_output(net.add_layer("tactix.Sqrt", [y])[0], "y")


RULES = (
    Rule(
        "tactix.prologue_of_reduction",
        anchor(),
        _join,
        lambda root, graph: _before(root, graph) is not None,
        benefit=15,
        example=_example,
        phase="fuse",
        device="cpu",
    ),
    Rule(
        "tactix.prologue_of_convolution",
        anchor(),
        _prepare,
        lambda root, graph: _prepares(root, graph) is not None,
        benefit=15,
        example=_gate_example,
        phase="fuse",
        device="cpu",
    ),
)
