"""Attention, and what stands around it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import Case, halved


def attention() -> Iterator[Case]:
    heads = ("f32[1,12,128,64]",) * 3
    yield from halved([Case("Attention", heads, {}, "prefill", slack=16)])
    yield Case("Attention", heads, {"is_causal": 1}, "causal", slack=16)
    yield Case(
        "Attention",
        ("f32[1,12,1,64]", "f32[1,12,512,64]", "f32[1,12,512,64]"),
        {},
        "one token",
        slack=16,
    )
    grouped = ("f32[1,12,64,64]", "f32[1,4,64,64]", "f32[1,4,64,64]")
    yield Case("Attention", grouped, {}, "grouped", slack=16)
    yield Case("Attention", ("f32[2,3,33,37]",) * 3, {}, "odd", slack=16)
    one = "com.microsoft::"
    yield Case(
        f"{one}Attention",
        ("f32[1,128,256]", "= f32[256,768]", "= f32[768]"),
        {"num_heads": 4},
        "ms",
        slack=64,
    )
    yield Case(f"{one}MultiHeadAttention", ("f32[1,128,768]",) * 3, {"num_heads": 12}, slack=16)
    cos = ("= f32[512,32] -1:1",) * 2
    rotary = ("f32[1,12,128,64]", *cos, np.arange(128, dtype=np.int64)[None])
    yield from halved([Case("RotaryEmbedding", rotary, {}, slack=4)])
    positions = np.arange(128, dtype=np.int64)[None]
    yield Case(f"{one}RotaryEmbedding", ("f32[1,12,128,64]", positions, *cos), {}, "ms", slack=4)
    cache = ("f32[1,1,768]", "f32[1,1,256]", "f32[1,1,256]", "f32[1,4,512,64]", "f32[1,4,512,64]")
    lengths = (np.array([512], np.int32), np.array(513, np.int32))
    yield Case(
        f"{one}GroupQueryAttention",
        (*cache, *lengths),
        {"num_heads": 12, "kv_num_heads": 4},
        "",
        3,
        slack=16,
    )
    embedding = (
        "i32[1,128] 0:1000", "i32[1,128] 0:2", "= f32[1000,256]", "= f32[512,256]", "= f32[2,256]",
        "= f32[256]", "= f32[256]",
    )  # fmt: skip
    yield Case(f"{one}EmbedLayerNormalization", embedding, {}, "", 2, slack=4)
