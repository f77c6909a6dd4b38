"""``tactix check`` and a runtime say which pack is left out, and how to have it back."""

from __future__ import annotations

from pathlib import Path

import pytest

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.contracts.tool import Tool
from tactix.plan.schema import Plan
from tactix.plugins.pack import BasePack
from tactix.plugins.session import Session
from tactix_tools import cli


@pytest.fixture
def plan() -> Plan:
    """Of a loop, which a launcher of the pack ``ops`` runs."""
    builder = tactix.Builder()
    network = builder.import_model(Path(__file__).parents[2] / "models/loops/greedy.onnx")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    return builder.build_plan(network, config)


def test_a_launcher_of_a_disabled_pack_says_so_and_asks_for_no_installation(plan: Plan) -> None:
    runtime = tactix.Runtime(session=Session(group="runtime", disable=["ops"]))
    with pytest.raises(PlanCompatibilityError) as e:
        runtime.load(plan)
    text = str(e.value)
    assert "no launcher 'tactix.control@1' (of tactix" in text
    assert "its plugin 'tactix.ops' (tactix" in text
    assert "Take 'ops' out of TACTIX_DISABLE" in text
    assert "pip install" not in text
    (reason,) = runtime.check(plan)
    assert "Take 'ops' out of TACTIX_DISABLE" in reason


@pytest.mark.parametrize("pack", ["cpu", "ops", "runtime"])
def test_check_gives_the_cure(
    pack: str,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "it.plan"
    tactix.Runtime().load(plan).save(path)
    monkeypatch.setenv("TACTIX_DISABLE", pack)
    assert cli.main(["check", str(path)]) == cli.PLAN
    told = capsys.readouterr().out
    assert f"its plugin 'tactix.{pack}' (tactix" in told
    assert f"Take '{pack}' out of TACTIX_DISABLE" in told
    assert "cannot run here" in told


def test_inspect_needs_an_importer_as_build_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACTIX_DISABLE", "onnx")
    model = Path(__file__).parents[2] / "models/mlp.onnx"
    assert cli.main(["inspect", str(model)]) == cli.MODEL
    told = capsys.readouterr().err
    assert "no importer knows this model" in told
    assert "Take 'onnx' out of TACTIX_DISABLE" in told


def test_a_tool_that_gives_no_command_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = BasePack("acme")
    pack.tool(Tool("probe", "It gives a number.", lambda: 3))
    monkeypatch.setattr(cli, "_session", lambda: Session(plugins=[pack]))
    assert cli.main(["acme.probe"]) == cli.OTHER
    told = capsys.readouterr().err
    assert "tool 'acme.probe' of plugin 'acme' (given in process)" in told
    assert "the tool gave a int, not a click command" in told
