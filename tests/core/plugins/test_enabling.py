"""What touches layers, operators, formats, languages and trust of others is disabled until its pack
is enabled.
"""

from __future__ import annotations

from typing import Any

import pytest
from plugin_things import Thing

from tactix.base.errors import ConfigError
from tactix.base.logger import Severity
from tactix.contracts.importer import Converter
from tactix.contracts.rule import P, Rule, any_of, pointwise, var
from tactix.contracts.trust import Seal
from tactix.plugins.session import Session
from tactix_tools.pack_info import packs


def obj(key: str, **more: Any) -> Thing:
    return Thing(key=key, **more)


x = var("x")


def rule(key: str, pattern: Any, benefit: int = 1) -> Rule:
    return Rule(key, pattern, lambda x: x, benefit=benefit)


def tactic(key: str, *kinds: str) -> Thing:
    return obj(key, implements=kinds)


MARKET: dict[str, list[Any]] = {
        "rules": [
            rule("acme.own", P.acme.Swish(P.acme.Mish(x))),
            rule("acme.root", P.tactix.Relu(P.acme.Swish(x))),
            rule("acme.inner", P.acme.Swish(P.tactix.Relu(x)), benefit=5),
            rule("acme.either", any_of(P.acme.Swish(x), P.zeta.Swish(x))),
            rule("acme.any", P.acme.Swish(pointwise(x))),
        ],
        "tactics": [
            tactic("acme.own@1", "acme.Swish@1"), tactic("acme.gemm@1", "tactix.MatMul@1"),
            tactic("acme.all@1", "*"), tactic("acme.pointwise@1", "pointwise"),
            tactic("acme.mixed@1", "acme.Swish@1", "tactix.Fused@1"),
        ],
    }  # fmt: skip


def keys(objects: list[Any]) -> list[str]:
    return [o.key for o in objects]


RULES = ["acme.inner", "acme.any", "acme.either", "acme.own", "acme.root"]
TACTICS = ["acme.all@1", "acme.gemm@1", "acme.mixed@1", "acme.own@1", "acme.pointwise@1"]


def test_what_touches_layers_of_others_needs_enabling(site: Any, given: Any, log: Any) -> None:
    session = Session(plugins=[given("acme", **MARKET)], logger=log)
    assert keys(session.active_rules()) == ["acme.own"]
    assert keys(session.active_tactics()) == ["acme.own@1"]
    assert sorted(session.rules) == sorted(RULES), "the registry holds them all"
    session.active_rules()
    cure = "enable with config.enable('acme') or --enable acme"
    line = (
        f"acme: 4 rules, 4 tactics disabled until enabled (they touch what others provide); {cure}"
    )
    assert log.of(Severity.INFO) == [line], "one line, once"
    (info,) = packs(session)
    assert (info.status, info.reason) == (
        "not enabled",
        "4 rules, 4 tactics disabled: they touch what others provide",
    )
    assert info.cure == cure
    assert info.counts == {"rules": 5, "tactics": 5}


@pytest.mark.parametrize("how", ["argument", "later", "after use", "environment"])
def test_an_enabled_pack_may_touch_them(
    site: Any, given: Any, monkeypatch: pytest.MonkeyPatch, log: Any, how: str
) -> None:
    if how == "environment":
        monkeypatch.setenv("TACTIX_PLUGINS", "acme")
    session = Session(
        plugins=[given("acme", **MARKET)], enable=["acme"] if how == "argument" else (), logger=log
    )
    if how == "after use":
        assert keys(session.active_rules()) == ["acme.own"]
    digest = session.digest
    if how in ("later", "after use"):
        session.enable("acme")
    assert keys(session.active_rules()) == RULES, "highest benefit first, then by key"
    assert keys(session.active_tactics()) == TACTICS
    assert len(log.of(Severity.INFO)) == (how == "after use")
    assert session.digest == digest
    assert [i.status for i in packs(session)] == ["active"]


def test_tactix_is_always_enabled(site: Any, given: Any, log: Any) -> None:
    own = given(
        "tactix", rules=[rule("tactix.any", pointwise(x))], tactics=[tactic("tactix.all@1", "*")]
    )
    session = Session(plugins=[own], logger=log)
    assert keys(session.active_rules()) == ["tactix.any"]
    assert keys(session.active_tactics()) == ["tactix.all@1"]
    assert log.lines == []


def test_the_line_counts_in_words(site: Any, given: Any, log: Any) -> None:
    one = given("acme", rules=[rule("acme.a", P.tactix.Relu(x))])
    other = given("zeta", tactics=[tactic("zeta.t@1", "*")])
    Session(plugins=[one, other], logger=log).active_tactics()
    assert [m.split(" disabled")[0] for m in log.of(Severity.INFO)] == [
        "acme: 1 rule",
        "zeta: 1 tactic",
    ]


def test_enabling_what_is_not_there(
    site: Any, given: Any, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    pack = [given("acme")]
    for arguments in ({"enable": ["acmee"]}, {"only": ["acmee"]}):
        with pytest.raises(ConfigError, match=r"there is no plugin 'acmee'. Did you mean 'acme'\?"):
            Session(plugins=pack, **arguments).layers  # type: ignore[arg-type]  # noqa: B018
    session = Session(plugins=pack)
    assert len(session.layers) == 2
    with pytest.raises(
        ConfigError, match=r"there is no plugin 'qqq'. Install a distribution that provides it"
    ):
        session.enable("qqq")
    session.enable("acme")
    monkeypatch.setenv("TACTIX_PLUGINS", "acme,qqq")
    assert len(Session(plugins=pack, logger=log).layers) == 2
    assert log.of(Severity.WARNING) == [
        "TACTIX_PLUGINS: there is no plugin 'qqq'. Install a distribution that provides it"
    ]


def converter(op: str, since: int = 1, format: str = "onnx") -> Converter:
    return Converter(format, op, print, since)


def test_an_operator_of_others_is_left_to_them_until_the_pack_is_enabled(
    given: Any, log: Any
) -> None:
    market = {
        "layers": [obj("acme.Mish@1", imports=("onnx:acme::Mish",))],
        "converters": [converter("acme::Mish"), converter("acme::Own"), converter("zeta::Relu", 7),
                       converter("zeta::Gelu"), converter("zeta::Gelu", format="other")],
    }  # fmt: skip
    others = {
        "layers": [obj("zeta.Gelu@1", imports=("onnx:zeta::Gelu",))],
        "converters": [converter("zeta::Relu")],
    }
    packs_ = [given("acme", **market), given("zeta", **others)]
    session = Session(plugins=packs_, logger=log, discover=False)
    free = ["onnx:acme::Mish@1", "onnx:acme::Own@1", "onnx:zeta::Relu@1", "other:zeta::Gelu@1"]
    assert keys(session.active_converters()) == free
    (line,) = log.of(Severity.INFO)
    assert line.startswith(
        "acme: 2 converters disabled until enabled (they touch what others provide); enable with"
    )
    session.enable("acme")
    assert keys(session.active_converters()) == sorted(
        [*free, "onnx:zeta::Gelu@1", "onnx:zeta::Relu@7"]
    )


def test_formats_languages_and_trust_are_left_to_tactix_until_the_pack_is_enabled(
    given: Any, log: Any
) -> None:
    own = {
        "importers": [obj("tactix.onnx@1", format="onnx")],
        "compilers": [obj("tactix.cc@1", language="c")],
        "trust_stores": [obj("local", trusted_by=lambda seal: seal.digest == b"ours" and "own")],
    }
    theirs = {
        "importers": [
            obj("acme.any@1", format="onnx"),
            obj("acme.new@1", format="acme"),
            obj("acme.odd@1"),
        ],
        "compilers": [obj("acme.cc@1", language="c"), obj("acme.zig@1", language="zig")],
        "trust_stores": [obj("acme", trusted_by=lambda seal: "acme")],
    }
    session = Session(
        plugins=[given("tactix", **own), given("acme", **theirs)], logger=log, discover=False
    )
    assert keys(session.active_importers()) == ["tactix.onnx@1", "acme.new@1", "acme.odd@1"]
    assert keys(session.active_compilers()) == ["tactix.cc@1", "acme.zig@1"]
    assert [session.trusted_by(Seal(digest)) for digest in (b"ours", b"other")] == ["own", ""]
    cure = "enable with config.enable('acme') or --enable acme"
    for what in ("importer", "compiler", "trust store"):
        assert (
            f"acme: 1 {what} disabled until enabled (they touch what others provide); {cure}"
            in log.of(Severity.INFO)
        )
    assert session.not_enabled() == {"acme": "1 importer, 1 compiler, 1 trust store"}
    session.enable("acme")
    assert keys(session.active_importers()) == [
        "tactix.onnx@1",
        "acme.any@1",
        "acme.new@1",
        "acme.odd@1",
    ]
    assert keys(session.active_compilers()) == ["tactix.cc@1", "acme.cc@1", "acme.zig@1"]
    assert [session.trusted_by(Seal(digest)) for digest in (b"ours", b"other")] == ["own", "acme"]


def test_a_trust_store_at_the_runtime_door(given: Any) -> None:
    pack = given("acme", trust_stores=[obj("acme", trusted_by=lambda seal: "acme")])
    for enable, found in (((), ""), (("acme",), "acme")):
        session = Session("runtime", plugins=[pack], enable=enable, discover=False)
        assert session.trusted_by(Seal(b"")) == found
        assert [i.status for i in packs(session)] == ["active" if enable else "not enabled"]
