"""Attention operators of ``com.microsoft``: against ONNX Runtime, or a formula where its CPU has no
kernel.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from microsoft_oracle import Case, by_onnx_runtime, check

from tactix.base.errors import UnsupportedOperator

F32 = np.float32
RNG = np.random.default_rng(41)
B, S, P, L, N, H, I = 2, 5, 3, 6, 3, 4, 7  # noqa: E741
W, T = N * H, S + P


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def coins(*shape: int) -> Any:
    """A mask that lets the first key through: sums with the filter alone are rounded to
    thousandths.
    """
    mask = RNG.integers(0, 2, shape).astype(np.int32)
    mask[..., 0] = 1
    return mask


def attend(q: Any, k: Any, v: Any, added: Any = 0.0, scale: float = H**-0.5) -> tuple[Any, Any]:
    """The formula on (B, N, S, H), joined heads, and the weights."""
    scores = scale * q @ k.swapaxes(-1, -2) + added
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    y = (p @ v).transpose(0, 2, 1, 3)
    return y.reshape(*y.shape[:2], -1), p


def turned(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3)


# -- Attention -----------------------------------------------------------------------------------

X, WEIGHTS, BIAS = normal(B, S, I), normal(I, 3 * W), normal(3 * W)
PAST = normal(2, B, N, P, H)
NAMED = {B: "b", S: "s"}
MASKS = [
    None,
    ints(3, 5),
    ints(4, 5, 1, 0),
    ints(3, 5, 0, 3, 8, 0, 3, 8),
    coins(B, S),
    coins(B, S, S),
]
MASKS_OF_PAST = [None, ints(6, 8), ints(6, 8, 1, 0), coins(B, T), coins(B, S, T)]


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS, ids=lambda m: "none" if m is None else str(m.shape))
def test_attention(mask: Any, causal: int, imported: Any, model: Any) -> None:
    named = {} if mask is not None and len(mask) > B else NAMED
    attrs = {"num_heads": N, "unidirectional": causal}
    c = Case("Attention", [X, WEIGHTS, BIAS, mask], attrs, (0,), frozenset({1, 2}), named)
    check(c, imported, model)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS_OF_PAST, ids=lambda m: "none" if m is None else str(m.shape))
def test_attention_with_a_cache(mask: Any, causal: int, imported: Any, model: Any) -> None:
    attrs = {"num_heads": N, "unidirectional": causal}
    check(Case("Attention", [X, WEIGHTS, BIAS, mask, PAST], attrs, (0, 1)), imported, model)


ATTENTION = [
    Case("Attention", [X, WEIGHTS, BIAS, None, None, normal(B, 1, S, S)], {"num_heads": N, "scale": 0.3}),
    Case("Attention", [X, WEIGHTS, BIAS, coins(B, S), None, normal(1, N, S, S)], {"num_heads": N, "unidirectional": 1}),
    Case("Attention", [X, WEIGHTS, BIAS, ints(3, 4)], {"num_heads": N, "mask_filter_value": -2.0}),
    Case("Attention", [X, WEIGHTS, BIAS], {"num_heads": N}, (0, 1), symbols=NAMED),
    Case("Attention", [X, normal(I, 2 * W + 6), normal(2 * W + 6)], {"num_heads": N, "qkv_hidden_sizes": [W, W, 6]}),
    Case("Attention", [X, WEIGHTS, BIAS, coins(B, T), PAST], {"num_heads": N, "unidirectional": 1}, (0, 1),
         frozenset({1, 2}), {S: "s", T: "t"}),
]  # fmt: skip


@pytest.mark.parametrize("c", ATTENTION, ids=lambda c: c.id)
def test_other_forms_of_attention(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


@pytest.mark.parametrize("past", [False, True])
def test_a_mask_of_rank_4(past: bool, imported: Any, model: Any) -> None:
    """ONNX Runtime's CPU has no kernel for it: rows are places in the whole sequence."""
    mask = coins(B, 1, 11, 11)
    q, k, v = (turned(a.reshape(B, S, N, H)) for a in np.split(X @ WEIGHTS, 3, axis=2))
    before = P if past else 0
    if past:
        k, v = np.concatenate([PAST[0], k], 2), np.concatenate([PAST[1], v], 2)
    added = np.where(mask[:, :, before : before + S, : before + S] > 0, 0, -10000.0)
    c = Case("Attention", [X, WEIGHTS, None, mask, PAST if past else None], {"num_heads": N})
    check(c, imported, model, [attend(q, k, v, added)[0].astype(F32)])


# -- MultiHeadAttention --------------------------------------------------------------------------

Q, K, V = normal(B, S, W), normal(B, L, W), normal(B, L, N * 5)
OWN_K, OWN_V = normal(B, S, W), normal(B, S, W)
CACHE = normal(B, N, P, H), normal(B, N, P, H)
FOUR = {"num_heads": N}
CAUSAL = {"num_heads": N, "unidirectional": 1}
BOTH = {B: "b", S: "s", L: "l"}
MULTI = [
    Case("MultiHeadAttention", [Q, K, V], FOUR, symbols=BOTH),
    Case("MultiHeadAttention", [Q, K, V, normal(2 * W + N * 5)], FOUR, symbols=BOTH),
    *[Case("MultiHeadAttention", [Q, K, V, normal(2 * W + N * 5), m, normal(1, N, S, L)], FOUR, symbols={S: "s"})
      for m in (ints(3, 6), coins(B, L), coins(B, S, L), ints(3, 6, 0, 5, 10, 0, 3, 9))],
    *[Case("MultiHeadAttention", [Q, OWN_K, OWN_V, BIAS, m, normal(B, 1, S, S)], CAUSAL, symbols=NAMED)
      for m in (ints(3, 5), coins(B, S), coins(B, S, S))],
    Case("MultiHeadAttention", [Q, OWN_K, OWN_V, BIAS, None, None, *CACHE], FOUR, (0, 1, 2), symbols={P: "p"}),
    Case("MultiHeadAttention", [Q, OWN_K, OWN_V, BIAS, coins(B, T), normal(B, N, S, T), *CACHE], CAUSAL, (0, 1, 2)),
    Case("MultiHeadAttention", [Q, OWN_K, OWN_V, None, None, None, *CACHE], CAUSAL, (0, 1, 2), symbols={P: "p"}),
    Case("MultiHeadAttention", [Q, OWN_K, OWN_V], {**FOUR, "scale": 0.2}, (0, 1, 2)),
    Case("MultiHeadAttention", [Q, OWN_K, OWN_V, None, coins(B, S)], {**FOUR, "mask_filter_value": -3.0}),
    Case("MultiHeadAttention", [Q, normal(B, N, L, H), normal(B, N, L, H), BIAS], FOUR),
]  # fmt: skip


@pytest.mark.parametrize("c", MULTI, ids=lambda c: c.id)
def test_multi_head_attention(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


@pytest.mark.parametrize("biased", [False, True])
def test_packed_operands(biased: bool, imported: Any, model: Any) -> None:
    """ONNX Runtime's CPU has no kernel for them."""
    bias = normal(3 * W) if biased else None
    offsets = np.zeros((3, N, H), F32) if bias is None else bias.reshape(3, N, H)
    three, two = normal(B, S, N, 3, H), normal(B, L, N, 2, H)
    q, k, v = (turned(three[:, :, :, i] + offsets[i]) for i in range(3))
    c = Case("MultiHeadAttention", [three, None, None, bias], FOUR, symbols=NAMED)
    check(c, imported, model, [attend(q, k, v)[0]])
    q = turned(Q.reshape(B, S, N, H) + offsets[0])
    k, v = (turned(two[:, :, :, i] + offsets[1 + i]) for i in range(2))
    check(
        Case("MultiHeadAttention", [Q, two, None, bias], FOUR),
        imported,
        model,
        [attend(q, k, v)[0]],
    )


def test_weights_as_an_output(imported: Any, model: Any) -> None:
    q, k, v = (turned(x.reshape(B, S, N, H)) for x in (Q, OWN_K, OWN_V))
    c = Case("MultiHeadAttention", [Q, OWN_K, OWN_V, None, coins(B, S)], FOUR, (0, 3))
    added = np.where(c.arrays[4] > 0, 0, -10000.0)[:, None, None]
    check(c, imported, model, [x.astype(F32) for x in attend(q, k, v, added)])


# -- RotaryEmbedding -----------------------------------------------------------------------------

COS, SIN = normal(9, 4), normal(9, 4)
PLACES = RNG.integers(0, 9, (B, S))
ROTARY = [
    *[Case("RotaryEmbedding", [x, places, COS, SIN], {"interleaved": interleaved, **attrs}, symbols=NAMED)
      for interleaved in (0, 1)
      for x, places, attrs in (
          (normal(B, S, 24), PLACES, {}),
          (normal(B, 3, S, 8), np.array([2]), {}),
          (normal(B, S, 24), np.array([2]), {"scale": 0.5}),
          (normal(B, S, 30), PLACES, {"num_heads": 3, "rotary_embedding_dim": 8}),
          (normal(B, 3, S, 10), PLACES, {"num_heads": 3, "rotary_embedding_dim": 8}),
      )],
    Case("RotaryEmbedding", [normal(1, 1, 24), np.array([[2]]), COS, SIN]),
    Case("RotaryEmbedding", [normal(1, 1, 24), np.array([2]), COS, SIN]),
]  # fmt: skip


@pytest.mark.parametrize("c", ROTARY, ids=lambda c: c.id)
def test_rotary_embedding(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


# -- GroupQueryAttention -------------------------------------------------------------------------

GROUPS, SHARED, DEPTH, BUFFER = 6, 3, 16, 9
ANGLES = normal(20, 8), normal(20, 8)


def grouped(queries: int, packed: bool = False, batch: int = B) -> list[Any]:
    width, own = GROUPS * DEPTH, SHARED * DEPTH
    if packed:
        return [normal(batch, queries, width + 2 * own), None, None]
    return [normal(batch, queries, width), normal(batch, queries, own), normal(batch, queries, own)]


def cache(length: int, batch: int = B) -> list[Any]:
    return [normal(batch, SHARED, length, DEPTH), normal(batch, SHARED, length, DEPTH)]


def group_case(
    qkv: list[Any], past: list[Any], last: Any, total: int, more: Any = (), **attrs: Any
) -> Case:
    """``last``: lengths - 1 of the samples; ``total``: the longest."""
    attrs = {"num_heads": GROUPS, "kv_num_heads": SHARED, **attrs}
    arrays = [*qkv, *(past or [None, None]), last, np.array(total, np.int32), *more]
    return Case(
        "GroupQueryAttention", arrays, attrs, (0, 1, 2), frozenset({6}), {B: "b", BUFFER: "m"}
    )


def check_groups(c: Case, imported: Any, model: Any) -> None:
    """What padding holds, results of padded queries and the cache past the sample's keys, is free."""
    y, *present = (a.copy() for a in by_onnx_runtime(c.model(model, False), c.names, c.feed))
    queries = y.shape[1]
    for i, last in enumerate(c.arrays[5]):
        before = max(last + 1 - queries, 0)
        y[i, last + 1 - before :] = np.nan
        for a in present:
            a[i, :, before + queries :] = np.nan
    check(c, imported, model, [y, *present])


STEPS = {
    "prompt": lambda: (grouped(5), [], ints(4, 4), 5),
    "padded prompt": lambda: (grouped(5), [], ints(4, 2), 5),
    "packed prompt": lambda: (grouped(5, True), [], ints(4, 2), 5),
    "prompt into a buffer": lambda: (grouped(5), cache(BUFFER), ints(4, 2), 5),
    "step in a buffer": lambda: (grouped(1), cache(BUFFER), ints(6, 3), 7),
    "packed step": lambda: (grouped(1, True), cache(BUFFER), ints(6, 3), 7),
    "growing step": lambda: (grouped(1), cache(6), ints(6, 3), 7),
    "several growing": lambda: (grouped(3, batch=1), cache(6, 1), ints(8), 9),
}
FORMS: list[dict[str, Any]] = [
    {}, {"scale": 0.2}, {"local_window_size": 3}, {"softcap": 1.5}, {"smooth_softmax": 1}, {"do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 2},
]  # fmt: skip


@pytest.mark.parametrize(("step", "attrs"), list(itertools.product(STEPS, FORMS)), ids=str)
def test_group_query_attention(step: str, attrs: dict[str, Any], imported: Any, model: Any) -> None:
    more = ANGLES if "do_rotary" in attrs else ()
    check_groups(group_case(*STEPS[step](), more, **attrs), imported, model)


MORE_GROUPS = [
    group_case(grouped(5), [], ints(4, 4), 5, causal=0),
    group_case(grouped(1), cache(6), ints(6, 3), 7, causal=0),
    group_case(grouped(1), cache(BUFFER), ints(6, 3), 7, (None, None, None, normal(B, 1, 1, 7))),
    group_case(
        grouped(5), [], ints(4, 4), 5, (None, None, None, normal(1, GROUPS, 5, 5), normal(GROUPS))
    ),
    group_case(
        grouped(1),
        cache(BUFFER),
        ints(6, 3),
        7,
        (None, None, None, None, normal(GROUPS)),
        softcap=2.0,
    ),
    group_case(
        grouped(1), cache(BUFFER), ints(6, 3), 7, (*ANGLES, np.array([[6], [2]])), do_rotary=1
    ),
    group_case(
        grouped(5), [], ints(4, 4), 5, (*ANGLES, np.array([[0, 1, 2, 3, 4]] * 2)), do_rotary=1
    ),
]


@pytest.mark.parametrize("c", MORE_GROUPS, ids=lambda c: c.id)
def test_other_forms_of_group_query_attention(c: Case, imported: Any, model: Any) -> None:
    check_groups(c, imported, model)


@pytest.mark.parametrize("step", ["packed step", "growing step"])
def test_a_cache_that_does_not_tell_the_size_of_its_heads(
    step: str, imported: Any, model: Any
) -> None:
    """Keys tell it; so that the rows behind the attention are of known length."""
    c = replace(group_case(*STEPS[step]()), symbols={B: "b", BUFFER: "m", DEPTH: "size"})
    check_groups(c, imported, model)
    net = imported(c.model(model, True))
    assert [v.spec.shape[3] for v in net.inputs if v.name in ("i3", "i4")] == [DEPTH, DEPTH]
    assert isinstance(net.outputs[0].spec.shape[2], int)


def test_a_length_that_running_tells_needs_a_buffer(imported: Any, model: Any) -> None:
    c = group_case(grouped(1), cache(BUFFER), ints(6, 3), 7)
    check_groups(Case(c.op, c.arrays, c.attrs, c.outputs, frozenset(), c.symbols), imported, model)


@pytest.mark.parametrize("step", ["step in a buffer", "growing step", "several growing"])
def test_a_cache_declared_to_grow_takes_its_length_from_running(
    step: str, imported: Any, model: Any
) -> None:
    """As decoders declare it whose total length is an input: past (.., p, ..), present (.., t, ..)."""
    qkv, past, last, total = STEPS[step]()
    c = replace(
        group_case(qkv, past, last, total),
        constants=frozenset(),
        symbols={past[0].shape[2]: "p", BUFFER: "p"},
    )

    def declared(*args: Any, **more: Any) -> Any:
        made = model(*args, **more)
        for y in made.graph.output[1:]:
            shape = (len(last), SHARED, "t", DEPTH)
            made_type = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
            y.type.CopyFrom(made_type)
        return made

    check_groups(c, imported, declared)


def test_normalized_heads(imported: Any, model: Any) -> None:
    """ONNX Runtime's CPU has no kernel for them."""
    (q, k, v), scales = grouped(5), [normal(DEPTH), normal(DEPTH)]

    def normalized(x: Any, heads: int, scale: Any) -> Any:
        apart = x.reshape(B, 5, heads, DEPTH)
        return apart / np.sqrt(np.square(apart).mean(-1, keepdims=True) + 1e-6) * scale

    want_q, want_k = normalized(q, GROUPS, scales[0]), normalized(k, SHARED, scales[1])
    keys, values = (
        np.repeat(turned(x.reshape(B, 5, SHARED, DEPTH)), 2, axis=1) for x in (want_k, v)
    )
    below = np.where(np.tri(5) > 0, 0, -np.inf)
    want = attend(turned(want_q), keys, values, below, DEPTH**-0.5)[0].astype(F32)
    c = group_case([q, k, v], [], ints(4, 4), 5, (None,) * 7 + tuple(scales))
    check(Case(c.op, c.arrays, c.attrs, (0,), c.constants), imported, model, [want])


# -- what is refused -----------------------------------------------------------------------------

REFUSED = [
    (Case("Attention", [X, WEIGHTS, BIAS], {"num_heads": N, "do_rotary": 1}), "rotation"),
    (Case("Attention", [X, WEIGHTS, BIAS], {"num_heads": N, "past_present_share_buffer": 1}), "in place"),
    (Case("Attention", [X, WEIGHTS, BIAS], {}), "num_heads"),
    (Case("Attention", [X, WEIGHTS, BIAS, ints(1, 2, 3)], {"num_heads": N}), "3 numbers for 2 samples"),
    (Case("Attention", [X, WEIGHTS, BIAS, coins(B, 4)], {"num_heads": N}), "not as long"),
    (Case("MultiHeadAttention", [Q, K, V], CAUSAL), "5 queries and 6 keys"),
    (Case("MultiHeadAttention", [Q, K], FOUR), "missing"),
    (Case("MultiHeadAttention", [Q, K, V, None, None, None, None, None, ints(3)], FOUR), "in place"),
    (Case("RotaryEmbedding", [normal(B, S, 24), PLACES, COS, SIN], {"rotary_embedding_dim": 8}), "num_heads"),
    (group_case(grouped(5), [], ints(4, 4), 5, k_quant_type="PER_TENSOR"), "quantised cache"),
    (group_case(grouped(5), [], ints(4, 4), 5, sliding_window_cache=1), "window alone"),
    (group_case(grouped(5), [], ints(4, 4), 5, qk_output=1), "scores"),
    (group_case(grouped(5), [], ints(4, 4), 5, causal=0, local_window_size=3), "without causal"),
]  # fmt: skip


@pytest.mark.parametrize(("c", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refused_forms_say_why(c: Case, reason: str, imported: Any, model: Any) -> None:
    with pytest.raises(UnsupportedOperator, match=reason) as e:
        imported(c.model(model, False))
    assert e.value.do


def test_one_attention_layer_where_scores_are_only_masked(imported: Any, model: Any) -> None:
    cases = [ATTENTION[0], MULTI[1], group_case(*STEPS["step in a buffer"]())]
    for c in cases:
        layers = [n.layer.name for n in imported(c.model(model, True)).nodes]
        assert layers.count("Attention") == 1
        assert "Softmax" not in layers
