"""Where the pack of signatures is left out, plans that are written and plans that are refused say
so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kept_log import KeptLog

import tactix
from tactix.base.errors import UntrustedPlan
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_tools import cli

MODEL = Path(__file__).parents[2] / "models" / "mlp.onnx"
CURE = "Take 'trust' out of TACTIX_DISABLE or the session's disable="


def without_trust(log: KeptLog | None = None) -> Session:
    return Session(group="runtime", disable=["tactix.trust"], logger=log)


def test_a_refusal_says_first_that_the_store_is_left_out(path: Path) -> None:
    with pytest.raises(UntrustedPlan) as e:
        tactix.Runtime(session=without_trust()).deserialize(path)
    assert "no key here knows its signature, and tactix's trust store is not in use" in e.value.why
    assert "its plugin 'tactix.trust'" in e.value.why
    assert e.value.do.startswith("Take 'tactix.trust' out of TACTIX_DISABLE")
    assert "tactix keys trust" not in e.value.do
    assert ";" not in e.value.do


def test_an_engine_that_is_saved_without_a_signature_says_so(plan: Plan, tmp_path: Path) -> None:
    log = KeptLog()
    tactix.Runtime(log, without_trust(log)).load(plan).save(tmp_path / "it.plan")
    (line,) = log.warnings
    assert line.startswith("the plan is not signed: its plugin 'tactix.trust'")


def test_a_build_that_is_not_signed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACTIX_DISABLE", "trust")
    build = ["build", str(MODEL), "--quiet", "-o", str(tmp_path / "it.plan")]
    assert cli.main(build) == cli.OK
    told = capsys.readouterr().err
    assert "the plan is not signed: its plugin 'tactix.trust'" in told
    assert CURE in told
    assert cli.main([*build, "--no-sign"]) == cli.OK
    assert "not signed" not in capsys.readouterr().err
