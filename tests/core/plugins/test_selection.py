"""Which plugins a session uses: namespaces, allowlists, API versions, packs given in process."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from plugin_things import Thing

from tactix.base.errors import ConfigError, PluginError
from tactix.base.logger import Severity
from tactix.contracts.rule import P, Rule, var
from tactix.plugins import loader
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.identity import Provider
from tactix.plugins.pack import BasePack
from tactix.plugins.registry import MissingKey
from tactix.plugins.session import Session
from tactix_tools.pack_info import packs

SWISH = """
@hookimpl
def tactix_layers(): return [O(key="acme.Swish@1")]
"""
BOOM = "raise ImportError('libfoo.so.1: cannot open')"


def obj(key: str, **more: Any) -> Thing:
    return Thing(key=key, **more)


ONE = """
from tactix.contracts.rule import P, Rule, var
@hookimpl
def tactix_layers(): return [O(key="acme.Swish@1"), O(key="acme.One@1")]
"""
TWO = """
from tactix.contracts.rule import P, Rule, var
@hookimpl
def tactix_layers(): return [O(key="acme.Swish@1"), O(key="acme.Two@1")]
@hookimpl
def tactix_rules(): return [Rule(f"acme.{n}", getattr(P.acme, n)(var("x")), lambda x: x) for n in ("One", "Two")]
@hookimpl
def tactix_tactics(): return [O(key=f"acme.{n}@1", implements=(f"acme.{n}@1",)) for n in ("One", "Two")]
"""


def test_two_distributions_of_one_namespace_lose_the_keys_of_both(
    site: Any, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    site.pack("acme-one", "1.0", build=ONE)
    site.pack("acme-two", "9.0", build=TWO)
    cure = "Disable or uninstall one: TACTIX_DISABLE=acme-one or TACTIX_DISABLE=acme-two"
    session = Session(logger=log)
    assert {"acme.One@1", "acme.Two@1", "tactix.Fused@1"} < set(session.layers)
    assert "acme.Swish@1" not in session.layers
    shared = "namespace 'acme' is shared by acme-one 1.0 and acme-two 9.0: keys that both provide are left out"
    lost = (
        "layer 'acme.Swish@1' is left out: it is provided by plugin 'acme' (acme-one 1.0) and by plugin 'acme' "
        "(acme-two 9.0)"
    )
    assert log.of(Severity.WARNING) == [f"{shared}. {cure}", f"{lost}. {cure}"]
    assert {(p.dist, p.status, p.reason, p.cure) for p in packs(session)} == {
        (dist, "clashing", lost, cure) for dist in ("acme-one", "acme-two")
    }
    with pytest.raises(MissingKey, match="it is provided by plugin 'acme'"):
        session.layers["acme.Swish@1"]
    with pytest.raises(PluginError, match="is left out"):
        Session(strict=True).layers  # noqa: B018
    for name in ("Acme_Two", "acme-two"):
        monkeypatch.setenv("TACTIX_DISABLE", name)
        assert Session().layers.provider("acme.Swish@1") == Provider("acme-one", "1.0")


def test_a_shared_namespace_gives_no_right_to_touch_the_others_layers(site: Any) -> None:
    site.pack("acme-one", "1.0", build=ONE)
    site.pack("acme-two", "9.0", build=TWO)
    session = Session()
    assert [r.key for r in session.active_rules()] == ["acme.Two"]
    assert [t.key for t in session.active_tactics()] == ["acme.Two@1"]
    session.enable("acme-two")
    assert [t.key for t in session.active_tactics()] == ["acme.One@1", "acme.Two@1"]


@pytest.mark.parametrize("name", ["acme-trt", "Acme_TRT", "acme"])
@pytest.mark.parametrize("how", ["argument", "later", "environment", "only"])
def test_a_pack_is_enabled_by_its_namespace_or_its_distribution(
    site: Any, monkeypatch: pytest.MonkeyPatch, log: Any, name: str, how: str
) -> None:
    site.pack(
        "acme-trt",
        build='@hookimpl\ndef tactix_tactics(): return [O(key="acme.all@1", implements=("*",))]',
    )
    site.pack("zeta", build="")
    if how == "environment":
        monkeypatch.setenv("TACTIX_PLUGINS", name)
    named = {"argument": {"enable": [name]}, "only": {"only": [name]}}.get(how, {})
    session = Session(logger=log, **named)  # type: ignore[arg-type]
    if how == "later":
        session.enable(name)
    assert [t.key for t in session.active_tactics()] == ([] if how == "only" else ["acme.all@1"])
    assert log.of(Severity.WARNING) == []
    left_out = how in ("environment", "only")
    assert [p.status for p in packs(session)][1] == ("disabled" if left_out else "active")


def test_one_namespace_may_be_split_over_the_doors(site: Any) -> None:
    site.pack("acme-build", build=SWISH)
    site.pack("acme-run", runtime='@hookimpl\ndef tactix_devices(): return [O(key="acme.npu@1")]')
    session = Session()
    assert session.layers.provider("acme.Swish@1").dist == "acme-build"
    assert session.devices.provider("acme.npu@1").dist == "acme-run"
    assert [(i.dist, i.groups) for i in packs(session)] == [
        ("acme-build", ("build",)),
        ("acme-run", ("runtime",)),
    ]


@pytest.mark.parametrize("name", ["acme", "acme-trt"])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_disabled(site: Any, monkeypatch: pytest.MonkeyPatch, name: str, by: str) -> None:
    site.pack("acme-trt", build=BOOM)
    site.pack("zeta", build="")
    if by == "environment":
        monkeypatch.setenv("TACTIX_DISABLE", f"other, {name}")
    session = Session(disable=[name] if by == "argument" else (), strict=True)
    with pytest.raises(MissingKey) as e:
        session.layers["acme.Swish@1"]
    assert str(e.value) == (
        "layer 'acme.Swish@1' is unavailable: its plugin 'acme' (acme-trt 1.0) is not used: it is disabled. "
        f"Take '{name}' out of TACTIX_DISABLE or the session's disable="
    )
    assert [(i.namespace, i.status) for i in packs(session)] == [
        ("acme", "disabled"),
        ("zeta", "active"),
    ]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_allowlist(site: Any, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    site.pack("acme-trt", build=SWISH)
    site.pack("zeta", build=BOOM)
    site.pack("tactix", build='@hookimpl\ndef tactix_layers(): return [O(key="tactix.Relu@1")]')
    if by == "environment":
        monkeypatch.setenv("TACTIX_PLUGINS", "acme")
    session = Session(only=["acme"] if by == "argument" else None, strict=True)
    assert {"acme.Swish@1", "tactix.Relu@1"} < set(session.layers)
    statuses = {i.namespace: (i.status, i.reason, i.cure) for i in packs(session)}
    assert statuses["zeta"] == (
        "disabled",
        "it is not among the plugins asked for",
        "Add 'zeta' to TACTIX_PLUGINS or the session's only=",
    )
    assert statuses["acme"][0] == statuses["tactix"][0] == "active"


def test_both_allowlists_must_agree(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pack("acme-trt", build=SWISH)
    site.pack("zeta", build="")
    monkeypatch.setenv("TACTIX_PLUGINS", "zeta")
    assert "acme.Swish@1" not in Session(only=["acme"]).layers


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_no_discovery(site: Any, given: Any, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    site.pack("acme-trt", build=BOOM)
    site.pack("tactix", build=BOOM)
    monkeypatch.setattr(loader, "scan", lambda: pytest.fail("scanned"))
    if by == "environment":
        monkeypatch.setenv("TACTIX_NO_DISCOVERY", "1")
    session = Session(
        plugins=[given("mine", layers=["mine.Swish@1"])], discover=by == "environment", strict=True
    )
    assert "mine.Swish@1" in session.layers
    assert [i.namespace for i in packs(session)] == ["mine"]
    with pytest.raises(MissingKey) as e:
        session.layers["tactix.Relu@1"]
    assert str(e.value) == (
        "layer 'tactix.Relu@1' is unavailable: the built-in plugins were not found. "
        "Install tactix, or do not turn discovery off"
    )


@pytest.mark.parametrize("value", ["0", "", "false", "no"])
def test_switches_that_are_off(site: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    site.pack("acme-trt", build=SWISH)
    site.pack("zeta", build=BOOM)
    for name in ("NO_DISCOVERY", "STRICT_PLUGINS", "TRACE_PLUGINS"):
        monkeypatch.setenv(f"TACTIX_{name}", value)
    assert "acme.Swish@1" in Session().layers


def test_another_api_major_is_told_without_import(site: Any) -> None:
    site.pack("acme-trt", "3.0", build=BOOM, major=2)
    site.pack("old-pack", "0.1", build=BOOM, major=0)
    session = Session(strict=True)
    with pytest.raises(MissingKey) as e:
        session.layers["acme.Swish@1"]
    assert str(e.value) == (
        "layer 'acme.Swish@1' is unavailable: its plugin 'acme' (acme-trt 3.0) is not used: "
        "it speaks plugin API 2, this tactix 1. pip install --upgrade tactix"
    )
    assert [(i.namespace, i.status, i.cure) for i in packs(session)] == [
        ("acme", "incompatible", "pip install --upgrade tactix"),
        ("old", "incompatible", "pip install --upgrade old-pack"),
    ]
    assert not {"acme_trt_build", "old_pack_build"} & set(sys.modules)


def test_a_pack_may_serve_two_majors(site: Any) -> None:
    site.module("acme_v1", SWISH)
    site.dist(
        "acme",
        "1.0",
        {"tactix.build.v1": {"acme": "acme_v1"}, "tactix.build.v2": {"acme": "acme_v2"}},
    )
    session = Session(strict=True)
    assert "acme.Swish@1" in session.layers
    assert [i.status for i in packs(session)] == ["active"]


def test_a_minor_that_is_too_new(site: Any) -> None:
    site.pack("acme-trt", build=f"TACTIX_API = (1, 99)\n{SWISH}")
    session = Session()
    with pytest.raises(
        MissingKey,
        match=r"is incompatible: it needs plugin API 1\.99, this tactix has 1\.2\. pip install",
    ):
        session.layers["acme.Swish@1"]
    assert [i.status for i in packs(session)] == ["incompatible"]


@pytest.mark.parametrize("namespace", ["tactix", "onnx", "trt", "Acme", "a-b"])
def test_namespaces_that_nobody_may_take(site: Any, namespace: str) -> None:
    site.pack("acme-trt", build=BOOM, namespace=namespace)
    session = Session()
    (t,) = session.failures()
    assert "was refused: namespace" in t.reason or "is no namespace" in t.reason
    assert "acme_trt_build" not in sys.modules
    with pytest.raises(PluginError, match=r"\(acme-trt 1\.0\) was refused"):
        Session(strict=True).layers  # noqa: B018


# -- given in process ----------------------------------------------------------------------------


def test_given_objects_and_modules(site: Any, given: Any) -> None:
    site.module(
        "mine_pack",
        "TACTIX_NAMESPACE = 'mine'\n@hookimpl\ndef tactix_layers(): return [O(key='mine.A@1')]",
    )
    import mine_pack  # type: ignore[import-not-found]

    class Other:
        TACTIX_NAMESPACE = "other"

        @hookimpl
        def tactix_layers(self) -> list[Any]:
            return [obj("other.B@1")]

        @hookimpl
        def tactix_rules(self) -> list[Any]:
            return [Rule("other.r", P.other.B(var("x")), lambda x: x)]

    for group in ("build", "runtime"):
        session = Session(
            group, plugins=[mine_pack, Other(), given("pair", layers=["pair.C@1"])], strict=True
        )
        assert {"mine.A@1", "other.B@1", "pair.C@1"} < set(session.layers)
        assert str(session.layers.provider("pair.C@1")) == "given in process"


def test_given_without_a_namespace(site: Any, given: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"has no namespace. Give \(namespace, plugin\), or set its TACTIX_NAMESPACE",
    ):
        Session(plugins=[object()])
    with pytest.raises(ConfigError, match="is reserved"):
        Session(plugins=[given("onnx")])
    with pytest.raises(ConfigError, match="is no namespace"):
        Session(plugins=[given("Mine")])


def test_a_given_plugin_takes_the_place_of_the_installed_one(
    site: Any, given: Any, log: Any
) -> None:
    site.pack("acme-trt", "0.4.2", build=BOOM, runtime=BOOM)
    session = Session(plugins=[given("acme", layers=["acme.Mine@1"])], logger=log, strict=True)
    assert "acme.Mine@1" in session.layers
    assert set(log.of(Severity.INFO)) == {
        "plugin 'acme' (acme-trt 0.4.2) is not used: one given in process takes its place"
    }
    assert [(i.dist, i.status) for i in packs(session)] == [
        ("", "active"),
        ("acme-trt", "disabled"),
    ]


def test_several_given_in_one_namespace(site: Any, given: Any) -> None:
    parts = [given("tactix", layers=["tactix.Relu@1"]), given("tactix", devices=["tactix.cpu@1"])]
    session = Session(plugins=parts, strict=True)
    assert "tactix.Relu@1" in session.layers
    assert session.devices.provider("tactix.cpu@1") == session.layers.provider("tactix.Fused@1")


def test_a_pack_of_another_that_calls_itself_tactix_is_nobody_s_fault(site: Any) -> None:
    site.pack("acme-one", build=ONE)
    site.pack("stranger", build=TWO, namespace="tactix")
    session = Session(only=["tactix", "acme"], strict=True)
    assert "acme.One@1" in session.layers
    with pytest.raises(PluginError, match="reserved"):
        Session(only=["tactix", "stranger"], strict=True).layers  # noqa: B018


def test_a_pack_given_as_tactix_replaces_no_built_in(site: Any) -> None:
    site.pack("tactix", build='@hookimpl\ndef tactix_layers(): return [O(key="tactix.Relu@1")]')
    session = Session(plugins=[BasePack("tactix")])
    with pytest.raises(ConfigError, match=r"in process as 'tactix'.* all 1 built-in packs"):
        session.layers  # noqa: B018


def test_a_disabled_name_that_nothing_has_is_warned_of_once(
    site: Any, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    site.pack("acme-trt", build=SWISH)
    monkeypatch.setenv("TACTIX_DISABLE", "acne")
    session = Session(logger=log)
    assert "acme.Swish@1" in session.layers
    assert session.tools is not None
    assert log.of(Severity.WARNING) == [
        "TACTIX_DISABLE or disable=: there is no plugin 'acne'. Did you mean 'acme'?"
    ]


@pytest.mark.parametrize("name", ["acme", "acme.extras", "Acme_TRT"])
def test_a_disabled_name_of_the_other_group_is_known(site: Any, log: Any, name: str) -> None:
    site.module("acme_m", "")
    site.dist("acme-trt", "1.0", {"tactix.build.v1": {"acme.extras": "acme_m"}})
    assert len(Session("runtime", disable=[name], logger=log).devices) == 0
    assert log.of(Severity.WARNING) == []


def test_a_mark_stands_once_before_a_hint(site: Any, log: Any) -> None:
    site.pack("acme", build="@hookimpl\ndef tactix_layer(): return []")
    Session(logger=log).found()
    (line,) = log.of(Severity.WARNING)
    assert "Did you mean 'tactix_layers'? Fix that" in line


def test_a_reason_is_said_once_of_all_parts(site: Any) -> None:
    relu = '@hookimpl\ndef tactix_layers(): return [O(key="tactix.Relu@1")]'
    site.pack("tactix", build=relu, runtime=relu)
    with pytest.raises(MissingKey) as e:
        Session(disable=["tactix"]).layers["tactix.Relu@1"]
    assert str(e.value).count("is disabled") == 1


def test_given_and_disabled(site: Any, given: Any) -> None:
    session = Session(plugins=[given("acme", layers=["acme.A@1"])], disable=["acme"], only=["acme"])
    assert "acme.A@1" not in session.layers
    assert [i.status for i in packs(session)] == ["disabled"]
