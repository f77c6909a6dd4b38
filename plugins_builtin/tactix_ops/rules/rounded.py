"""Where products are of bfloat16, tensors between kernels are stored so: a residual, and what is
pooled or joined.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, pointwise, var
from tactix_ops.rules.anchors import takes_epilogue
from tactix_ops.rules.facts import again, used_only_by

_low = partial(Rule, numerics="bf16", device="cpu", phase="fuse")
MOVES = (P.tactix.Transpose, P.tactix.Reshape)


def rounds(node: Node) -> bool:
    """Whether the node is a rounding to bfloat16 and nothing else."""
    return (
        node.layer.key == "tactix.Cast@1"
        and node.attrs.to is DType.BF16
        and node.given[0].spec.dtype is DType.FP32
    )


def roundings(x: Value, graph: Any) -> list[Node]:
    """Nodes that round the tensor, in the model's order."""
    return sorted({n for n, _ in graph.uses(x) if rounds(n)}, key=graph.position)


def rounded(x: Value, root: Node, graph: Any) -> Value | Op:
    """The tensor rounded to bfloat16: as it is for a node before ``root``, or by a new one."""
    twins = roundings(x, graph)
    earlier = bool(twins) and graph.position(twins[0]) < graph.position(root)
    return twins[0].outputs[0] if earlier else P.tactix.Cast(x, to=DType.BF16)


# -- stored so -----------------------------------------------------------------------------------


def _is_product(x: Value) -> bool:
    """Whether a convolution of bfloat16 makes the tensor."""
    return (
        x.producer is not None
        and takes_epilogue(x.producer)
        and x.producer.kind == "tactix.WideConvolution@1"
    )


def _is_residual(root: Node, x: Value, graph: Any) -> bool:
    """Whether one node reads what a product made, and joins another that comes later."""
    p, shape = x.producer, root.outputs[0].spec.shape
    if p is None or not _is_product(x) or not used_only_by(graph, x, root):
        return False
    others = [
        v.producer for v in root.given if v is not x and v.spec.shape == shape == x.spec.shape
    ]
    later = [
        o
        for o in others
        if o is not None and takes_epilogue(o) and graph.position(o) > graph.position(p)
    ]
    return bool(later)


def _is_signal(x: Value, graph: Any) -> bool:
    """Whether a convolution of bfloat16 reads the tensor: it has pixels or samples in rows, and is
    no sequence of a transformer, whose sums over many layers stay in float32.
    """
    readers = [n for r in roundings(x, graph) for n, _ in graph.uses(r.outputs[0])]
    return any(n.kind == "tactix.WideConvolution@1" for n in readers)


def _stored(root: Node, graph: Any) -> Value | None:
    """An image or a signal in float32 that the node may read rounded."""
    if rounds(root) or root.is_fused:
        return None
    for x in root.given:
        if (
            x.spec.dtype is not DType.FP32
            or x.producer is None
            or graph.is_output(x)
            or not (x.spec.rank >= 4 or _is_signal(x, graph))
        ):
            continue
        twins = roundings(x, graph)
        if (twins and graph.position(twins[0]) < graph.position(root)) or _is_residual(
            root, x, graph
        ):
            return x
    return None


def _reads_rounded(root: Node, graph: Any) -> Op:
    x = _stored(root, graph)
    assert x is not None
    wide = P.tactix.Cast(rounded(x, root, graph), to=DType.FP32)
    return again(root, [wide if v is x else v for v in root.inputs])


def _stored_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 5, 2, 3])
    (y,) = net.add_layer("tactix.CumSum", [x], axis=1)
    (z,) = net.add_layer("tactix.Cast", [y], to=DType.BF16)
    net.mark_output(net.add_layer("tactix.Transpose", [z], perm=(1, 0, 2, 3))[0], "z")
    net.mark_output(net.add_layer("tactix.Mul", [y, x])[0], "y")


# -- before it moves -----------------------------------------------------------------------------


def _pooled(root: Node, pool: Node, x: Value, graph: Any) -> Op:
    return again(pool, [rounded(x, pool, graph)])


def _pooled_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 2, 5, 5])
    (y,) = net.add_layer("tactix.MaxPool", [x], kernel_shape=(2, 2))
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.BF16)[0], "y")


def _gates(root: Node, x: Value, graph: Any) -> bool:
    """Whether the means of a product's channels go to what others make of the product: squeeze and
    excitation.
    """
    return x.spec.dtype is DType.FP32 and _is_product(x) and not used_only_by(graph, x, root)


def _averaged(root: Node, x: Value, graph: Any) -> Op:
    return P.tactix.WideGlobalAveragePool(rounded(x, root, graph))


def _averaged_example(net: Any) -> None:
    rng = np.random.default_rng(4)
    w = net.add_constant(
        rng.standard_normal((4, 3, 1, 1), dtype=np.float32).astype(DType.BF16.numpy)
    )
    (y,) = net.add_layer("tactix.WideConvolution", [net.add_input("x", "bf16", ["n", 3, 5, 5]), w])
    (gate,) = net.add_layer("tactix.GlobalAveragePool", [y])
    net.mark_output(net.add_layer("tactix.Mul", [y, gate])[0], "y")


def _joined(root: Node, join: Node, graph: Any) -> Op:
    return again(join, [rounded(v, join, graph) for v in join.given])


def _joins(root: Node, join: Node) -> bool:
    return rounds(root) and all(v.const is None for v in join.given)


def _joined_example(net: Any) -> None:
    x, y = (net.add_input(n, "f32", ["n", 3, 4]) for n in "xy")
    (z,) = net.add_layer("tactix.Concat", [x, y], axis=1)
    net.mark_output(net.add_layer("tactix.Cast", [z], to=DType.BF16)[0], "z")


def _moved(root: Node, move: Node, x: Value) -> Op:
    return P.tactix.Cast(again(move, [x]), to=DType.FP32)


def _moved_example(net: Any) -> None:
    (x,) = net.add_layer("tactix.Cast", [net.add_input("x", "bf16", ["n", 3])], to=DType.FP32)
    (y,) = net.add_layer("tactix.Transpose", [x], perm=(1, 0))
    net.mark_output(net.add_layer("tactix.Softmax", [y])[0], "y")


def _rounded_first(root: Node, move: Node, x: Value, graph: Any) -> Op:
    """What is moved are half the bytes, and the rounding may join what makes the tensor."""
    return again(move, [rounded(x, move, graph)])


def _rounded_first_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 6])
    (y,) = net.add_layer("tactix.CumSum", [x], axis=1)
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 2, 1))
    net.mark_output(net.add_layer("tactix.Cast", [y], to=DType.BF16)[0], "y")


def _is_half(x: Value) -> bool:
    return x.spec.dtype is DType.BF16


def _widened_example(net: Any) -> None:
    (x,) = net.add_layer("tactix.Cast", [net.add_input("x", "bf16", ["n", 3])], to=DType.FP32)
    (y,) = net.add_layer("tactix.Cast", [x], to=DType.BF16)
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


RULES = (
    _low(
        "tactix.stored_rounded",
        pointwise(),
        _reads_rounded,
        lambda root, graph: _stored(root, graph) is not None,
        benefit=95,
        exclusive=False,
        example=_stored_example,
    ),
    _low(
        "tactix.pooled_rounded",
        P.tactix.Cast(P.tactix.MaxPool(var("x")) >> "pool", to=DType.BF16),
        _pooled,
        lambda root: rounds(root),
        benefit=95,
        example=_pooled_example,
    ),
    _low(
        "tactix.averaged_rounded",
        P.tactix.GlobalAveragePool(var("x")),
        _averaged,
        _gates,
        benefit=95,
        example=_averaged_example,
    ),
    _low(
        "tactix.joined_rounded",
        P.tactix.Cast(Op("tactix.Concat", None, bind="join"), to=DType.BF16),
        _joined,
        _joins,
        benefit=95,
        example=_joined_example,
    ),
    _low(
        "tactix.rounded_before_moving",
        any_of(*(P.tactix.Cast(m(var("x")) >> "move", to=DType.BF16) for m in MOVES)),
        _rounded_first,
        lambda root, x: rounds(root) and x.const is None,
        benefit=95,
        example=_rounded_first_example,
    ),
    _low(
        "tactix.widened_after_moving",
        any_of(*(m(P.tactix.Cast(var("x"), to=DType.FP32)) >> "move" for m in MOVES)),
        _moved,
        _is_half,
        benefit=95,
        example=_moved_example,
    ),
    _low(
        "tactix.widened_and_rounded",
        P.tactix.Cast(P.tactix.Cast(var("x"), to=DType.FP32), to=DType.BF16),
        lambda x: x,
        _is_half,
        benefit=99,
        exclusive=False,
        example=_widened_example,
    ),
)
