"""Stages of a build: who is asked for what, in what order, and what is said where nobody serves a
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import tactix
from tactix.base.errors import ConfigError, PluginError
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.build_stage import BuildPart, BuildStage, Content, Lowered
from tactix.contracts.rule import P, Rule, var
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part, Parts, Staged, joined
from tactix.plan.schema import Plan
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.pack import BasePack
from tactix.plugins.session import Session


@dataclass
class Told(Part):
    """Notes what it is asked, in the order of the questions; may ask for more flags."""

    name: str
    log: list[str]
    more: frozenset[BuilderFlag] = frozenset()

    def _note(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")

    def settings(self, config: BuilderConfig, network: NetworkDefinition) -> BuilderConfig:
        self._note("settings")
        return replace(config, flags=config.flags | self.more, frozen=False)

    def network(self, network: NetworkDefinition) -> NetworkDefinition:
        self._note("network")
        return network

    def rules(self, rules: Sequence[Rule]) -> list[Rule]:
        self._note("rules")
        return [*rules, Rule(f"test.{self.name}", P.tactix.Relu(var("x")), replace=lambda x: x)]

    @contextmanager
    def racing(self) -> Iterator[None]:
        self._note("enters")
        yield
        self._note("leaves")

    def constants(self, stored: Content) -> Content:
        self._note("constants")
        return stored

    def plan(self, plan: Plan) -> Plan:
        self._note("plan")
        return replace(plan, meta={**plan.meta, "by": self.name})


@dataclass
class Telling(Staged):
    """``key``, ``serves``, ``depth``: of the contract."""

    key: str
    serves: frozenset[str]
    depth: int
    log: list[str] = field(default_factory=list)
    more: frozenset[BuilderFlag] = frozenset()

    def join(self, session: Session, config: BuilderConfig) -> Part:
        flags = " ".join(sorted(f.value for f in config.flags))
        self.log.append(f"{self.key} joins with {flags or 'no flag'}")
        return Told(self.key.partition(".")[2], self.log, self.more)


def session_of(
    *stages: BuildStage[Any, Any, Any, Any], namespace: str = "tactix", **options: Any
) -> Session:
    class Pack:
        @hookimpl
        def tactix_build_stages(self) -> list[BuildStage[Any, Any, Any, Any]]:
            return list(stages)

    return Session(plugins=[(namespace, Pack())], discover=False, **options)


def staged(session: Session, **options: Any) -> Any:
    return joined(session, NetworkDefinition({}), BuilderConfig(**options))[1]


OUTER = frozenset({"frozen"})
INNER = frozenset({"refit"})


def test_what_a_configuration_asks_for() -> None:
    assert (
        BuilderConfig(
            {BuilderFlag.FP16, BuilderFlag.NO_FALLBACK, BuilderFlag.DEBUG}, frozen=True
        ).requests
        == {}
    )
    asked = BuilderConfig(
        {BuilderFlag.REFIT, BuilderFlag.VERSION_COMPATIBLE}, plugins_to_serialize=["x"], frozen="l"
    )
    assert asked.requests == {
        "refit": "BuilderFlag.REFIT",
        "version_compatible": "BuilderFlag.VERSION_COMPATIBLE",
        "plugins_to_serialize": "the option plugins_to_serialize",
        "frozen": "the option frozen",
    }


def test_no_stage_is_asked_for_where_nothing_is_requested() -> None:
    def stages() -> list[Any]:
        raise AssertionError("what packs have for builds that ask for more was imported")

    pack = BasePack("tactix")
    pack.build_stage(stages)
    session = Session(plugins=[("tactix", pack)], discover=False, strict=True)
    config = BuilderConfig()
    assert joined(session, NetworkDefinition({}), config) == (config, Parts())


def test_stages_lie_in_each_other() -> None:
    log: list[str] = []
    outer, inner = Telling("tactix.outer", OUTER, 1, log), Telling("tactix.inner", INNER, 2, log)
    config = BuilderConfig({BuilderFlag.REFIT}, frozen="file")
    config, parts = joined(session_of(inner, outer), NetworkDefinition({}), config)
    assert log == [
        "tactix.outer joins with refit",
        "outer settings",
        "tactix.inner joins with refit",
        "inner settings",
    ]
    assert config.frozen is False, "the configuration is the one that settings gave"
    log.clear()
    parts.network(NetworkDefinition({}))
    assert [r.key for r in parts.rules([])] == ["test.outer", "test.inner"]
    with parts.racing():
        log.append("race")
    parts.constants(lambda make: ("", make(), None))  # type: ignore[arg-type, return-value]
    assert parts.plan(Plan("", (), (), (), (), ())).meta == {"by": "outer"}
    assert log == [
        "outer network",
        "inner network",
        "outer rules",
        "inner rules",
        "outer enters",
        "inner enters",
        "race",
        "inner leaves",
        "outer leaves",
        "inner constants",
        "outer constants",
        "inner plan",
        "outer plan",
    ]


def test_settings_bring_further_stages_in() -> None:
    log: list[str] = []
    outer = Telling("tactix.outer", OUTER, 1, log, frozenset({BuilderFlag.REFIT}))
    parts = staged(session_of(Telling("tactix.inner", INNER, 2, log), outer), frozen="file")
    assert log[2:] == ["tactix.inner joins with refit", "inner settings"]
    assert [p.name for p in parts.parts] == ["outer", "inner"]


def test_a_stage_that_nothing_asks_for_stays_out() -> None:
    log: list[str] = []
    assert staged(session_of(Telling("tactix.inner", INNER, 2, log))).parts == ()
    assert log == []


def test_a_stage_that_serves_two_requests_joins_once() -> None:
    log: list[str] = []
    both = Telling("tactix.both", frozenset({"refit", "strip_plan"}), 2, log)
    assert (
        len(staged(session_of(both), flags={BuilderFlag.REFIT, BuilderFlag.STRIP_PLAN}).parts) == 1
    )


def test_settings_that_make_no_sense_are_refused() -> None:
    outer = Telling("tactix.outer", OUTER, 1, [], frozenset({BuilderFlag.STRIP_PLAN}))
    with pytest.raises(ConfigError, match="STRIP_PLAN without REFIT"):
        staged(
            session_of(outer, Telling("tactix.inner", frozenset({"strip_plan"}), 2)), frozen="file"
        )


@pytest.mark.parametrize(
    ("options", "name"),
    [({"flags": {flag}}, f"BuilderFlag.{flag.name}")
     for flag in (BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.WEIGHT_STREAMING,
                  BuilderFlag.VERSION_COMPATIBLE)]
    + [({"plugins_to_serialize": ["auto"]}, "the option plugins_to_serialize"),
       ({"frozen": "it"}, "the option frozen")],
)  # fmt: skip
def test_a_request_that_nobody_serves(options: dict[str, Any], name: str) -> None:
    config = BuilderConfig(timing_cache=False, **options)
    builder = tactix.Builder(session=session_of())
    with pytest.raises(ConfigError) as e:
        builder.build_plan(builder.create_network(), config)
    text = f"{name} cannot be served: no plugin in use has a build stage for it. Install a plugin that has one"
    assert str(e.value) == text


def test_a_strangers_stage_waits_until_it_is_enabled() -> None:
    stage = Telling("acme.refit", INNER, 2)
    with pytest.raises(ConfigError, match=r"BuilderFlag\.REFIT cannot be served"):
        staged(session_of(stage, namespace="acme"), flags={BuilderFlag.REFIT})
    assert (
        len(
            staged(
                session_of(stage, namespace="acme", enable=["acme"]), flags={BuilderFlag.REFIT}
            ).parts
        )
        == 1
    )


def test_what_is_no_stage_is_refused() -> None:
    class Loose:
        key = "tactix.loose"

    with pytest.raises(PluginError, match=r"it is no tactix_sdk\.BuildStage"):
        _ = session_of(Loose(), strict=True).build_stages  # type: ignore[arg-type]


def test_a_part_changes_nothing_by_itself() -> None:
    part: BuildPart[Any, Any, Any] = BuildPart()
    one, rules = object(), [Rule("test.one", P.tactix.Relu(var("x")), replace=lambda x: x)]
    assert part.settings(one, one) is part.network(one) is part.plan(one) is one
    assert (part.rules(rules), part.tactics([])) == (rules, [])
    assert part.constants(str) is str  # type: ignore[arg-type, comparison-overlap]
    with part.racing():
        pass


@dataclass
class Lowering(Part):
    """Lowers the layer of its name, unless that stays."""

    lowering: str

    def lower(
        self, network: NetworkDefinition, stays: Callable[[str], str]
    ) -> Lowered[NetworkDefinition]:
        net = network.copy()
        net.name += f" {self.lowering}"
        if why := stays(self.lowering):
            return Lowered(net, stays={self.lowering: why})
        return Lowered(net, {self.lowering: ("it",)})


def test_parts_lower_what_those_before_made_but_no_bodies() -> None:
    parts = Parts((Lowering("a"), Part(), Lowering("b")))
    assert parts.lowering == {"a", "b"}
    made = parts.lower(NetworkDefinition({}, "net"), {"a": "slow", "b": ""}.__getitem__)
    assert [m.network.name for m in made.values()] == ["net a", "net a b"]
    assert (made["a"].stays, made["a"].made) == ({"a": "slow"}, {})
    assert (made["b"].stays, made["b"].made) == ({}, {"b": ("it",)})
    assert not parts.of_bodies.lowering
    assert parts.of_bodies.lower(NetworkDefinition({}), str) == {}
