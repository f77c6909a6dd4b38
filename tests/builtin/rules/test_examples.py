"""Every rule's own example: the rule fires, the numbers stay, a second run changes nothing."""

from __future__ import annotations

import pytest

from tactix.contracts.rule import NUMERICS, PHASES
from tactix_ops.rules import all_rules

RULES = {rule.key.removeprefix("tactix."): rule for rule in all_rules()}


def test_keys_are_unique_and_fields_are_known():
    rules = all_rules()
    assert len({r.key for r in rules}) == len(rules)
    for r in rules:
        assert r.key.startswith("tactix.")
        assert r.numerics in NUMERICS
        assert r.phase in PHASES
        assert r.example is not None, f"{r.key} has no example"


@pytest.mark.parametrize("key", sorted(RULES))
def test_example_fires_alone(key, net, apply):
    RULES[key].example(net)
    _, _, trace = apply(net, key)
    assert trace.counts[f"tactix.{key}"] >= 1


@pytest.mark.parametrize("key", sorted(RULES))
def test_example_with_all_rules(key, net, apply):
    RULES[key].example(net)
    _, out, trace = apply(net)
    assert sum(n.layer.name != "Reshape" for n in out.nodes) <= len(net.nodes) + 1
    assert trace.firings
