"""Attention by a running state: one matrix per head, updated by each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tactix.base.dims import floordiv
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, optional, pick, required, same_shape, wide

RULES = ("linear", "gated", "delta", "gated_delta")


@dataclass(frozen=True)
class LinearAttentionAttrs:
    """``scale`` 0: 1 / sqrt(key dim). ``update_rule``: whether the state decays, and whether it is
    corrected.

    ``chunk_size`` is a hint for parallel algorithms; the result does not depend on it.
    """

    q_num_heads: int = 1
    kv_num_heads: int = 1
    scale: float = 0.0
    update_rule: str = "gated_delta"
    chunk_size: int = 64


class LinearAttention(Layer):
    """Steps ``S = exp(g) S + beta k (v - exp(g) S' k)'`` and ``o = scale S' q``, as ONNX's
    LinearAttention.

    Inputs: q (B, T, Hq K), k (B, T, H K), v (B, T, H V), state (B, H, K, V)?, decay g in log space
    (B, T, H or H K)?, beta (B, T, H or 1)?. Outputs: o (B, T, Hq V), the last state. Query heads
    share states in consecutive groups.
    """

    key = "tactix.LinearAttention@1"
    Attrs = LinearAttentionAttrs
    imports = ("onnx:ai.onnx::LinearAttention",)

    def infer(self, attrs: LinearAttentionAttrs, inputs: Specs) -> list[TensorSpec]:
        q, k, v = required(self, inputs, 3)
        if attrs.update_rule not in RULES:
            raise InvalidArgument(
                f"{self.key} knows no rule {attrs.update_rule!r}", do=f"It has: {', '.join(RULES)}"
            )
        if (q.rank, k.rank, v.rank) != (3, 3, 3) or attrs.q_num_heads % attrs.kv_num_heads:
            raise ShapeError(
                f"{self.key}: q {q}, k {k}, v {v}, "
                f"{attrs.q_num_heads} and {attrs.kv_num_heads} heads"
            )
        heads = attrs.kv_num_heads
        width, depth = floordiv(k.shape[2], heads), floordiv(v.shape[2], heads)
        state, decay, beta = (optional(inputs, i) for i in (3, 4, 5))
        batch, steps = k.shape[:2]
        decays = heads if decay is None or decay.shape[-1] == heads else heads * width
        betas = 1 if beta is None or beta.shape[-1] == 1 else heads
        for what, found, wanted in (
            ("queries", q, (batch, steps, attrs.q_num_heads * width)),
            ("keys", k, (batch, steps, heads * width)),
            ("values", v, (batch, steps, heads * depth)),
            ("state", state, (batch, heads, width, depth)),
            ("decay", decay, (batch, steps, decays)),
            ("beta", beta, (batch, steps, betas)),
        ):
            if found is not None:
                same_shape(found, wanted, self.key, what)
        kept = TensorSpec(
            q.dtype if state is None else state.dtype, (q.shape[0], heads, width, depth)
        )
        return [TensorSpec(q.dtype, (*q.shape[:2], depth * attrs.q_num_heads)), kept]

    def reference(self, attrs: LinearAttentionAttrs, *inputs: Array) -> tuple[Array, ...]:
        heads, rule = attrs.kv_num_heads, attrs.update_rule
        q, k, v = (
            _heads(wide(x), n)
            for x, n in zip(inputs, (attrs.q_num_heads, heads, heads), strict=False)
        )
        state, decay, beta = (pick(inputs, i) for i in (3, 4, 5))
        batch, steps, _, width = k.shape
        s = (
            np.zeros((batch, heads, width, v.shape[3]), k.dtype)
            if state is None
            else wide(state).astype(k.dtype)
        )
        scale = attrs.scale or 1 / math.sqrt(width)
        y = np.zeros((batch, steps, attrs.q_num_heads, v.shape[3]), k.dtype)
        for t in range(steps):
            if "gated" in rule and decay is not None:
                s = s * np.exp(_heads(wide(decay), heads)[:, t])[..., None]
            new = v[:, t]
            if "delta" in rule:
                new = new - np.einsum("bhkv,bhk->bhv", s, k[:, t])
                new = new if beta is None else new * wide(beta)[:, t, :, None]
            s = s + k[:, t][..., None] * new[..., None, :]
            shared = np.repeat(s, attrs.q_num_heads // heads, axis=1)
            y[:, t] = scale * np.einsum("bhkv,bhk->bhv", shared, q[:, t])
        kept = inputs[0].dtype if state is None else state.dtype
        return y.reshape(batch, steps, q.shape[2] * v.shape[3]).astype(
            inputs[0].dtype, copy=False
        ), s.astype(kept, copy=False)


def _heads(x: Array, count: int) -> Array:
    """(B, T, H D) to (B, T, H, D)."""
    return x.reshape(*x.shape[:2], count, x.shape[2] // count)


LAYERS: tuple[Layer, ...] = (LinearAttention(),)
