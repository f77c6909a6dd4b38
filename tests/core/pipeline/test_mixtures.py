"""Mixtures of precisions: what cannot be lowered stays as it is alone, and what fails costs only
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from products import HALF, WIDE

from tactix.base.errors import InternalError, NoTacticError, TimingCacheError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.rule import Op, Rule, var
from tactix.contracts.tactic import Tactic, Variant
from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.mixtures import Attempt, Mixtures, NotLowered
from tactix.select.choose import Choice
from tactix.select.enumerate import Candidate
from tactix.select.precision import NOT_FASTER, Lost, Lowering, Precisions, Stays

RULE = Rule(
    "t.half", Op("t.Wide", (var("x"),)), lambda x: Op("t.Half", (x,)), numerics="fp16", phase="fuse"
)
KEYS = frozenset({RULE.key})


@dataclass
class Fake:
    """A builder of three products: seconds of each lowered one by name (wide: 10), what is lost or
    fails.

    ``around``: those that are fused with one that is lost.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    around: frozenset[str] = frozenset()
    failures: dict[frozenset[str], Exception] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def attempt(self, stays: Stays) -> Attempt:
        net = NetworkDefinition({x.key: x for x in (WIDE, HALF)})
        v = net.add_input("x", "f32", (4, 4))
        for i in range(3):
            (v,) = net.add_layer("t.Wide", [v], f"p{i}")
        net.mark_output(v)
        made, trace = fuse(net, [Precisions(frozenset({"fp16"}), {}).gated(RULE, stays)])
        lowered = Lowering(trace, KEYS).lowered
        if lowered in self.failures:
            raise self.failures[lowered]
        if lost := [
            Lost(frozenset({name}), self.around & lowered, "no kernel")
            for name in lowered & self.lost
        ]:
            raise NotLowered(lost, KEYS)
        times = {n: self.seconds.get(n.name, 5.0) if n.layer is HALF else 10.0 for n in made.nodes}
        chosen = {
            n: Candidate(Tactic(), Variant(), KernelArtifact("x"), None, s)
            for n, s in times.items()
        }
        stage: Any = None
        return Attempt(stage, made, made, trace, {}, Choice(chosen, sum(times.values())))

    def tried(self, **ends: Callable[[], bool]) -> list[Lowering]:
        mixtures = Mixtures(self.attempt, KEYS, self.told.append, **ends)
        return [Lowering(a.trace, KEYS) for a in mixtures.tried()]


ALL, NONE = frozenset({"p0", "p1", "p2"}), frozenset[str]()


def test_what_has_no_kernel_stays_alone() -> None:
    tried = Fake(lost=frozenset({"p1"})).tried()
    assert [x.lowered for x in tried] == [ALL - {"p1"}, NONE]
    assert tried[0].wide == {"p1": "no kernel"}
    assert tried[1].wide == {"p0": NOT_FASTER, "p1": "no kernel", "p2": NOT_FASTER}


def test_what_is_fused_around_it_stays_only_where_that_helps() -> None:
    tried = Fake(lost=frozenset({"p1"}), around=frozenset({"p2"})).tried()
    assert [x.lowered for x in tried] == [ALL - {"p1"}, NONE]


def test_what_gains_nothing_stays_alone() -> None:
    tried = Fake(seconds={"p2": 11.0}).tried()
    assert [x.lowered for x in tried] == [ALL, ALL - {"p2"}, NONE]
    assert tried[1].wide == {"p2": NOT_FASTER}


def test_a_network_whose_nodes_all_stay_is_tried_once() -> None:
    tried = Fake(lost=ALL).tried()
    assert [x.lowered for x in tried] == [NONE]
    assert tried[0].wide == dict.fromkeys(sorted(ALL), "no kernel")


@pytest.mark.parametrize("error", [NoTacticError("none"), InternalError("odd")])
def test_a_mixture_that_fails_costs_only_itself(error: Exception) -> None:
    mixed = Fake({"p2": 11.0}, failures={ALL - {"p2"}: error})
    assert [x.lowered for x in mixed.tried()] == [ALL, NONE]
    told = f"a mixture of precisions is left out: {error}. The plan is the best of the others"
    assert mixed.told == [told]
    wide = Fake({"p2": 11.0}, failures={NONE: error})
    assert [x.lowered for x in wide.tried()] == [ALL]


def test_a_build_that_is_stopped_keeps_what_there_is() -> None:
    stopped = Fake({"p2": 11.0}).tried(stopped=lambda: True)
    assert [x.lowered for x in stopped] == [ALL]


def test_no_mixtures_are_tried_once_nothing_more_is_measured() -> None:
    over = Fake({"p2": 11.0}).tried(is_over=lambda: True)
    assert [x.lowered for x in over] == [ALL, NONE]


def test_a_frozen_build_misses_no_attempt() -> None:
    with pytest.raises(TimingCacheError):
        Fake(failures={NONE: TimingCacheError("missing")}).tried()


def test_if_what_is_lowered_fails_nothing_is() -> None:
    tried = Fake(failures={ALL: NoTacticError("none of these")}).tried()
    assert [x.lowered for x in tried] == [NONE]
    assert set(tried[0].wide.values()) == {"what is lowered cannot be built: none of these"}
    with pytest.raises(NoTacticError, match="neither"):
        Fake(failures={ALL: NoTacticError("none of these"), NONE: NoTacticError("neither")}).tried()


def test_mixtures_beside_mixtures_are_tried_beside_the_fastest_of_these() -> None:
    inner, outer = Fake(seconds={"p0": 11.0}), Fake(seconds={"p1": 11.0})
    by_rules = Mixtures(inner.attempt, KEYS, inner.told.append)
    tried = Mixtures(outer.attempt, KEYS, outer.told.append, wider=by_rules.settled).tried()
    assert [Lowering(a.trace, KEYS).lowered for a in tried] == [ALL, {"p0"}, ALL - {"p0"}]
    assert by_rules.kept == {"p0": NOT_FASTER}


def test_where_nothing_is_lowered_the_wider_mixtures_count() -> None:
    inner = Fake()
    by_rules = Mixtures(inner.attempt, KEYS, inner.told.append)
    nothing = Mixtures(
        lambda stays: Fake(lost=ALL).attempt(lambda name: "it cannot be"),
        KEYS,
        inner.told.append,
        wider=by_rules.settled,
    )
    assert [Lowering(a.trace, KEYS).lowered for a in nothing.tried()] == [ALL]


def test_what_other_rules_lowered_and_has_no_kernel_is_theirs_to_keep() -> None:
    other = Mixtures(Fake(lost=ALL).attempt, frozenset({"t.other"}), print)
    with pytest.raises(NotLowered):
        other.tried()
