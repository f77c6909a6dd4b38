"""The attention kernel against numpy: odd sizes, masks of every shape, rows that may attend to
nothing.
"""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.attention import KEYS, MAX_DIM, CpuAttentionTactic

ATTENTION = CpuAttentionTactic()
RNG = np.random.default_rng(15)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def attention(q: Any, k: Any, v: Any, mask: Any = None, symbols: Any = None, **more: Any) -> h.Case:
    """A case; ``symbols``: the shapes of the inputs with names."""
    arrays = [q, k, v] if mask is None else [q, k, v, mask]
    options = {name: more.pop(name) for name in ("device", "nt") if name in more}
    specs = (
        arrays if symbols is None else [h.spec(x, s) for x, s in zip(arrays, symbols, strict=True)]
    )
    env = {}
    for x, names in zip(arrays, symbols or [x.shape for x in arrays], strict=True):
        env |= {s: d for s, d in zip(names, x.shape, strict=True) if isinstance(s, str)}
    node = h.node("Attention", specs, scale=q.shape[-1] ** -0.5, **more)
    return h.Case(node, ATTENTION, arrays, env=env, **options)


def test_odd_sizes() -> None:
    h.check_all(
        [
            attention(floats(1, 2, 20, 32), floats(1, 2, 20, 32), floats(1, 2, 20, 32), nt=(1, 3)),
            attention(floats(2, 3, 17, 7), floats(2, 3, 33, 7), floats(2, 3, 33, 9)),
            attention(floats(1, 1, 1, 1), floats(1, 1, 1, 1), floats(1, 1, 1, 1)),
            attention(floats(1, 2, 3, 64), floats(1, 2, KEYS, 64), floats(1, 2, KEYS, 80)),
            attention(
                floats(1, 2, 30, 24), floats(1, 2, 2 * KEYS + 1, 24), floats(1, 2, 2 * KEYS + 1, 32)
            ),
        ]
    )


def test_heads_broadcast() -> None:
    h.check_all(
        [
            attention(floats(2, 3, 5, 16), floats(2, 1, 9, 16), floats(1, 3, 9, 16)),
            attention(floats(1, 4, 5, 16), floats(2, 4, 9, 16), floats(2, 1, 9, 20)),
        ]
    )


def test_heads_of_queries_share_keys() -> None:
    q, few, mask = floats(2, 6, 17, 16), floats(2, 2, 300, 16), floats(6, 17, 300)
    names = [("b", 6, "s", 16), ("b", 2, "t", 16), ("b", 3, "t", 16)]
    packed = floats(2, 9, 6 * 16 + 2 * 16 + 2 * 20)
    attrs = {"heads": 6, "key_heads": 2, "dim": 16, "value_dim": 20, "columns": (0, 96, 128)}
    tokens = h.Case(h.node("TokenAttention", [packed] * 3, **attrs), ATTENTION, [packed] * 3)
    h.check_all(
        [
            attention(q, few, few, mask, nt=(1, 3)),
            attention(q, few, floats(2, 3, 300, 16), symbols=names),
            attention(q, floats(2, 1, 40, 16), floats(2, 2, 40, 32), keys=31),
            tokens,
        ]
    )


@pytest.mark.parametrize("dim", [16, 20])
def test_the_first_rows_of_longer_keys(dim: int) -> None:
    """Read where they lie: those of the next head begin behind all rows."""
    q, k, v = floats(2, 3, 4, dim), floats(2, 3, 40, dim), floats(2, 3, 40, dim)
    shapes = [("n", 3, "s", dim), ("n", 3, "room", dim), ("n", 3, "room", dim)]
    h.check_all(
        [
            attention(q, k, v, keys=23, nt=(1, 3)),
            attention(q, k[:, :1], v[:1], floats(4, 40), keys=40),
            attention(q, k, v, symbols=shapes, keys=17),
        ]
    )


@pytest.mark.parametrize("keys", [19, KEYS + 5])
def test_masks_broadcast_along_any_axis(keys: int) -> None:
    q, k, v = floats(2, 3, 9, 16), floats(2, 3, keys, 16), floats(2, 3, keys, 32)
    shapes = [
        (2, 3, 9, keys),
        (2, 1, 1, keys),
        (1, 3, 9, 1),
        (9, keys),
        (keys,),
        (2, 1, 9, keys),
        (1, 1, 1, 1),
    ]
    h.check_all([attention(q, k, v, floats(*s)) for s in shapes])


@pytest.mark.parametrize("nan_to_zero", [False, True])
def test_rows_that_may_attend_to_nothing(nan_to_zero: bool) -> None:
    keys = 2 * KEYS + 40
    q, k, v = floats(2, 2, 19, 16), floats(2, 2, keys, 16), floats(2, 2, keys, 48)
    mask = floats(2, 2, 19, keys)
    mask[0, :, 3] = -np.inf
    mask[:, :, 5:, : KEYS + 7] = -np.inf
    mask[:, :, 6, 20:] = -np.inf
    mask[1, 0, 2, 5] = np.nan
    mask[1, 1, 4, 7] = np.inf
    h.check_all([attention(q, k, v, mask, nan_to_zero=nan_to_zero)])


def test_symbolic_sizes() -> None:
    cases = []
    for b, s, t in ((1, 1, 1), (2, 19, 40), (1, 5, KEYS + 3)):
        names = [("b", 3, "s", 16), ("b", 3, "t", 16), ("b", 3, "t", 32), ("b", 1, "s", "t")]
        cases.append(
            attention(
                floats(b, 3, s, 16),
                floats(b, 3, t, 16),
                floats(b, 3, t, 32),
                floats(b, 1, s, t),
                names,
            )
        )
    h.check_all(cases)


def test_epilogue() -> None:
    q, k, v, residual = (
        floats(1, 2, 9, 16),
        floats(1, 2, 12, 16),
        floats(1, 2, 12, 24),
        floats(1, 2, 9, 24),
    )
    nodes = [("Attention", (0, 1, 2), {"scale": 0.25}), ("Add", (4, 3), {}), ("Gelu", (5,), {})]
    h.check(h.fused([q, k, v, residual], nodes, anchor=0), ATTENTION, [q, k, v, residual])


def test_every_instruction_set() -> None:
    q, k, v, mask = floats(1, 2, 9, 10), floats(1, 2, 21, 10), floats(1, 2, 21, 16), floats(9, 21)
    h.check_all([attention(q, k, v, mask, device=d) for d in h.devices()])


def test_inputs_that_it_leaves_to_others() -> None:
    half = TensorSpec(DType.FP16, (1, 2, 4, 8))
    large = TensorSpec(DType.FP32, (1, 2, 4, MAX_DIM + 1))
    for spec in (half, large):
        assert isinstance(
            asked.variants(ATTENTION, h.node("Attention", [spec] * 3), h.NATIVE), Reject
        )


def test_cost_grows_with_the_keys() -> None:
    costs = []
    for t in (64, 256):
        node = attention(floats(1, 2, 32, 16), floats(1, 2, t, 16), floats(1, 2, t, 16)).node
        variant = asked.variants(ATTENTION, node, h.NATIVE)[0]  # type: ignore[index]
        costs.append(asked.cost(ATTENTION, node, variant, CompileContext(h.NATIVE)) or 0.0)
    assert 0 < 2 * costs[0] < costs[1]


def test_keys_that_no_row_may_see_are_left_out() -> None:
    cases = []
    for keys in (5, 37, KEYS + 40):
        q, k, v = floats(1, 2, 37, 10), floats(1, 2, keys, 10), floats(1, 2, keys, 20)
        hidden = np.arange(keys) > np.arange(37)[:, None]
        for never in (-np.inf, np.finfo(np.float32).min):
            causal = np.where(hidden, np.float32(never), floats(37, keys))
            none = causal.copy()
            none[[3, 36]] = never  # rows that see nothing
            cases += [
                attention(q, k, v, m, nan_to_zero=True)
                for m in (causal, none, causal[7:8], none[3:4])
            ]
    h.check_all(cases)


def test_heads_side_by_side() -> None:
    packed, q, k, v = floats(2, 21, 120), floats(2, 9, 30), floats(2, 33, 40), floats(2, 33, 27)
    mask = floats(2, 1, 21, 21)
    one = {"heads": 3, "dim": 14, "value_dim": 9, "columns": (2, 45, 88)}
    apart = {"heads": 3, "dim": 10, "value_dim": 8, "columns": (0, 6, 3)}
    wide = {"heads": 2, "dim": 16, "value_dim": 16, "columns": (0, 32, 64)}
    long = floats(1, KEYS + 3, 96)
    h.check_all(
        [
            h.Case(
                h.node("TokenAttention", arrays, scale=0.3, **attrs), ATTENTION, arrays, nt=(1, 2)
            )
            for arrays, attrs in (
                ([packed] * 3, one),
                ([q, k, v], apart),
                ([*[packed] * 3, mask], one),
                ([long] * 3, wide),
            )
        ]
    )


def test_heads_side_by_side_with_symbolic_sizes() -> None:
    x = floats(2, 19, 96)
    node = h.node(
        "TokenAttention",
        [h.spec(x, ("b", "s", 96))] * 3,
        heads=2,
        dim=16,
        value_dim=16,
        columns=(0, 32, 64),
    )
    h.check_all([h.Case(node, ATTENTION, [x] * 3, env={"b": 2, "s": 19})])


@pytest.mark.parametrize("hidden", [-88.5, -95.0, -100.0])
def test_weights_below_the_least_normal_number_are_none(
    hidden: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would make products slow, and are no part of a sum with 1."""
    q, k, v = (np.zeros((1, 1, n, 16), np.float32) for n in (5, 33, 33))
    mask = np.zeros((5, 33), np.float32)
    v[:, :, :17], v[:, :, 17:], mask[:, 17:] = 1.0, 3e38, hidden
    monkeypatch.setattr(h, "reference", lambda *given: [np.ones((1, 1, 5, 16), np.float32)])
    h.check_all([attention(q, k, v, mask, device=d) for d in h.devices()])


def test_weights_of_the_least_normal_numbers_count() -> None:
    q, k, v = (np.zeros((1, 1, n, 16), np.float32) for n in (5, 33, 33))
    mask = np.zeros((5, 33), np.float32)
    v[:, :, :17], v[:, :, 17:], mask[:, 17:] = 1.0, 3e38, -87.0
    h.check_all([attention(q, k, v, mask, device=d) for d in h.devices()])
