"""Attention of bfloat16, by every kernel that takes it: widened, in pairs, and on the matrix unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Reject, Tactic
from tactix_cpu.tactics import attention, attention_bf16
from tactix_cpu.tactics.attention import KEYS
from tactix_cpu.tactics.dot_tile import HALVES

(WIDENED,), (PAIRS, TILES) = attention.tactics(), attention_bf16.tactics()
UNIT = {"avx512_bf16", *HALVES.unit}
WIDEST = replace(h.NATIVE, features=h.NATIVE.features | UNIT | set(h.V4), vector_bits=512)
KINDS: list[Any] = [
    pytest.param(WIDENED, h.NATIVE, id="widened"),
    pytest.param(PAIRS, WIDEST, id="pairs", marks=h.needs("avx512_bf16", *h.V4)),
    pytest.param(TILES, WIDEST, id="tiles", marks=h.needs(*sorted(UNIT), *h.V4)),
]
kinds = pytest.mark.parametrize(("tactic", "device"), KINDS)
RNG = np.random.default_rng(19)
SCALE = 0.25


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(DType.BF16.numpy)


class Cases:
    """Cases of one tactic on one device."""

    def __init__(self, tactic: Tactic, device: DeviceProperties) -> None:
        self.tactic, self.device = tactic, device
        self.found: list[h.Case] = []

    def add(
        self, arrays: Sequence[Any], symbols: Any = None, layer: str = "Attention", **attrs: Any
    ) -> None:
        """``symbols``: the shapes of the inputs with names."""
        shapes = symbols or [x.shape for x in arrays]
        env = {
            s: d
            for x, names in zip(arrays, shapes, strict=True)
            for s, d in zip(names, x.shape, strict=True)
            if isinstance(s, str)
        }
        specs = [h.spec(x, s) for x, s in zip(arrays, shapes, strict=True)]
        node = h.node(layer, specs, **{"scale": SCALE, **attrs})
        self.found.append(h.Case(node, self.tactic, arrays, env=env, device=self.device, nt=(1, 3)))

    def check(self) -> None:
        h.check_all(self.found)


@kinds
def test_odd_sizes(tactic: Tactic, device: DeviceProperties) -> None:
    cases = Cases(tactic, device)
    for s, t, d, e in (
        (20, 20, 32, 32),
        (17, 33, 7, 9),
        (64, KEYS, 64, 80),
        (33, 2 * KEYS + 1, 24, 33),
        (40, KEYS + 17, 100, 16),
        (8, 1, 1, 1),
    ):
        cases.add([halves(1, 2, s, d), halves(1, 2, t, d), halves(1, 2, t, e)])
    cases.check()


@kinds
def test_heads_are_shared_and_scales_have_any_sign(
    tactic: Tactic, device: DeviceProperties
) -> None:
    cases = Cases(tactic, device)
    cases.add([halves(2, 3, 9, 16), halves(2, 1, 9, 16), halves(1, 3, 9, 16)])
    cases.add([halves(1, 4, 35, 16), halves(2, 4, 40, 16), halves(2, 1, 40, 20)], scale=-0.5)
    cases.check()


@kinds
@pytest.mark.parametrize("keys", [19, KEYS + 5])
def test_masks_of_both_floats_broadcast(
    tactic: Tactic, device: DeviceProperties, keys: int
) -> None:
    cases = Cases(tactic, device)
    q, k, v = halves(2, 3, 39, 16), halves(2, 3, keys, 16), halves(2, 3, keys, 32)
    for shape in ((2, 3, 39, keys), (2, 1, 1, keys), (1, 3, 39, 1), (39, keys), (1, 1, 1, 1)):
        for mask in (floats(*shape), halves(*shape)):
            cases.add([q, k, v, mask])
    cases.check()


@kinds
@pytest.mark.parametrize("nan_to_zero", [False, True])
def test_rows_that_may_attend_to_nothing(
    tactic: Tactic, device: DeviceProperties, nan_to_zero: bool
) -> None:
    keys = 2 * KEYS + 40
    q, k, v = halves(2, 2, 19, 16), halves(2, 2, keys, 16), halves(2, 2, keys, 48)
    mask = floats(2, 2, 19, keys)
    mask[0, :, 3] = -np.inf
    mask[:, :, 5:, : KEYS + 7] = -np.inf
    mask[:, :, 6, 20:] = -np.inf
    mask[1, 0, 2, 5] = np.nan
    mask[1, 1, 4, 7] = np.inf
    cases = Cases(tactic, device)
    cases.add([q, k, v, mask], nan_to_zero=nan_to_zero)
    cases.check()


@kinds
def test_what_is_no_number_spreads_over_its_row(tactic: Tactic, device: DeviceProperties) -> None:
    q, k, v = halves(1, 2, 40, 24), halves(1, 2, 50, 24), halves(1, 2, 50, 20)
    q[0, 0, 7, 3] = np.nan
    q[0, 1, 35, 0] = np.inf
    v[0, 1, 4, 5] = np.nan
    cases = Cases(tactic, device)
    cases.add([q, k, v])
    cases.check()


@kinds
def test_causal_masks_leave_keys_out(tactic: Tactic, device: DeviceProperties) -> None:
    cases = Cases(tactic, device)
    for keys in (37, KEYS + 40):
        q, k, v = halves(1, 2, 37, 10), halves(1, 2, keys, 10), halves(1, 2, keys, 20)
        hidden = np.arange(keys) > np.arange(37)[:, None]
        for never in (-np.inf, np.finfo(np.float32).min):
            causal = np.where(hidden, np.float32(never), floats(37, keys))
            cases.add([q, k, v, causal])
            cases.add([q, k, v, causal.astype(DType.BF16.numpy)])
    cases.check()


@kinds
def test_symbolic_sizes(tactic: Tactic, device: DeviceProperties) -> None:
    cases = Cases(tactic, device)
    for b, s, t in ((1, 1, 1), (2, 39, 40), (1, 69, KEYS + 3), (2, 5, 0), (1, 0, 4), (0, 3, 4)):
        names = [("b", 3, "s", 16), ("b", 3, "t", 16), ("b", 3, "t", 33), ("b", 1, "s", "t")]
        arrays = [halves(b, 3, s, 16), halves(b, 3, t, 16), halves(b, 3, t, 33), floats(b, 1, s, t)]
        cases.add(arrays, names)
        cases.add(arrays[:3], names[:3])
    cases.check()


@kinds
def test_first_rows_of_longer_keys(tactic: Tactic, device: DeviceProperties) -> None:
    cases = Cases(tactic, device)
    cases.add([halves(2, 4, 9, 16), halves(2, 1, 50, 16), halves(2, 4, 50, 20)], keys=37)
    cases.check()


@kinds
def test_heads_beside_each_other_in_rows_of_tokens(
    tactic: Tactic, device: DeviceProperties
) -> None:
    x = halves(2, 45, 70)
    cases = Cases(tactic, device)
    cases.add([x, x, x], layer="TokenAttention", heads=2, dim=10, value_dim=13, columns=(3, 24, 44))
    cases.check()


@kinds
def test_results_are_rounded_before_what_follows(tactic: Tactic, device: DeviceProperties) -> None:
    arrays = [
        halves(1, 2, 39, 16),
        halves(1, 2, 42, 16),
        halves(1, 2, 42, 24),
        floats(1, 2, 39, 24),
    ]
    nodes = [
        ("Attention", (0, 1, 2), {"scale": SCALE}),
        ("Cast", (4,), {"to": DType.FP32}),
        ("Add", (5, 3), {}),
    ]
    node = h.fused(arrays, nodes, [5, 6], anchor=0)
    h.check(node, tactic, arrays, device=device, budget=h.BUDGETS[DType.BF16])


def test_kernels_need_their_instructions() -> None:
    node = h.node("Attention", [halves(1, 2, 20, 8)] * 3)
    for tactic in (PAIRS, TILES):
        assert isinstance(asked.variants(tactic, node, h.devices()[-1]), Reject)
        assert not isinstance(asked.variants(tactic, node, WIDEST), Reject)
    few = h.node("Attention", [halves(1, 2, 3, 8)] * 3)
    assert isinstance(asked.variants(TILES, few, WIDEST), Reject)


def test_estimates_prefer_the_matrix_unit_and_take_pairs_for_no_gain() -> None:
    """Pairs are as fast as two products of float32 at best: only measuring tells."""
    node = h.node("Attention", [halves(1, 12, 512, 64)] * 3)
    costs = []
    for tactic in (TILES, WIDENED, PAIRS):
        offered: Any = asked.variants(tactic, node, WIDEST)
        best = [asked.cost(tactic, node, v, CompileContext(WIDEST)) or 0.0 for v in offered]
        costs.append(min(best))
    assert costs == sorted(costs)
