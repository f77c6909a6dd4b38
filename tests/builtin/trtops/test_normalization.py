"""Plugins that normalize, and those of transformers, against loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from one_plugin import run, same

from tactix.base.errors import UnsupportedOperator

F32 = np.float32
RNG = np.random.default_rng(4)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def standard(x: Any, epsilon: float) -> Any:
    """All of x to mean 0 and variance 1."""
    wide = x.astype(np.float64)
    return (wide - wide.mean()) / math.sqrt(wide.var() + epsilon)


# -- normalization ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spatial", [(5, 4), (3, 2, 2)])
def test_instance_normalization(spatial: tuple[int, ...]) -> None:
    x, scale, bias = normal(2, 3, *spatial), [0.5, 2.0, -1.0], [0.1, 0.0, -0.2]
    want = np.zeros_like(x)
    for b, c in np.ndindex(2, 3):
        want[b, c] = standard(x[b, c], 1e-3) * scale[c] + bias[c]
    asked = {"epsilon": 1e-3, "scales": scale, "bias": bias, "plugin_version": "2"}
    for symbols in ({}, {2: "b"} if 2 not in spatial else {}):
        same(run("InstanceNormalization_TRT", [x], symbols=symbols, **asked), [want])
    leaky = run("InstanceNormalization_TRT", [x], **asked, relu=1, alpha=0.25)
    same(leaky, [np.where(want > 0, want, want * F32(0.25))])
    arrays = {"scales": np.array(scale, F32), "bias": np.array(bias, F32)}
    same(run("InstanceNormalization_TRT", [x], **{**asked, **arrays}), [want])
    with pytest.raises(UnsupportedOperator, match="scales is missing"):
        run("InstanceNormalization_TRT", [x], bias=bias)


def test_group_normalization() -> None:
    x, scale, bias = normal(2, 6, 3, 5), normal(6), normal(6)
    want = np.zeros_like(x)
    for b, g in np.ndindex(2, 3):
        want[b, 2 * g : 2 * g + 2] = standard(x[b, 2 * g : 2 * g + 2], 1e-4)
    want = want * scale[:, None, None] + bias[:, None, None]
    arrays = [x, scale, bias]
    same(run("GroupNormalizationPlugin", arrays, symbols={2: "b"}, eps=1e-4, num_groups=3), [want])
    same(run("GroupNormalizationPlugin", arrays, epsilon=1e-4, num_groups=3), [want])


@pytest.mark.parametrize(("op", "domain"), [("LayerNorm", ""), ("LayerNormalization", "TRT")])
@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization(op: str, domain: str, axis: int) -> None:
    x = normal(2, 3, 4)
    scale, bias = normal(*x.shape[axis:]), normal(*x.shape[axis:])
    want = np.zeros_like(x)
    for lead in np.ndindex(*x.shape[: axis % 3]):
        want[lead] = standard(x[lead], 1e-5) * scale + bias
    same(run(op, [x, scale, bias], domain=domain, axis=axis, epsilon=1e-5), [want])


@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("shared", [0, 1])
def test_normalize(across: int, shared: int) -> None:
    x, scale = normal(2, 3, 2, 5), [2.0] if shared else [2.0, 3.0, -1.0]
    asked = {"weights": scale, "acrossSpatial": across, "channelShared": shared, "eps": 1e-6,
             "nbWeights": 1}  # fmt: skip
    if across and not shared:
        with pytest.raises(UnsupportedOperator, match="acrossSpatial with weights of channels"):
            run("Normalize_TRT", [x], **asked)
        return
    want = np.zeros_like(x)
    for b, c, i, j in np.ndindex(*x.shape):
        about = x[b] if across else x[b, :, i, j]
        length = math.sqrt(float((about.astype(np.float64) ** 2).sum()) + 1e-6)
        want[b, c, i, j] = x[b, c, i, j] / length * scale[0 if shared else c]
    same(run("Normalize_TRT", [x], **asked), [want])


# -- transformers ----------------------------------------------------------------------------------


def bucket(distance: int, span: int, wide: int) -> int:
    """The column of a distance: DeBERTa's logarithmic buckets."""
    middle = span // 2
    far = abs(distance)
    if far > middle:
        ratio = math.log(far / middle) / math.log((wide - 1) / middle)
        far = math.ceil(ratio * (middle - 1) - 1e-6) + middle
    return min(max((far if distance > 0 else -far) + span, 0), 2 * span - 1)


@pytest.mark.parametrize("s", [3, 20])
def test_disentangled_attention(s: int) -> None:
    n, span = 2, 8
    content, to_place, from_place = normal(n, s, s), normal(n, s, 16), normal(n, s, 16)
    want = np.zeros_like(content)
    for b, i, j in np.ndindex(n, s, s):
        column = bucket(i - j, span, 16)
        want[b, i, j] = (
            content[b, i, j] + to_place[b, i, column] + from_place[b, j, column]
        ) * F32(0.3)
    arrays = [content, to_place, from_place]
    for symbols in ({}, {s: "s", 2: "n"}):
        same(
            run("DisentangledAttention_TRT", arrays, symbols=symbols, span=span, factor=0.3), [want]
        )


def test_gelu_with_a_bias() -> None:
    def formula(x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x, bias = normal(3, 2, 4), normal(4)
    same(run("CustomGeluPluginDynamic", [x], type_id=0), [formula(x)])
    same(run("CustomGeluPluginDynamic", [x], type_id=0, bias=bias), [formula(x + bias)])
    five = x[..., None, None]
    same(run("CustomGeluPluginDynamic", [five], bias=bias), [formula(x + bias)[..., None, None]])


@pytest.mark.parametrize("five", [False, True])
def test_skip_layer_normalization(five: bool) -> None:
    x, skip, gamma, beta, bias = normal(3, 2, 8), normal(3, 2, 8), normal(8), normal(8), normal(8)
    want = np.zeros_like(x)
    for i, j in np.ndindex(3, 2):
        want[i, j] = standard(x[i, j] + skip[i, j] + bias, 1e-7) * gamma + beta
    arrays = [a[..., None, None] if five else a for a in (x, skip)]
    asked = {"gamma": gamma, "beta": beta.tolist(), "bias": bias, "ld": 8, "type_id": 0}
    got = run("CustomSkipLayerNormPluginDynamic", arrays, symbols={3: "s"}, **asked)
    same(got, [want[..., None, None] if five else want])
    with pytest.raises(UnsupportedOperator, match="e, s, 1"):
        run("CustomSkipLayerNormPluginDynamic", arrays, plugin_version="3", **asked)


def test_embedding() -> None:
    words, types, places, gamma, beta = (
        normal(9, 6),
        normal(2, 6),
        normal(7, 6),
        normal(6),
        normal(6),
    )
    tokens = RNG.integers(0, 9, (2, 4)).astype(np.int32)
    segments = RNG.integers(0, 2, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    want = np.zeros((2, 4, 6, 1, 1), F32)
    for b, i in np.ndindex(2, 4):
        total = words[tokens[b, i]] + types[segments[b, i]] + places[i]
        want[b, i, :, 0, 0] = standard(total, 1e-7) * gamma + beta
    tables = {"layernorm_beta": beta, "layernorm_gamma": gamma, "word_embeddings": words,
              "token_type_embeddings": types, "position_embeddings": places}  # fmt: skip
    asked = {f"bert_embeddings_{k}": v for k, v in tables.items()}
    for symbols in ({}, {4: "s"}):
        got = run("CustomEmbLayerNormPluginDynamic", [tokens, segments, mask], 2, symbols=symbols,
                  output_fp16=0, mha_type_id=0, full_mask=0, **asked)  # fmt: skip
        same(got, [want, np.array([[3], [4]], np.int32)])


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_heads_beside_each_other(masked: bool) -> None:
    b, s, heads, size = 2, 5, 2, 3
    x, lengths = normal(b, s, heads, 3, size), np.array([3, 5], np.int32)
    want = np.zeros((b, s, heads, size), F32)
    for n, h, i in np.ndindex(b, heads, s):
        keys = range(lengths[n]) if masked else range(s)
        scores = np.array([x[n, i, h, 0] @ x[n, k, h, 1] for k in keys]) / math.sqrt(size)
        p = np.exp(scores - scores.max())
        want[n, i, h] = sum(w * x[n, k, h, 2] for w, k in zip(p / p.sum(), keys))
    arrays = [x.reshape(b, s, -1, 1, 1), *([lengths] if masked else [])]
    asked = {"type_id": 0, "hidden_size": 6, "num_heads": 2, "has_mask": int(masked)}
    for symbols in ({}, {5: "s"}):
        got = run("CustomQKVToContextPluginDynamic", arrays, symbols=symbols, **asked)
        same(got, [want.reshape(b, s, 6, 1, 1)])
