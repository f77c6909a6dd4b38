"""Attention of fixed sizes by cuDNN: heads read where they lie, a mask that broadcasts or one that
is causal.
"""

from __future__ import annotations

from typing import Any

from tactix.base.dims import evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import tensor_in, tensor_out
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c.heads import Heads, Matrices
from tactix_cuda.library_epilogue import FoldedEpilogue, folded
from tactix_cuda.tactics import attention
from tactix_cudnn.attention import CudnnAttention
from tactix_cudnn.tactic import CudnnTactic, Request

STEP = 8
"""Elements that widths of heads, and where rows begin, are multiples of."""
MASKS = (DType.FP16, DType.BF16, DType.FP32)


class CudnnAttentionTactic(CudnnTactic):
    """float16 and bfloat16, sums in float32; dims up to 128."""

    key = "tactix.cudnn_attention@1"
    implements = c_heads.LAYERS
    most = 4

    def request(self, node: Node) -> Request | Reject:
        h = attention.heads(node)
        if isinstance(h, Reject):
            return h
        if reason := _why_not(h, node):
            return Reject(reason)
        mask = node.given[h.mask].spec if h.mask >= 0 else None
        causal = mask is not None and attention.is_causal(mask.const)
        shape = (*(1,) * (4 - mask.rank), *mask.shape) if mask and not causal else ()
        what = CudnnAttention(
            h.dtype.value,
            _known(*h.lead, h.s, h.t, h.d, h.e),
            _lies(h.q),
            _lies(h.k),
            _lies(h.v),
            _known(h.k.count[1], h.v.count[1]),
            h.scale,
            h.tokens,
            _known(*shape),
            mask.dtype.value if mask and shape else h.dtype.value,
            causal,
        )
        given = (h.q.index, h.k.index, h.v.index, *((h.mask,) if shape else ()))
        return Request(what, (*(tensor_in(i) for i in given), tensor_out()))


def _known(*sizes: Any) -> tuple[int, ...]:
    return tuple(evaluate(d, {}) for d in sizes)


def _lies(m: Matrices) -> tuple[int, ...]:
    return _known(*m.strides, m.pitch, m.start)


def _why_not(h: Heads, node: Node) -> str:
    if any(symbols(d) for v in node.given for d in v.spec.shape):
        return "plans of cuDNN are for fixed sizes"
    if any(x % STEP for m in (h.q, h.k, h.v) for x in (h.d, h.e, *_lies(m))):
        return (
            f"cuDNN takes heads of a multiple of {STEP} columns that begin at multiples of 16 bytes"
        )
    if h.q.count != h.lead or any(m.count[0] != h.lead[0] for m in (h.k, h.v)):
        return "cuDNN repeats no queries, and keys and values along heads alone"
    if any(m.sharing(h.lead) > 1 for m in (h.k, h.v)):
        return "keys and values have all heads, or one, for cuDNN"
    if (
        folded(h.epi, node.outputs[0].spec.dtype) != FoldedEpilogue()
        or node.outputs[0].spec.dtype is not h.dtype
    ):
        return "cuDNN's attention has no epilogue"
    return _why_not_mask(h, node.given[h.mask].spec) if h.mask >= 0 else ""


def _why_not_mask(h: Heads, mask: TensorSpec) -> str:
    import numpy as np

    if mask.dtype not in MASKS:
        return f"masks of {' and '.join(t.value for t in MASKS)}"
    if not h.nan_to_zero and (mask.const is None or bool((mask.const == -np.inf).all(-1).any())):
        return "cuDNN gives 0, not NaN, to a query that a mask hides all keys from"
    return ""
