"""Choosing over formats: the whole graph's time counts, not each node's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tactix.base.tensor import LINEAR, Format, blocked
from tactix.contracts.artifact import KernelArtifact, Launch
from tactix.contracts.device import Costs
from tactix.contracts.expr import maximum
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Tactic, Variant
from tactix.network.definition import NetworkDefinition
from tactix.select.choose import Chooser
from tactix.select.enumerate import Candidate
from tactix_sdk.scalar_layer import PointwiseLayer

RELU = PointwiseLayer("t.Relu@1", lambda x: maximum(x, 0.0))
C16 = blocked(16)


class Fake(Tactic):
    key = "t.fake@1"


def candidate(seconds: float, fmt: Format, status: str = "measured") -> Candidate:
    tactic = Fake()
    tactic.key = f"t.{fmt.name}@1"
    return Candidate(
        tactic, Variant((fmt,), (fmt,)), KernelArtifact("x"), None, seconds, status=status
    )


def chain(length: int, numel: int = 1 << 16) -> tuple[NetworkDefinition, Sequence[Node]]:
    net = NetworkDefinition({RELU.key: RELU})
    v = net.add_input("x", "f32", (1, 16, numel // 16))
    for _ in range(length):
        (v,) = net.add_layer("t.Relu", [v])
    net.mark_output(v)
    return net, net.nodes


def choose(
    net: NetworkDefinition, nodes: Sequence[Node], options: dict[Node, list[Candidate]]
) -> Any:
    return Chooser(nodes, options, net.outputs, {}).run()


def test_one_fast_blocked_node_is_not_worth_two_reformats() -> None:
    net, nodes = chain(3)
    options = {n: [candidate(100e-6, LINEAR)] for n in nodes}
    options[nodes[1]] = [candidate(100e-6, LINEAR), candidate(60e-6, C16)]
    found = choose(net, nodes, options)
    assert all(c.variant.input_format(0) is LINEAR for c in found.candidates.values())
    assert found.seconds == pytest.approx(300e-6)


def test_a_change_of_format_that_moves_nothing_costs_nothing() -> None:
    net = NetworkDefinition({RELU.key: RELU})
    v = net.add_input("x", "f32", (1, 1 << 16, 1))
    for _ in range(3):
        (v,) = net.add_layer("t.Relu", [v])
    net.mark_output(v)
    options = {n: [candidate(100e-6, LINEAR)] for n in net.nodes}
    options[net.nodes[1]] = [candidate(100e-6, LINEAR), candidate(60e-6, C16)]
    found = choose(net, net.nodes, options)
    assert found.candidates[net.nodes[1]].variant.input_format(0) == C16
    assert found.seconds == pytest.approx(260e-6)


def test_a_run_of_blocked_nodes_is() -> None:
    net, nodes = chain(6)
    options = {n: [candidate(100e-6, LINEAR), candidate(40e-6, C16)] for n in nodes}
    found = choose(net, nodes, options)
    assert all(c.variant.input_format(0) == C16 for c in found.candidates.values())
    move = 2 * (1 << 16) * 4 / 6e9 + 1e-6
    assert found.seconds == pytest.approx(6 * 40e-6 + 2 * move)


def test_a_slightly_slower_node_keeps_the_format_of_its_neighbours() -> None:
    """A descent from each node's fastest alone would stay at the mixed choice."""
    net, nodes = chain(5)
    options = {n: [candidate(100e-6, LINEAR), candidate(30e-6, C16)] for n in nodes}
    options[nodes[2]] = [candidate(50e-6, LINEAR), candidate(52e-6, C16)]
    found = choose(net, nodes, options)
    assert found.candidates[nodes[2]].variant.input_format(0) == C16


def test_rejected_candidates_are_never_chosen_and_ties_are_broken_by_key() -> None:
    net, nodes = chain(1)
    wrong = candidate(1e-9, LINEAR, "rejected")
    a, b = candidate(10e-6, LINEAR), candidate(10e-6, LINEAR)
    a.tactic.key, b.tactic.key = "t.b@1", "t.a@1"
    found = choose(net, nodes, {nodes[0]: [wrong, a, b]})
    assert found.candidates[nodes[0]] is b


def test_launches_and_changes_of_format_cost_what_the_device_says() -> None:
    net, nodes = chain(2)
    twice = Launch(()), Launch(())
    one, two = candidate(10e-6, LINEAR), candidate(9e-6, LINEAR)
    one.artifact, two.artifact = KernelArtifact("x", twice[:1]), KernelArtifact("x", twice)
    other = candidate(5e-6, C16)
    options = {nodes[0]: [one, two], nodes[1]: [candidate(20e-6, LINEAR), other]}

    def found(**costs: float) -> Any:
        return Chooser(nodes, options, net.outputs, {}, Costs(**costs)).run()

    cheap = found(launch=0.5e-6, reformat=1e-6, bandwidth=1e12)
    moved = 2 * (1 << 16) * 4 / 1e12
    assert list(cheap.candidates.values()) == [two, other]
    assert cheap.seconds == pytest.approx(9e-6 + 2 * 0.5e-6 + 5e-6 + 2 * (1e-6 + 0.5e-6 + moved))
    dear = found(launch=2e-6, reformat=1e-6, bandwidth=6e9)
    assert [c.tactic.key for c in dear.candidates.values()] == [one.tactic.key, one.tactic.key]
    assert dear.candidates[nodes[0]] is one


def noisy(seconds: float, key: str, spread: float = 0.0) -> Candidate:
    out = candidate(seconds, LINEAR)
    out.tactic.key, out.spread = key, spread
    return out


def test_within_noise_the_choice_does_not_follow_the_times() -> None:
    net, (node,) = chain(1)
    for own, other in ((100e-6, 99e-6), (99e-6, 100e-6), (100e-6, 100e-6)):
        bids = [
            noisy(other, "acme.x@1", 0.02),
            noisy(own, "tactix.x@1", 0.02),
            noisy(own, "tactix.y@1", 0.02),
        ]
        found = choose(net, [node], {node: bids})
        assert found.candidates[node] is bids[1]
        assert found.ties[node] == {bids[0].title, bids[2].title}


def test_noise_hides_no_more_than_a_few_percent() -> None:
    net, (node,) = chain(1)
    bids = [
        noisy(100e-6, "tactix.x@1", 0.5),
        noisy(90e-6, "acme.x@1", 0.5),
        noisy(200e-6, "acme.y@1", 0.1),
    ]
    found = choose(net, [node], {node: bids})
    assert found.candidates[node] is bids[1]
    assert found.ties[node] == {bids[0].title}  # another build may see it otherwise, and says so
    bids = [noisy(100e-6, "tactix.x@1"), noisy(98e-6, "acme.x@1"), noisy(110e-6, "acme.y@1")]
    found = choose(net, [node], {node: bids})
    assert found.candidates[node] is bids[1]
    assert found.ties[node] == {bids[0].title}


def test_whole_choices_that_are_as_fast_are_ties() -> None:
    net, nodes = chain(2)
    move = 2 * (1 << 16) * 4 / 6e9 + 1e-6
    blocked_seconds = 100e-6 - move
    options = {n: [candidate(100e-6, LINEAR), candidate(blocked_seconds, C16)] for n in nodes}
    found = choose(net, nodes, options)
    (format_,) = {c.variant.input_format(0) for c in found.candidates.values()}
    other = "t.linear@1" if format_ == C16 else "t.c16@1"
    assert all(any(other in title for title in found.ties[n]) for n in nodes)


def test_a_slow_candidate_is_no_near_tie_however_noisy_its_samples_are() -> None:
    net, (node,) = chain(1)
    bids = [noisy(100e-6, "tactix.x@1", 0.1), noisy(150e-3, "tactix.y@1", 2.0)]
    found = choose(net, [node], {node: bids})
    assert found.candidates[node] is bids[0]
    assert found.ties[node] == set()


def test_the_noise_of_the_fastest_says_who_is_a_near_tie() -> None:
    net, (node,) = chain(1)
    bids = [noisy(100e-6, "tactix.x@1", 2.0), noisy(290e-6, "tactix.y@1")]
    assert choose(net, [node], {node: bids}).ties[node] == {bids[1].title}
