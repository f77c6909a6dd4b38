"""``tactix check`` and a runtime say which pack is left out, and how to have it back."""

from __future__ import annotations

from pathlib import Path

import pytest

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.plan.schema import Plan
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
