"""c_linear_attention: every rule, optional inputs, shared heads, odd and symbolic sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness import Case, check_all, node, opened, spec

from tactix.base.dtypes import DType
from tactix_cpu.tactics.signal.linear_attention import LinearAttentionTactic
from tactix_ops.layers.linear_attention import RULES

TACTIC = LinearAttentionTactic()


def arrays(
    code="f32", batch=2, steps=5, heads=2, shared=1, keys=7, values=37, decays=1, betas=None
):
    """q, k, v, state, decay and beta; small numbers, as those of trained models."""
    rng = np.random.default_rng(3)
    t = DType(code).numpy

    def drawn(*shape):
        return (rng.standard_normal(shape) * 0.3).astype(t)

    return [
        drawn(batch, steps, heads * shared * keys),
        drawn(batch, steps, heads * keys),
        drawn(batch, steps, heads * values),
        drawn(batch, heads, keys, values),
        -np.abs(drawn(batch, steps, heads * decays)),
        np.abs(drawn(batch, steps, heads if betas is None else betas)),
    ]


def case(given, heads=2, shared=1, **attrs):
    made = node("LinearAttention", given, q_num_heads=heads * shared, kv_num_heads=heads, **attrs)
    return Case(made, TACTIC, [x for x in given if x is not None], nt=(1, 3))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_and_optional_input(rule):
    given = arrays()
    cases = []
    for there in itertools.product((True, False), repeat=3):
        rest = [x if is_there else None for x, is_there in zip(given[3:], there, strict=True)]
        cases.append(case([*given[:3], *rest], update_rule=rule))
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "bf16"])
def test_every_dtype(code):
    check_all([case(arrays(code), update_rule=rule, scale=0.5) for rule in RULES])


def test_decays_of_keys_and_one_beta_for_all_heads():
    check_all([case(arrays(keys=19, decays=19, betas=1), update_rule="gated_delta")])


@pytest.mark.parametrize("sizes", [(1, 64, 64), (3, 1, 1), (4, 16, 33), (2, 128, 5)])
def test_heads_that_share_states(sizes):
    shared, keys, values = sizes
    check_all([case(arrays(shared=shared, keys=keys, values=values), shared=shared)])


@pytest.mark.parametrize("env", [{"b": 2, "t": 5}, {"b": 0, "t": 3}, {"b": 1, "t": 0}])
def test_symbolic_sizes(env):
    given = arrays(batch=env["b"], steps=env["t"])
    shapes = [("b", "t", x.shape[2]) for x in given]
    shapes[3] = ("b", *given[3].shape[1:])
    specs = [spec(x, s) for x, s in zip(given, shapes, strict=True)]
    made = node("LinearAttention", specs, q_num_heads=2, kv_num_heads=2)
    check_all([Case(made, TACTIC, given, env=env)])


@pytest.mark.parametrize("code", ["f64", "f32", "f16"])
@pytest.mark.parametrize("rule", RULES)
def test_heads_of_open_sizes(code, rule):
    cases = []
    for keys, values, decays in ((7, 37, 7), (64, 5, 1), (1, 1, 1)):
        given = arrays(code, keys=keys, values=values, decays=decays, betas=1)
        specs, env = opened(*given)
        if decays == 1:
            specs[4] = spec(given[4], (*specs[4].shape[:2], 2))
        made = node("LinearAttention", specs, q_num_heads=2, kv_num_heads=2, update_rule=rule)
        cases.append(Case(made, TACTIC, given, env=env))
    check_all(cases)
