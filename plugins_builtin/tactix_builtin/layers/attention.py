"""Scaled dot-product attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tactix.contracts.layer import Layer
from tactix.words.dims import broadcast_shapes
from tactix.words.errors import ShapeError
from tactix.words.tensor import TensorSpec
from tactix_builtin.layers.common import Array, Specs, float_only, optional, pick, required, same_dim, wide
from tactix_builtin.layers.softmax import softmax


@dataclass(frozen=True)
class AttentionAttrs:
    """``scale``: factor of the products, usually ``1 / sqrt(dim)``.

    ``nan_to_zero``: a query that may attend to nothing gives 0, not NaN.
    """

    scale: float = 1.0
    nan_to_zero: bool = False


class Attention(Layer):
    """``softmax(scale q k' + mask) v`` over the keys.

    q: (batch, heads, s, d), k: (batch, heads, t, d), v: (batch, heads, t, e); mask: floats that broadcast to
    (batch, heads, s, t), or absent. y: (batch, heads, s, e).
    """

    key = "tactix.Attention@1"
    Attrs = AttentionAttrs

    def infer(self, attrs: AttentionAttrs, inputs: Specs) -> list[TensorSpec]:
        q, k, v = required(self, inputs, 3)
        float_only(q, self.key)
        if q.rank != 4 or k.rank != 4 or v.rank != 4:
            raise ShapeError(f"{self.key} takes (batch, heads, sequence, dim), not {q}, {k}, {v}")
        same_dim(q.shape[3], k.shape[3], self.key, "the dim of q and k")
        same_dim(k.shape[2], v.shape[2], self.key, "the sequence of k and v")
        lead = broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2])
        mask = optional(inputs, 3)
        if mask is not None:
            broadcast_shapes((*lead, q.shape[2], k.shape[2]), mask.shape)
        return [TensorSpec(q.dtype, (*lead, q.shape[2], v.shape[3]))]

    def reference(self, attrs: AttentionAttrs, *inputs: Array) -> tuple[Array, ...]:
        q, k, v = (wide(x) for x in inputs[:3])
        scores = np.matmul(q * q.dtype.type(attrs.scale), k.swapaxes(-1, -2))
        mask = pick(inputs, 3)
        if mask is not None:
            scores = scores + wide(mask)
        p = softmax(scores, -1)
        p = np.where(np.isnan(p), 0, p).astype(p.dtype) if attrs.nan_to_zero else p
        return (np.matmul(p, v).astype(inputs[0].dtype, copy=False),)


LAYERS: tuple[Layer, ...] = (Attention(),)
