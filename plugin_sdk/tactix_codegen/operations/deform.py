"""Deformable convolution: which inputs there are."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject

_NUMBERS = (DType.FP64, DType.FP32, DType.FP16, DType.BF16)


@dataclass(frozen=True)
class DeformableWork:
    """The given inputs that hold bias and mask, or -1."""

    node: Node
    bias: int
    mask: int


def deformable_of(node: Node) -> DeformableWork | Reject:
    """What a node does."""
    x = node.given[0].spec
    if node.is_fused:
        return Reject("no layers around it are fused by this tactic")
    if any(v.spec.dtype is not x.dtype for v in node.given):
        return Reject("inputs are of several dtypes")
    if x.dtype not in _NUMBERS:
        return Reject(f"no deformable convolution of {x.dtype.value} in C or CUDA")
    return DeformableWork(node, node.place(3), node.place(4))
