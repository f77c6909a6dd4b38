"""Budgets on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tactix_tools import cli

MODEL = str(Path(__file__).parents[2] / "models" / "lenet.onnx")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, str]:
    """Of a model, by whether its weights stream."""
    folder, out = tmp_path_factory.mktemp("plans"), {}
    for streams in (True, False):
        out[streams] = str(folder / f"{streams}.plan")
        flag = ["--weight-streaming"] if streams else []
        assert (
            cli.main(["build", MODEL, "-o", out[streams], "-O0", "--no-timing-cache", *flag]) == 0
        )
    return out


def run(plan: str, capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert cli.main(["run", plan, "--json", *args]) == 0
    return json.loads(capsys.readouterr().out)["outputs"]


@pytest.mark.parametrize("budget", ["100%", "80%", "64K", "0.064M", "64000"])
def test_answers_are_the_same(
    budget: str, plans: dict[bool, str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    want = run(plans[True], capsys)
    assert run(plans[True], capsys, "--weight-streaming-budget", budget) == want


@pytest.mark.parametrize(("streams", "budget", "why"), [
    (True, "1", "a step needs"), (True, "0%", "a step needs"), (False, "50%", "--weight-streaming"),
    (True, "many", "is not a size like"),
])  # fmt: skip
def test_budgets_that_cannot_be(
    streams: bool, budget: str, why: str, plans: dict[bool, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", plans[streams], "--weight-streaming-budget", budget]) == cli.USAGE
    assert why in capsys.readouterr().err
