"""``tactix plugins info`` and ``why``: who provides a key, what became of a pack, and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tactix_sdk import P, Rule, hookimpl, pointwise, tanh, var
from tactix_tools.cli import main
from tactix_tools.plugins import _provided

x = var("x")


@pointwise("acme.Squash@1")
def squash(x: Any, *, gain: float = 1.0) -> Any:
    return tanh(x * gain)


class Pack:
    @hookimpl
    def tactix_layers(self) -> list[Any]:
        return [squash]

    @hookimpl
    def tactix_rules(self) -> list[Any]:
        return [Rule("acme.squash", P.tactix.Tanh(x), replace=lambda x: P.acme.Squash(x))]


class Failing:
    @hookimpl
    def tactix_layers(self) -> list[Any]:
        raise ImportError("libfoo.so.1")


def test_who_provides_a_key() -> None:
    from tactix.base.logger import Logger, Severity
    from tactix.plugins.session import Session

    session = Session(
        plugins=[("acme", Pack()), ("other", Failing())], logger=Logger(Severity.ERROR)
    )
    (layer,) = _provided(session, "acme.Squash@1")["provided"]
    assert (layer["kind"], layer["state"]) == ("layers", "active")
    (rule,) = _provided(session, "acme.squash")["provided"]
    assert (rule["kind"], rule["state"]) == ("rules", "not enabled")
    assert "config.enable('acme')" in rule["cure"]
    (broken,) = _provided(session, "other.Thing@1")["broken"]
    assert "libfoo.so.1" in broken["reason"]
    assert "TACTIX_DISABLE" in broken["cure"]
    assert "acme.Squash@1" in _provided(session, "acme.Squish@1")["cure"]


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "why", "tactix.Softmax@1"]) == 0
    assert main(["plugins", "why", "tactix.Softmax"]) == 0
    assert "one of the layers of tactix" in capsys.readouterr().out
    assert main(["plugins", "why", "tactix.Sftmax@1", "--json"]) == 1
    assert "tactix.Softmax@1" in json.loads(capsys.readouterr().out)["cure"]
    assert main(["plugins", "info", "tactix.ops", "--json"]) == 0
    (pack,) = json.loads(capsys.readouterr().out)["packs"]
    assert len(pack["digest"]) == 64
    assert "tactix.Softmax@1" in pack["provides"]["layers"]
    assert main(["plugins", "info", "tactics"]) == 2
    assert "no pack 'tactics'. Did you mean 'tactix" in capsys.readouterr().err
