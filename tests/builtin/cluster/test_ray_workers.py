"""Builds on a real cluster of Ray, on this machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tactix
from tactix.base.errors import ConfigError, DeviceLost
from tactix.base.progress import SilentProgress
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_cluster.cluster_workers import WorkerLost
from tactix_cluster.ray_workers import RayCluster, RayWorker, ray_workers
from tactix_tools import cli

ROOT = Path(__file__).parents[3]
DIGITS, PAGE = ROOT / "examples" / "digits" / "digits.onnx", ROOT / "docs" / "builds.md"


class Killing(SilentProgress):
    """Ends a worker when the first times have come."""

    def __init__(self, workers: list[RayWorker]) -> None:
        self.workers, self.killed = workers, False

    def step(self, name: str, done: int, message: str = "") -> None:
        if name == "measure" and not self.killed:
            self.killed = True
            self.workers[0].stop()


def content(plan: Plan) -> bytes:
    ledger = {k: x for k, x in plan.ledger.items() if k != "timing_cache"}
    return container.digest(replace(plan, ledger=ledger))


@pytest.mark.compiler
def test_a_worker_that_is_killed_costs_time_alone(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[RayWorker] = []
    start = RayCluster.start

    def kept(self: RayCluster, conditions: Any) -> Any:
        started.append(start(self, conditions))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(RayCluster, "start", kept)
    (text,) = re.findall(r"```python\n# python: workers\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(text, names)
    options: dict[str, Any] = {"level": 1, "timing_cache": tmp_path / "timings.json"}
    monitor = Killing(started)
    engine = names["build_there"](DIGITS, progress=monitor, **options)
    assert monitor.killed
    alone = tactix.build(DIGITS, frozen=True, threads=1, **options)
    assert content(engine.plan) == content(alone.plan)


def test_the_command_builds_on_the_cluster_that_there_is(
    ray_cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "digits.plan"
    options = ["-O1", "--threads", "1", "--timing-cache", str(tmp_path / "timings.json")]
    on = ["--on", "ray", "--workers", "1", "-o", str(plan), "--json"]
    assert cli.main(["build", str(DIGITS), *on, *options]) == 0
    rows = container.load(plan).ledger["nodes"].values()
    states = {c["status"] for row in rows for c in row["candidates"]}
    assert "cached" in states
    assert "measured" not in states
    assert cli.main(["build", str(DIGITS), "--workers", "2", "-o", str(plan)]) == 2
    assert "--workers is for --on" in capsys.readouterr().err


class TaskError(Exception):
    def as_instanceof_cause(self) -> Exception:
        return DeviceLost("a candidate lost the device", who="node")


def test_a_worker_whose_device_is_lost_is_lost() -> None:
    def get(ticket: object) -> None:
        raise TaskError

    ray = ModuleType("ray")
    ray.get, ray.exceptions = get, SimpleNamespace(RayTaskError=TaskError)  # type: ignore[attr-defined]
    with pytest.raises(WorkerLost, match="node: a candidate lost the device"):
        RayCluster(ray, ours=False).answer(None)


def test_a_name_that_no_cluster_has_is_an_error() -> None:
    with (
        pytest.raises(ConfigError, match="Give local, ray or ray://HOST:PORT"),
        ray_workers("http://there"),
    ):
        pass
