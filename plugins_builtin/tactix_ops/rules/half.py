"""float16 on a processor: products read and give float32, and casts round where the network does.

Processors have few instructions for float16, and every kernel of a product is there in float32. A
layer's reference computes in float32 and rounds its results, so a cast to float32 before the layer
and one to float16 after it are the same numbers. Casts join the pointwise layers and epilogues
around, so that tensors between products are float32 that float16 holds; constants are widened at
build. What no product reads is stored in float16 as before. Of bfloat16, products for which there
is no kernel are run so, each by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, anything, literal, pointwise
from tactix_ops.rules.facts import again, fields_of

T = P.tactix
PRODUCTS = frozenset({
    "Convolution", "ConvTranspose", "MatMul", "Gemm", "Attention", "TokenAttention", "LSTM", "GRU",
    "RNN", "FewBitsMatMul", "WideConvolution", "WideConvTranspose", "WideMatMul",
})  # fmt: skip
"""Layers whose kernels do not read float16."""
SCALED = "FewBitsMatMul"
"""A product whose kernels read float16 scales: only its first input is widened."""
HALVES = (DType.FP16, DType.BF16)
SOME_KERNEL = frozenset({
    "LSTM", "GRU", "RNN", "Attention", "TokenAttention",
    "WideConvolution", "WideConvTranspose", "WideMatMul",
})  # fmt: skip
"""Products that have kernels of bfloat16 where they have those of float32, or are made for them."""
MOVES = frozenset({
    "Reshape", "Transpose", "Slice", "Roll", "Split", "Concat", "Expand", "Tile", "DepthToSpace",
})  # fmt: skip
"""Layers that give elements that they read: what they make of widened numbers needs no rounding."""
READERS = frozenset({
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Softmax", "LogSoftmax",
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization",
    "ReduceMean", "ReduceMax", "ReduceMin",
})  # fmt: skip
"""Layers that read either: float32 where a product does, so that a tensor is stored once."""


def _casts(node: Node | None, to: DType) -> bool:
    """Whether the node is a cast from 16 bits to float32, or from float32, and nothing else."""
    if node is None or node.layer.key != "tactix.Cast@1" or node.attrs.to is not to:
        return False
    return node.given[0].spec.dtype in (HALVES if to is DType.FP32 else (DType.FP32,))


def _is_half(v: Value | None) -> bool:
    return v is not None and v.spec.dtype is DType.FP16


def _is_product(node: Node) -> bool:
    """Whether it is one whose kernels read float32 alone."""
    known = not node.is_fused and node.layer.name in PRODUCTS
    read = node.given[:1] if node.layer.name == SCALED else node.given
    return known and (any(map(_is_half, read)) or _lacks_kernel(node))


def _lacks_kernel(node: Node) -> bool:
    """Whether it is a product of bfloat16 tensors that kernels of bfloat16 do not take."""
    name, x = node.layer.name, node.given[0].spec
    if x.dtype is not DType.BF16 or name in SOME_KERNEL:
        return False
    if name == SCALED:
        return True
    constants = all(v.const is not None for v in node.given[1:])
    if not constants:
        return True
    w = node.given[1].spec
    if name in ("MatMul", "Gemm"):
        return x.rank < 2 or w.rank != 2
    return x.rank > 4 or not (_plain(node) if name == "Convolution" else _apart(node))


def _plain(node: Node) -> bool:
    """Whether sizes of a convolution's image are known, and it is of one group, or depthwise."""
    x, w, group = node.given[0].spec, node.given[1].spec, node.attrs.group
    sizes = (*x.shape[1:], *node.attrs.pads)
    return all(isinstance(d, int) for d in sizes) and (
        group == 1 or group == x.shape[1] == w.shape[0]
    )


def _apart(node: Node) -> bool:
    """Whether windows of a transposed convolution do not overlap."""
    a, kernel = node.attrs, node.given[1].spec.shape[2:]
    plain = a.group == 1 and not any((*a.pads, *a.output_padding)) and set(a.dilations) <= {1}
    return plain and (a.strides or (1,) * len(kernel)) == kernel


def _wanted(v: Value, graph: Any) -> bool:
    """Whether a product will read the tensor, as it is or moved, in float32."""
    return any(
        _casts(n, DType.FP32)
        or _is_product(n)
        or (_moves(n) and any(_wanted(o, graph) for o in n.outputs))
        for n, _ in graph.uses(v)
    )


def _moves(node: Node) -> bool:
    return not node.is_fused and node.layer.name in MOVES


def _holds(v: Value) -> bool:
    """Whether float16 holds every number of a float32 tensor, by how it is made."""
    p = v.producer
    if v.const is not None or p is None or p.is_fused:
        return False
    copies = p.layer.name in MOVES or p.layer.name == "MaxPool"
    widens = _casts(p, DType.FP32) and _is_half(p.given[0])
    return widens or (copies and all(map(_holds, p.given)))


def _held(v: Value) -> Value | None:
    """The float32 tensor that it is a cast of, if both are the same numbers."""
    p = v.producer
    return p.given[0] if p is not None and _casts(p, DType.FP16) and _holds(p.given[0]) else None


def _wide(v: Value | None, root: Node, graph: Any) -> Any:
    """The tensor in float32, as it is for a node before ``root``, or by a new cast."""
    if v is None or v.spec.dtype not in HALVES:
        return v
    if v.const is not None:
        return literal(v.const.astype(np.float32))
    if (held := _held(v)) is not None:
        return held
    twins = (n for n, _ in graph.uses(v) if _casts(n, DType.FP32))
    earlier = (n for n in twins if graph.position(n) < graph.position(root))
    return next((n.outputs[0] for n in earlier), None) or T.Cast(v, to=DType.FP32)


# -- layers of their own -------------------------------------------------------------------------


def _widens(root: Node, graph: Any) -> bool:
    """Whether it is a product, or stands between a product and what that reads."""
    if _is_product(root):
        return True
    if root.is_fused or not any(map(_is_half, root.given)):
        return False
    read = root.layer.name in READERS and any(_made_and_wanted(v, graph) for v in root.given)
    return read or (_moves(root) and any(_wanted(v, graph) for v in root.outputs))


def _made_and_wanted(v: Value, graph: Any) -> bool:
    return _is_half(v) and v.producer is not None and _wanted(v, graph)


def _widened(root: Node, graph: Any) -> tuple[Any, ...]:
    count = 1 if root.layer.name == SCALED else len(root.inputs)
    wide = [_wide(v, root, graph) for v in root.inputs[:count]]
    op = _in_float32(root, [*wide, *root.inputs[count:]])
    needed = [
        i for i, v in enumerate(root.outputs) if i == 0 or graph.uses(v) or graph.is_output(v)
    ]
    return tuple(
        T.Cast(op.out(i), to=dtype) if dtype in HALVES else op.out(i)
        for i, dtype in enumerate(v.spec.dtype for v in root.outputs[: needed[-1] + 1])
    )


def _in_float32(root: Node, inputs: list[Any]) -> Op:
    """The layer over float32; one that takes 16 bits alone is written as another."""
    if not root.layer.name.startswith("Wide"):
        return again(root, inputs)
    if root.layer.name != "WideMatMul":
        name = root.layer.key.replace("Wide", "")
        return Op(name, tuple(inputs), fields_of(root.attrs))
    product = T.MatMul(*inputs[:2])
    return product if inputs[2:] in ([], [None]) else T.Add(product, inputs[2])


def _widened_example(net: Any) -> None:
    rng = np.random.default_rng(5)
    w = net.add_constant(rng.standard_normal((5, 6), dtype=np.float32).astype(np.float16))
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f16", ["n", 5]), w])
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


# -- what reads the same tensor ------------------------------------------------------------------


def _shared(root: Node, graph: Any) -> list[Value]:
    """Tensors that the node reads in float16 and a product in float32."""
    if root.is_fused or _casts(root, DType.FP32):
        return []
    return [v for v in root.given if _made_and_wanted(v, graph) and _held(v) is None]


def _read_wide(root: Node, graph: Any) -> Op:
    shared = _shared(root, graph)
    inputs = [
        T.Cast(_wide(v, root, graph), to=DType.FP16) if v in shared else v for v in root.inputs
    ]
    return again(root, inputs)


def _read_wide_example(net: Any) -> None:
    rng = np.random.default_rng(6)
    w = net.add_constant(rng.standard_normal((5, 5), dtype=np.float32).astype(np.float16))
    (x,) = net.add_layer("tactix.Relu", [net.add_input("x", "f16", ["n", 5])])
    (y,) = net.add_layer("tactix.MatMul", [x, w])
    net.mark_output(net.add_layer("tactix.Add", [x, y])[0], "y")


RULES = (
    Rule(
        "tactix.half_widened",
        anything(),
        _widened,
        _widens,
        benefit=94,
        example=_widened_example,
        phase="fuse",
        device="cpu",
    ),
    Rule(
        "tactix.half_read_wide",
        pointwise(),
        _read_wide,
        lambda root, graph: bool(_shared(root, graph)),
        benefit=94,
        example=_read_wide_example,
        phase="fuse",
        device="cpu",
    ),
)
