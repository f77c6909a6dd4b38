"""Scaled dot-product attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, assume, broadcast_shapes, compare, mod, prod
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import (
    Array,
    Specs,
    float_only,
    optional,
    pick,
    required,
    same_dim,
    wide,
)
from tactix_ops.layers.softmax import softmax


@dataclass(frozen=True)
class AttentionAttrs:
    """``scale``: factor of the products, usually ``1 / sqrt(dim)``.

    ``nan_to_zero``: a query that may attend to nothing gives 0, not NaN. ``keys``: how many of the
    keys and values count, the first ones; None for all.
    """

    scale: float = 1.0
    nan_to_zero: bool = False
    keys: Dim | None = None


class Attention(Layer):
    """``softmax(scale q k' + mask) v`` over the keys.

    q: (batch, heads, s, d), k: (batch, own heads, t, d), v: (batch, own heads, t, e), of which the
    first ``keys`` rows are read where that is given; mask: floats that broadcast to (batch, heads,
    s, t or keys), or absent. y: (batch, heads, s, e). Where k and v have fewer heads, heads of q
    beside each other share one (grouped queries: Ainslie et al., "GQA", 2023).
    """

    key = "tactix.Attention@1"
    takes_epilogue = True
    Attrs = AttentionAttrs

    def infer(self, attrs: AttentionAttrs, inputs: Specs) -> list[TensorSpec]:
        q, k, v = required(self, inputs, 3)
        float_only(q, self.key)
        if q.rank != 4 or k.rank != 4 or v.rank != 4:
            raise ShapeError(f"{self.key} takes (batch, heads, sequence, dim), not {q}, {k}, {v}")
        same_dim(q.shape[3], k.shape[3], self.key, "the dim of q and k")
        same_dim(k.shape[2], v.shape[2], self.key, "the sequence of k and v")
        (batch,) = broadcast_shapes(*(x.shape[:1] for x in (q, k, v)))
        lead = (batch, heads_of(*(x.shape[1] for x in (q, k, v))))
        mask = optional(inputs, 3)
        t = k.shape[2]
        if attrs.keys is not None:
            t = attrs.keys
            assume(k.shape[2], ">=", t, f"there are no {t} keys")
        if mask is not None:
            broadcast_shapes((*lead, q.shape[2], t), mask.shape)
        return [TensorSpec(q.dtype, (*lead, q.shape[2], v.shape[3]))]

    def operations(self, attrs: AttentionAttrs, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        q, k, v = required(self, inputs, 3)
        keys = k.shape[2] if attrs.keys is None else attrs.keys
        rows = prod(outputs[0].shape[:3])
        return work.attention(rows, keys, q.shape[3], v.shape[3])

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        q, k, v = (wide(x) for x in inputs[:3])
        k, v = (_for_each(x[:, :, : attrs.keys], q.shape[1]) for x in (k, v))
        scores = np.matmul(q * q.dtype.type(attrs.scale), k.swapaxes(-1, -2))
        mask = pick(inputs, 3)
        if mask is not None:
            scores = scores + wide(mask)
        p = softmax(scores, -1)
        p = np.where(np.isnan(p), 0, p).astype(p.dtype) if attrs.nan_to_zero else p
        return (np.matmul(p, v).astype(inputs[0].dtype, copy=False),)


def heads_of(q: Dim, *shared: Dim) -> Dim:
    """Heads of the result: those of q where as many of them share each other one, else what all
    broadcast to. Raises ShapeError.
    """
    known = all(isinstance(n, int) and n > 0 for n in (q, *shared))
    if known and all(mod(q, n) == 0 for n in shared):
        return q
    (heads,) = broadcast_shapes((q,), *((n,) for n in shared))
    return heads


def _for_each(x: Array, heads: int) -> Array:
    """Keys or values (batch, own heads, ...) as often as heads of q share them."""
    own = x.shape[1]
    return x if own in (1, heads) or heads == 1 else np.repeat(x, heads // own, axis=1)


@dataclass(frozen=True)
class TokenAttentionAttrs:
    """``heads`` of ``dim`` columns of q, and ``key_heads`` (None: as many) of ``dim`` columns of k
    and of ``value_dim`` columns of v.

    ``columns``: where those of q, k and v begin. ``scale``, ``nan_to_zero``: as for Attention.
    """

    heads: int
    dim: int
    value_dim: int
    columns: tuple[int, int, int] = (0, 0, 0)
    scale: float = 1.0
    nan_to_zero: bool = False
    key_heads: int | None = None

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Heads of q, k and v, and the columns of each."""
        own = self.heads if self.key_heads is None else self.key_heads
        return (self.heads, self.dim), (own, self.dim), (own, self.value_dim)


class TokenAttention(Layer):
    """Attention whose heads lie side by side in the rows of tokens, as products leave them.

    q: (batch, s, at least heads dim), k: (batch, t, at least key_heads dim), v: (batch, t, ...);
    all three may be one tensor with other ``columns``. mask: floats that broadcast to (batch,
    heads, s, t), or absent. y: (batch, s, heads value_dim).
    """

    key = "tactix.TokenAttention@1"
    takes_epilogue = True
    Attrs = TokenAttentionAttrs

    def infer(self, attrs: TokenAttentionAttrs, inputs: Specs) -> list[TensorSpec]:
        q, k, v = required(self, inputs, 3)
        float_only(q, self.key)
        (heads, _), (own, _), _ = attrs.parts
        if own < 1 or heads % own:
            raise ShapeError(f"{self.key}: {heads} heads cannot share {own} of keys and values")
        for x, begin, (count, width) in zip((q, k, v), attrs.columns, attrs.parts, strict=True):
            end = begin + count * width
            if x.rank != 3 or (isinstance(x.shape[2], int) and end > x.shape[2]):
                raise ShapeError(
                    f"{self.key} takes (batch, sequence, at least {end} columns), not {x}"
                )
            same_dim(q.shape[0], x.shape[0], self.key, "the batch")
        same_dim(k.shape[1], v.shape[1], self.key, "the sequence of k and v")
        mask = optional(inputs, 3)
        if mask is not None:
            broadcast_shapes((q.shape[0], attrs.heads, q.shape[1], k.shape[1]), mask.shape)
        return [TensorSpec(q.dtype, (*q.shape[:2], attrs.heads * attrs.value_dim))]

    def operations(
        self, attrs: TokenAttentionAttrs, inputs: Specs, outputs: list[TensorSpec]
    ) -> Dim:
        q, k, _ = required(self, inputs, 3)
        rows = prod(q.shape[:2]) * attrs.heads
        return work.attention(rows, k.shape[1], attrs.dim, attrs.value_dim)

    def reference(self, attrs: TokenAttentionAttrs, *inputs: Array) -> tuple[Array, ...]:
        parts = []
        for x, begin, (heads, width) in zip(inputs, attrs.columns, attrs.parts, strict=False):
            columns = x[..., begin : begin + heads * width]
            parts.append(columns.reshape(*x.shape[:2], heads, width).swapaxes(1, 2))
        plain = AttentionAttrs(attrs.scale, attrs.nan_to_zero)
        (y,) = ATTENTION.reference(plain, *parts, *inputs[3:])
        return (y.swapaxes(1, 2).reshape(*inputs[0].shape[:2], attrs.heads * attrs.value_dim),)


def _at_least(size: Dim, least: Dim, broken: str) -> None:
    """Raises ShapeError where it is known not to be so."""
    if compare(size, least) == "<":
        raise ShapeError(broken)
    assume(size, ">=", least, broken)


@dataclass(frozen=True)
class RotaryEmbeddingAttrs:
    """``heads``: how many are turned, the first ones along the axis before the last; None: all.
    Others stay as they are.
    """

    heads: int | None = None


class RotaryEmbedding(Layer):
    """``x cos + turned sin``, where ``turned`` is minus the second half of the last axis, then the
    first.

    x: (..., at least 2 n), of which elements behind the first 2 n stay as they are; cos, sin:
    (..., 2 n), which broadcast to the others. y is like x. (Su et al., "RoFormer: Enhanced
    Transformer with Rotary Position Embedding", 2021; halves as GPT-NeoX has them.)
    """

    key = "tactix.RotaryEmbedding@1"
    Attrs = RotaryEmbeddingAttrs

    def infer(self, attrs: RotaryEmbeddingAttrs, inputs: Specs) -> list[TensorSpec]:
        x, cosines, sines = required(self, inputs, 3)
        float_only(x, self.key)
        width = cosines.shape[-1] if cosines.rank else 1
        if not x.rank or mod(width, 2) != 0:
            raise ShapeError(f"{self.key} takes two halves of the last axis, not {x}")
        _at_least(x.shape[-1], width, f"{self.key}: {cosines} is wider than {x}")
        turned = (*x.shape[:-1], width)
        for table in (cosines, sines):
            whole = table.rank and table.shape[-1] == width
            if not whole or broadcast_shapes(turned, table.shape) != turned:
                raise ShapeError(f"{self.key}: {table} does not broadcast to {x}")
        if attrs.heads is not None:
            if x.rank < 2:
                raise ShapeError(f"{self.key}: {x} has no axis of heads")
            _at_least(x.shape[-2], attrs.heads, f"{self.key}: {x} has no {attrs.heads} heads")
        return [TensorSpec(x.dtype, x.shape)]

    def reference(self, attrs: RotaryEmbeddingAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, cosines, sines = (wide(a) for a in inputs)
        first, second = np.split(x[..., : cosines.shape[-1]], 2, axis=-1)
        turned = np.concatenate([-second, first], axis=-1)
        whole = np.concatenate([first, second], axis=-1)
        y = x.copy()
        y[..., : cosines.shape[-1]] = whole * cosines + turned * sines
        if attrs.heads is not None:
            y[..., attrs.heads :, :] = x[..., attrs.heads :, :]
        return (y.astype(inputs[0].dtype, copy=False),)


ATTENTION = Attention()
LAYERS: tuple[Layer, ...] = (ATTENTION, TokenAttention(), RotaryEmbedding())
