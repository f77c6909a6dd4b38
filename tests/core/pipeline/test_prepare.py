"""What a build is made by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tactix
from tactix.base.errors import ConfigError
from tactix.base.logger import Logger
from tactix.contracts.device import Device
from tactix.pipeline.prepare import Prepared, prepare
from tactix.pipeline.state import BuildState

ANSWERS = ("available", "properties")


@pytest.fixture
def builder() -> tactix.Builder:
    return tactix.Builder()


def prepared(builder: tactix.Builder, **fields: Any) -> Prepared:
    network = builder.create_network("small")
    (y,) = network.add_layer("tactix.Relu", [network.add_input("x", "f32", (3,))])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, device="cpu", **fields)
    return prepare(builder.session, network, config, Logger(), tactix.Runtime().load)


def cpu(builder: tactix.Builder) -> Device:
    return builder.session.devices["tactix.cpu@1"]


def counting(asked: Counter[str], name: str, answer: Callable[[], Any]) -> Callable[[], Any]:
    def counted() -> Any:
        asked[name] += 1
        return answer()

    return counted


@pytest.mark.parametrize("target", ["", "x86-64-v2"])
def test_a_device_is_asked_once_whether_it_is_here_and_what_it_is(
    target: str, builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, device = Counter[str](), cpu(builder)
    for name in ANSWERS:
        monkeypatch.setattr(device, name, counting(asked, name, getattr(device, name)))
    state: BuildState = prepared(builder, target=target).state
    assert asked == dict.fromkeys(ANSWERS, 1)
    want = device.target(target) if target else device.properties()
    assert state.context.device == want
    assert state.here == (want.features <= device.properties().features)


def test_of_a_device_that_is_not_here_nothing_but_the_target_is_asked(
    builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, device = Counter[str](), cpu(builder)
    monkeypatch.setattr(device, "available", lambda: "it is elsewhere")
    monkeypatch.setattr(device, "properties", counting(asked, "properties", device.properties))
    state = prepared(builder, target="x86-64-v3").state
    assert not state.here
    assert not asked
    with pytest.raises(ConfigError, match="is not here: it is elsewhere"):
        prepared(builder)


@pytest.mark.parametrize("level", [0, 1])
def test_compilers_begin_once_the_configuration_is_known(
    level: int, builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = builder.session.compilers["tactix.cc@1"]
    begun: list[Any] = []
    monkeypatch.setattr(own, "available", lambda: "")
    monkeypatch.setattr(own, "quick", lambda: own)
    monkeypatch.setattr(own, "begin", begun.append)
    fields: dict[str, Any] = {"builder_optimization_level": level, "target": "x86-64-v2"}
    builder.begin(tactix.BuilderConfig(device="cpu", **fields))
    prepared(builder, **fields)
    assert begun == [cpu(builder).target("x86-64-v2")] * 2
    builder.begin(tactix.BuilderConfig(device="elsewhere"))  # which prepare tells
    assert len(begun) == 2


@pytest.mark.parametrize("level", [0, 1])
def test_compilers_are_quick_where_nothing_is_measured(
    level: int, builder: tactix.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = builder.session.compilers["tactix.cc@1"]
    quick = type(own)()
    for compiler in (own, quick):
        monkeypatch.setattr(compiler, "available", lambda: "")
    monkeypatch.setattr(own, "quick", lambda: quick)
    toolchain = prepared(builder, builder_optimization_level=level).state.toolchain
    assert toolchain.by_language["c"] is (own if level else quick)
