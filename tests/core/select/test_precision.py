"""Which nodes lower precision makes slower, and rules that leave them alone."""

from __future__ import annotations

import io
from typing import Any

import pytest
from products import HALF, WIDE

from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.base.logger import Logger
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.expr import cast
from tactix.contracts.graph import Node
from tactix.contracts.rule import Op, Rule, var
from tactix.contracts.tactic import Tactic, Variant
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.select.choose import Choice
from tactix.select.enumerate import Candidate
from tactix.select.precision import (
    NOT_FASTER,
    Lowering,
    Precisions,
    Times,
    corrected,
    pairs,
    slower,
)
from tactix_sdk.scalar_layer import PointwiseLayer

ROUND = PointwiseLayer("t.Round@1", lambda x: cast(x, DType.BF16))
TWICE = PointwiseLayer("t.Twice@1", lambda x: x + x)
LOWERING = Rule(
    "t.half",
    Op("t.Wide", (var("x"),)),
    lambda x: Op("t.Half", (Op("t.Round", (x,)),)),
    numerics="fp16",
    phase="fuse",
)

ALLOWED = Precisions(frozenset({"exact", "fp16"}), {})


def network(count: int = 3) -> NetworkDefinition:
    net = NetworkDefinition({x.key: x for x in (WIDE, HALF, ROUND, TWICE)})
    v = net.add_input("x", "f32", (4, 4))
    for i in range(count):
        (v,) = net.add_layer("t.Wide", [v], f"p{i}")
    net.mark_output(v)
    return net


def choice(net: NetworkDefinition, **seconds: float) -> Choice:
    """Every node takes the seconds of its layer, products those of their names."""

    def of(n: Node) -> Candidate:
        taken = seconds.get(n.name, seconds.get(n.layer.name, 0.0))
        return Candidate(Tactic(), Variant(), KernelArtifact("x"), None, taken)

    chosen = {n: of(n) for n in net.nodes}
    return Choice(chosen, sum(c.seconds for c in chosen.values()))


def stay(lowered: Choice, wide: Choice, lowering: Lowering) -> frozenset[str]:
    return slower(
        {name: Times.apart(p) for name, p in pairs(lowered, wide, lowering, Trace()).items()}
    )


def test_a_prediction_is_set_right_by_times_taken_in_turns() -> None:
    net = network(2)
    lowered, trace = fuse(net, [LOWERING])
    low, wide = choice(lowered, Half=8.0, Round=1.0), choice(net, Wide=30.0)
    found = pairs(low, wide, Lowering(trace, {LOWERING.key}), Trace())
    times = {"p0": Times(9.0, 10.0, "measured"), "p1": Times.apart(found["p1"])}
    assert corrected(low, found, times) == pytest.approx(9.0 + 30.0 * 9 / 10)
    assert slower({"p0": Times(9.8, 10.0, "cached"), "p1": Times(9.6, 10.0, "cached")}) == {"p0"}


def test_a_node_must_gain_more_than_its_roundings_cost() -> None:
    net = network()
    lowered, trace = fuse(net, [LOWERING])
    lowering = Lowering(trace, {LOWERING.key})
    wide = choice(net, Wide=10.0)
    assert stay(choice(lowered, Half=8.0, Round=1.0), wide, lowering) == frozenset()
    assert stay(choice(lowered, Half=8.0, Round=3.0), wide, lowering) == {"p0", "p1", "p2"}
    assert stay(choice(lowered, Half=8.0, Round=1.0, p1=9.5), wide, lowering) == {"p1"}


def test_a_near_tie_is_no_gain() -> None:
    net = network(1)
    lowered, trace = fuse(net, [LOWERING])
    lowering = Lowering(trace, {LOWERING.key})
    assert stay(choice(lowered, Half=9.8), choice(net, Wide=10.0), lowering) == {"p0"}
    assert stay(choice(lowered, Half=9.6), choice(net, Wide=10.0), lowering) == frozenset()


def test_rules_leave_what_would_be_slower() -> None:
    net = network()
    made, trace = fuse(net, [ALLOWED.gated(LOWERING, {"p1": "of some reason"}.get)])
    assert [n.layer.name for n in made.nodes if n.layer is not ROUND] == ["Half", "Wide", "Half"]
    assert {(m.node, m.reason) for m in trace.near_misses} == {("p1", "of some reason")}
    exact = Rule("t.exact", Op("t.Wide", (var("x"),)), lambda x: Op("t.Half", (x,)))
    assert ALLOWED.gated(exact, {"p1": "of some reason"}.get) is exact


def test_a_rule_keeps_its_own_condition() -> None:
    only = Rule(
        "t.some",
        LOWERING.pattern,
        LOWERING.replace,
        lambda root: root.name != "p2",
        numerics="fp16",
        phase="fuse",
    )
    made, _ = fuse(network(), [ALLOWED.gated(only, {"p0": NOT_FASTER}.get)])
    assert [n.layer.name for n in made.nodes if n.layer is not ROUND] == ["Wide", "Half", "Wide"]


def kinds(precisions: Precisions, stays: Any = lambda name: "") -> list[str]:
    made, _ = fuse(network(), [precisions.gated(LOWERING, stays)])
    return [n.layer.name for n in made.nodes if n.layer is not ROUND]


def test_layers_have_the_precision_that_is_wanted_of_them() -> None:
    allowed, none = frozenset({"exact", "fp16"}), frozenset({"exact"})
    assert kinds(Precisions(none, {})) == ["Wide", "Wide", "Wide"]
    assert kinds(Precisions(allowed, {"p1": "fp32"})) == ["Half", "Wide", "Half"]
    assert kinds(Precisions(none, {"p[01]": "fp16"})) == ["Half", "Half", "Wide"]
    assert kinds(Precisions(allowed, {"*": "fp32", "p2": "fp16"})) == ["Wide", "Wide", "Half"]
    assert kinds(Precisions(allowed, {"p0": "bf16"})) == ["Wide", "Half", "Half"]
    wanted = Precisions(allowed, {"p1": "fp16"})
    assert kinds(wanted, lambda name: NOT_FASTER) == ["Wide", "Half", "Wide"], "slower, but wanted"
    wanted.check(Logger())
    assert wanted.obeyed == {"p1"}


def test_what_cannot_be_is_an_error() -> None:
    for wanted in ({"p0": "bf16"}, {"q*": "fp16"}, {"q*": "fp32"}):
        precisions = Precisions(frozenset({"exact", "fp16"}), wanted)
        kinds(precisions)
        with pytest.raises(ConfigError, match=next(iter(wanted.values()))):
            precisions.check(Logger())


def test_what_is_only_preferred_may_stay() -> None:
    told = io.StringIO()
    wanted = {"p0": "bf16", "p1": "fp16"}
    precisions = Precisions(frozenset({"exact", "fp16"}), wanted, frozenset(wanted))
    assert kinds(precisions) == ["Wide", "Half", "Half"]
    precisions.check(Logger(stream=told))
    assert told.getvalue().startswith("[tactix] [W] p0: no layer of that name")
    assert told.getvalue().count("\n") == 1
    assert not precisions.obeyed, "it may go back where no kernel computes it"


def test_names_of_the_model_count_for_what_stands_for_its_nodes() -> None:
    precisions = Precisions(frozenset({"exact"}), {"conv*": "fp32"})
    (y,) = network(1).add_layer("t.Wide", [network(1).inputs[0]], "other", ["first", "conv7"])
    assert y.producer is not None
    assert precisions.of(y.producer) == "fp32"
    precisions.check(Logger())


def test_a_wish_for_one_name_is_told_by_that_name() -> None:
    with pytest.raises(ConfigError, match=r"^\(Layer\* 0\) \[Relu\]: unfulfilled"):
        Precisions(frozenset(), {"(Layer[*] 0) [[]Relu]": "bf16"}).check(Logger())


def test_a_node_is_found_under_the_name_that_a_rule_gave_it() -> None:
    """A stage lowers before rules rename what stays wide."""
    net = network(2)
    lowered, trace = fuse(net, [LOWERING])
    renaming = Rule(
        "t.plain",
        Op("t.Wide", (var("x"),)),
        lambda x: Op("t.Twice", (Op("t.Half", (x,)),)),
        phase="fuse",
    )
    wide, renamed = fuse(net, [renaming])
    assert {n.name for n in wide.nodes if n.layer is HALF}.isdisjoint({"p0", "p1"})
    low, plain = choice(lowered, Half=8.0, Round=1.0), choice(wide, Half=10.0)
    found = pairs(low, plain, Lowering(trace, {LOWERING.key}), renamed)
    assert {name: Times.apart(p).wide for name, p in found.items()} == {"p0": 10.0, "p1": 10.0}


def test_nodes_that_one_replaces_are_decided_together() -> None:
    net = network(2)
    lowered, trace = fuse(net, [LOWERING])
    joining = Rule(
        "t.both",
        Op("t.Wide", (Op("t.Wide", (var("x"),)),)),
        lambda x: Op("t.Half", (x,)),
        phase="fuse",
    )
    wide, joined = fuse(net, [joining])
    low, plain = choice(lowered, Half=8.0, Round=1.0), choice(wide, Half=17.0)
    found = pairs(low, plain, Lowering(trace, {LOWERING.key}), joined)
    assert found["p0"] is found["p1"]
    times = {name: Times.apart(p) for name, p in found.items()}
    assert times["p0"] == Times(18.0, 17.0, "apart")
    assert slower(times) == {"p0", "p1"}
    in_turns = dict.fromkeys(times, Times(8.5, 17.0, "measured"))
    assert corrected(low, found, in_turns) == pytest.approx(8.5)
