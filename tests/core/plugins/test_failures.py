"""Plugins that fail: what is told of them, strict, duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from tactix.base.errors import PluginError
from tactix.base.logger import Severity
from tactix.plugins.registry import MissingKey
from tactix.plugins.session import Session
from tactix_tools.pack_info import packs

BOOM = "raise ImportError('libfoo.so.1: cannot open')"


def test_using_what_failed_to_load_says_all(site: Any, log: Any) -> None:
    site.pack("acme-trt", "0.4.2", build=BOOM)
    site.pack("zeta", build='@hookimpl\ndef tactix_layers(): return [O(key="zeta.A@1")]')
    session = Session(logger=log)
    assert "zeta.A@1" in session.layers
    with pytest.raises(MissingKey) as e:
        session.layers["acme.Swish@1"]
    assert str(e.value) == (
        "layer 'acme.Swish@1' is unavailable: its plugin 'acme' (acme-trt 0.4.2) failed to load: "
        "ImportError: libfoo.so.1: cannot open. Fix that, or disable it with TACTIX_DISABLE=acme"
    )
    with pytest.raises(MissingKey, match="failed to load"):
        session.tactics["acme.gemm@1"]
    assert log.of(Severity.WARNING) == [
        "plugin 'acme' (acme-trt 0.4.2) failed to load: ImportError: libfoo.so.1: cannot open. "
        "Fix that, or disable it with TACTIX_DISABLE=acme"
    ]
    info = packs(session)[0]
    assert (info.status, info.dist, info.counts) == ("failed", "acme-trt", {})
    assert "libfoo" in info.reason


@pytest.mark.parametrize(
    "body",
    ["raise RuntimeError('broken')", "return None", "return [O(key='zeta.Swish@1')]", "return [O]",
     "raise SystemExit(3)", "return [O(key='acme.Swish@1'), O(key='nonsense')]"],
)  # fmt: skip
def test_a_hook_that_fails_takes_only_itself_away(site: Any, body: str) -> None:
    rules = "\n@hookimpl\ndef tactix_rules(): return [O(key='acme.swish', pattern=None, benefit=1)]"
    site.pack("acme-trt", build=f"@hookimpl\ndef tactix_layers(): {body}{rules}")
    session = Session()
    assert len(session.layers) == 2
    assert "acme.swish" in session.rules
    with pytest.raises(MissingKey, match=r"\(acme-trt 1.0\) failed in tactix_layers: "):
        session.layers["acme.Swish@1"]
    with pytest.raises(MissingKey, match=r"no rule 'acme.swich'. Did you mean 'acme.swish'\?"):
        session.rules["acme.swich"]
    (info,) = packs(session)
    assert (info.status, info.counts) == ("failed", {"rules": 1})


@pytest.mark.parametrize(
    ("body", "message"),
    [("@hookimpl\ndef tactix_layer(): return []", "unknown hook 'tactix_layer'. Did you mean 'tactix_layers'"),
     ("@hookimpl(wrapper=True)\ndef tactix_layers(): return (yield)", "was refused: tactix_layers is a wrapper"),
     ("def tactix_layers(): return []", "was refused: tactix_layers is not marked"),
     ("@hookimpl\ndef tactix_launchers(): return []", "was refused: tactix_launchers belongs to the entry-point group"),
     ("@hookimpl\ndef tactix_layers(session): return []", "was refused: tactix_layers takes session"),
     ("raise SystemExit('bye')", "failed to load: SystemExit: bye")],
)  # fmt: skip
def test_strict_raises_at_once_otherwise_it_is_told(
    site: Any, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    site.pack("acme-trt", "0.4.2", build=body)
    session = Session()
    assert len(session.layers) == 2
    assert message in session.failures()[0].reason
    for by in ("argument", "environment"):
        if by == "environment":
            monkeypatch.setenv("TACTIX_STRICT_PLUGINS", "1")
        strict = Session(strict=True if by == "argument" else None)
        for _ in range(2):  # it stays that way
            with pytest.raises(PluginError) as e:
                strict.layers  # noqa: B018
            assert message in str(e.value)
            assert (e.value.dist, e.value.version, e.value.key) == ("acme-trt", "0.4.2", "acme")
            assert e.value.__cause__ is not None
    assert len(Session(strict=False).layers) == 2, "the argument wins over the environment"


def test_strict_raises_for_a_hook_that_fails(site: Any) -> None:
    site.pack("acme-trt", build="@hookimpl\ndef tactix_rules(): raise RuntimeError('broken')")
    session = Session(strict=True)
    assert len(session.layers) == 2
    with pytest.raises(PluginError, match="failed in tactix_rules: RuntimeError: broken"):
        session.rules  # noqa: B018


def test_a_key_of_two_packs_costs_that_key_alone(site: Any, log: Any) -> None:
    for dist in ("acme-trt", "zeta"):
        site.pack(
            dist,
            build=f"@hookimpl\ndef tactix_calibrators(): return [O(key=k) for k in ('top', {dist[:4]!r})]",
        )
    session = Session(logger=log)
    assert list(session.calibrators) == ["acme", "zeta"]
    told = (
        "calibrator 'top' is left out: it is provided by plugin 'acme' (acme-trt 1.0) and by plugin 'zeta' (zeta 1.0). "
        "Disable or uninstall one: TACTIX_DISABLE=acme-trt or TACTIX_DISABLE=zeta"
    )
    assert log.of(Severity.WARNING) == [told]
    with pytest.raises(MissingKey) as e:
        session.calibrators["top"]
    assert str(e.value) == told
    assert [(p.status, f"{p.reason}. {p.cure}") for p in packs(session)] == [("clashing", told)] * 2
    assert list(Session(disable=["zeta"]).calibrators) == ["acme", "top"]
    with pytest.raises(PluginError, match="TACTIX_DISABLE=acme-trt or TACTIX_DISABLE=zeta"):
        Session(strict=True).calibrators  # noqa: B018


def test_tactix_keeps_a_key_that_a_pack_provides_too(given: Any, log: Any) -> None:
    own, theirs = given("tactix", flavours=["default"]), given("acme", flavours=["default", "fast"])
    session = Session(plugins=[theirs, own], discover=False, logger=log)
    assert list(session.flavours) == ["default", "fast"]
    assert session.flavours.entry("default").namespace == "tactix"
    (line,) = log.of(Severity.WARNING)
    assert line == (
        "flavour 'default' of plugin 'acme' (given in process) is left out: tactix has its own. "
        "Give it another key, or disable the pack: TACTIX_DISABLE=acme"
    )
    assert {p.namespace: p.status for p in packs(session)} == {
        "acme": "clashing",
        "tactix": "active",
    }


def test_tools_of_packs_have_their_packs_name_in_front(given: Any, log: Any) -> None:
    both = [given("acme", tools=["audit", "acme.probe"]), given("zeta", tools=["audit"])]
    session = Session(plugins=[given("tactix", tools=["audit"]), *both], discover=False, logger=log)
    assert list(session.tools) == ["acme.audit", "acme.probe", "audit", "zeta.audit"]
    assert log.of(Severity.WARNING) == []


def test_nobody_takes_a_structural_layer(site: Any, given: Any) -> None:
    session = Session(plugins=[given("tactix", layers=["tactix.Fused@1"])])
    with pytest.raises(PluginError, match=r"'tactix.Fused@1' is provided twice"):
        session.layers  # noqa: B018
