"""A float32 network over 16-bit tensors, for devices whose kernels compute in float32 over any: the
GPU's.

Products are lowered, and what reads something lowered: pooling, normalisation, movement, pointwise
layers. Each reads and gives 16 bits as in a model that was exported so, and casts stand where
float32 remains: at the network's inputs and outputs, around layers that lose too much (the list is
PyTorch's autocast's) and those of unknown kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import P, Rule, anything, literal
from tactix_ops.rules.facts import again

PRODUCTS = frozenset({
    "Convolution", "ConvTranspose", "MatMul", "Gemm", "Attention", "TokenAttention", "LSTM", "GRU",
    "RNN", "Gather", "FewBitsMatMul",
})  # fmt: skip
SCALED = "FewBitsMatMul"
"""A product of which the first input alone is lowered: scales have rules of their own."""
CARRIERS = frozenset({
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Softmax", "LogSoftmax",
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization",
    "ReduceMean", "ReduceMax", "ReduceMin", "Reshape", "Transpose", "Expand", "Tile", "Concat",
    "Split", "Slice", "Roll", "Pad", "GatherElements", "GatherND", "ScatterElements", "ScatterND",
    "Resize", "RotaryEmbedding", "DepthToSpace",
})  # fmt: skip
SENSITIVE = frozenset({
    "Exp", "Expm1", "Log", "Log1p", "Pow", "Reciprocal", "Softplus", "Sin", "Cos", "Tan", "Sinh",
    "Cosh", "Asin", "Acos", "Mod",
})  # fmt: skip
"""Pointwise layers that stay float32, as squares do: small errors become large, or numbers that 16
bits cannot hold.
"""
LARGEST = {DType.FP16: 65504.0, DType.BF16: 255 * 2.0**120}
"""Finite numbers."""
NEVER = 1e9
"""Constants as large stand for infinity, in masks: the largest number does, too."""


def _widened(v: Value, dtype: DType) -> Value | None:
    """The 16-bit tensor that this one is, widened."""
    p = v.producer
    cast = p is not None and p.layer.key == "tactix.Cast@1" and v.spec.dtype is DType.FP32
    return p.given[0] if p is not None and cast and p.given[0].spec.dtype is dtype else None


def _holds(v: Value, dtype: DType, pointwise: bool) -> bool:
    """Whether the type has numbers for all of a constant; for the terms of a pointwise layer small
    ones, too.
    """
    sizes = np.abs(v.array)
    if ((sizes > LARGEST[dtype]) & (sizes < NEVER)).any():
        return False
    return not (pointwise and ((sizes > 0) & (_rounded(sizes, dtype) == 0)).any())


def _rounded(array: Any, dtype: DType) -> Any:
    limited = np.clip(array, -LARGEST[dtype], LARGEST[dtype])
    return np.where(np.isfinite(array), limited, array).astype(dtype.numpy)


def _narrow(v: Value | None, dtype: DType, root: Node, graph: Any) -> Any:
    """The tensor in 16 bits; what float32 layers make may be a mask, whose numbers are limited."""
    if v is None or v.spec.dtype is not DType.FP32:
        return v
    if v.const is not None:
        return literal(_rounded(v.const, dtype))
    limit = LARGEST[dtype] if v.producer is not None else 0.0
    made = _widened(v, dtype) or _narrowed(v, dtype, limit, root, graph)
    return made or P.tactix.Cast(P.tactix.Clip(v, min=-limit, max=limit) if limit else v, to=dtype)


def _narrowed(v: Value, dtype: DType, limit: float, root: Node, graph: Any) -> Value | None:
    """The tensor in 16 bits, limited or (0) not, as it is for a node before ``root``."""
    earlier = [n for n, _ in graph.uses(v) if graph.position(n) < graph.position(root)]
    if limit:
        clips = [
            n
            for n in earlier
            if n.layer.key == "tactix.Clip@1" and -n.attrs.min == n.attrs.max == limit
        ]
        return next(
            (y for n in clips if (y := _narrowed(n.outputs[0], dtype, 0.0, root, graph))), None
        )
    casts = (n for n in earlier if n.layer.key == "tactix.Cast@1" and n.attrs.to is dtype)
    return next((n.outputs[0] for n in casts), None)


def _is_product(root: Node) -> bool:
    """Whether it gains by itself: a table's rows, and sums of more than one product."""
    name, first = root.layer.name, root.given[0]
    if name == "Gather":
        return first.const is not None
    return name in PRODUCTS and not (name == "MatMul" and first.spec.shape[-1] == 1)


def _read(root: Node) -> list[Value]:
    """What is lowered with it."""
    given = root.given[:1] if root.layer.name == SCALED else root.given
    return [v for v in given if v.spec.dtype.is_float]


def _lowers(dtype: DType, root: Node) -> bool:
    name, floats = root.layer.name, _read(root)
    square = name == "Mul" and root.inputs[0] is root.inputs[1]
    known = (
        not (square or name in SENSITIVE)
        if root.layer.is_pointwise
        else name in CARRIERS | PRODUCTS
    )
    kinds = {v.spec.dtype for v in (*floats, *root.outputs) if v.spec.dtype.is_float}
    if (
        root.is_fused
        or not known
        or not floats
        or kinds != {DType.FP32}
        or any(v.spec.value for v in root.outputs)
    ):
        return False
    if not (_is_product(root) or any(_widened(v, dtype) for v in floats)):
        return False
    return _infers(root, dtype)


def _fits(dtype: DType, root: Node) -> bool | str:
    constants = (v for v in _read(root) if v.const is not None)
    held = all(_holds(v, dtype, root.layer.is_pointwise) for v in constants)
    return True if held else f"{dtype.name} does not hold its constants"


def _infers(root: Node, dtype: DType) -> bool:
    """Whether the layer gives 16 bits where it gave float32."""

    def lowered(v: Value | None) -> Any:
        wide = v is not None and v.spec.dtype is DType.FP32
        return replace(v.spec, dtype=dtype, const=None) if v is not None and wide else v and v.spec

    try:
        specs = root.layer.infer(root.attrs, [lowered(v) for v in root.inputs])
    except TactixError:
        return False
    return [s.dtype for s in specs] == [lowered(v).dtype for v in root.outputs]


def _lowered(dtype: DType, root: Node, graph: Any) -> tuple[Any, ...]:
    read = _read(root)
    op = again(root, [_narrow(v, dtype, root, graph) if v in read else v for v in root.inputs])
    last = max(
        i for i, v in enumerate(root.outputs) if i == 0 or graph.uses(v) or graph.is_output(v)
    )
    outs = [(op.out(i), v) for i, v in enumerate(root.outputs[: last + 1])]
    return tuple(
        P.tactix.Cast(o, to=DType.FP32) if v.spec.dtype is DType.FP32 else o for o, v in outs
    )


def _example(net: Any) -> None:
    rng = np.random.default_rng(5)
    w = net.add_constant(rng.standard_normal((5, 6), dtype=np.float32))
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ["n", 5]), w])
    (y,) = net.add_layer("tactix.Relu", [y])
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=(1, 0))[0], "y")


def _rule(dtype: DType, benefit: int) -> Rule:
    kind = dtype.name.lower()
    when: Callable[..., bool] = partial(_lowers, dtype)
    fits: Callable[..., bool | str] = partial(_fits, dtype)
    return Rule(
        f"tactix.stored_{kind}",
        anything(),
        partial(_lowered, dtype),
        when,
        fits=fits,
        benefit=benefit,
        numerics=kind,
        example=_example,
        phase="fuse",
        device="cuda",
    )


RULES = (_rule(DType.FP16, 93), _rule(DType.BF16, 92))
