"""``tactix diff``: every kind of difference between two plans is told, and nothing of them is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.plan import container
from tactix_tools import cli

Diff = Callable[..., Any]


def plan_of(width: int = 7, wide: bool = False, seed: int = 0, **fields: Any) -> tactix.Plan:
    """x (n, 5) times a weight, Relu, and with ``wide`` a Softmax."""
    builder = tactix.Builder()
    net = builder.create_network("small")
    w = net.add_constant(np.random.default_rng(seed).standard_normal((5, width), np.float32), "w")
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("n", 5)), w], name="product")
    (y,) = net.add_layer("tactix.Relu", [y], name="relu")
    if wide:
        (y,) = net.add_layer("tactix.Softmax", [y], name="softmax", axis=1)
    net.mark_output(y, "y")
    settings: dict[str, Any] = {
        "timing_cache": False,
        "builder_optimization_level": 0,
        "threads": 1,
        **fields,
    }
    return builder.build_plan(net, tactix.BuilderConfig(**settings))


@pytest.fixture
def diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Diff:
    """The document for two plans, after a look at what is printed for people."""

    def run(a: tactix.Plan, b: tactix.Plan, code: int = 1) -> Any:
        paths = [str(tmp_path / f"{name}.plan") for name in "ab"]
        for plan, path in zip((a, b), paths, strict=True):
            container.save(plan, path)
        assert cli.main(["diff", *paths]) == code
        printed = capsys.readouterr().out
        assert cli.main(["diff", *paths, "--json"]) == code
        return json.loads(capsys.readouterr().out), printed

    return run


def test_the_same_plan(diff: Diff) -> None:
    plan = plan_of()
    facts, printed = diff(plan, plan, code=0)
    assert facts["same"]
    assert not facts["choices"]
    assert facts["steps"]["only"] == [[], []]
    assert printed == "the plans are the same\n"


def test_signatures_do_not_count(tmp_path: Path) -> None:
    plan = plan_of()
    container.save(plan, tmp_path / "a.plan")
    container.save(plan, tmp_path / "b.plan", lambda digest: b"a signature of these bytes" + digest)
    assert cli.main(["diff", str(tmp_path / "a.plan"), str(tmp_path / "b.plan")]) == 0


def test_other_choices(diff: Diff) -> None:
    a, b = plan_of(tactic_sources={"c", "numpy"}), plan_of(tactic_sources={"numpy"})
    facts, printed = diff(a, b)
    (row,) = facts["choices"]
    assert row["tactic"] == [a.steps[0].info["tactic"], "tactix.numpy@1"]
    assert facts["precision"] == []
    assert facts["bytes"]["code"][0] > facts["bytes"]["code"][1] == 0
    assert {k for k, pair in facts["requirements"].items() if pair[0] is None} >= {"tactix.numpy@1"}
    assert "tactix.numpy@1" in printed
    assert row["name"] in printed


def test_another_precision(diff: Diff) -> None:
    a = plan_of()
    step = a.steps[0]
    lowered = [replace(o, spec=replace(o.spec, dtype=tactix.DType.BF16)) for o in step.inputs]
    facts, printed = diff(
        a, replace(a, steps=(replace(step, inputs=(step.inputs[0], lowered[1])), *a.steps[1:]))
    )
    assert facts["precision"] == [{"name": step.name, "precision": ["f32", "bf16"]}]
    assert "Precision" in printed


def test_other_steps(diff: Diff) -> None:
    facts, printed = diff(plan_of(), plan_of(wide=True))
    assert facts["steps"]["count"] == [1, 2]
    assert [r["name"] for r in facts["steps"]["only"][1]] == ["softmax"]
    assert "softmax" in printed


def test_other_times_alone(diff: Diff) -> None:
    a = plan_of()
    step = a.steps[0]
    slower = replace(step, info={**step.info, "seconds": 0.25})
    facts, printed = diff(
        a, replace(a, steps=(slower,), ledger={**a.ledger, "predicted_seconds": 0.5})
    )
    assert facts["times"]["predicted"] == [a.ledger["predicted_seconds"], 0.5]
    assert facts["times"]["steps"] == [{"name": step.name, "seconds": [step.info["seconds"], 0.25]}]
    assert "250 ms" in printed
    assert "the choices are the same" in printed


def test_other_weights_alone(diff: Diff) -> None:
    facts, printed = diff(plan_of(), plan_of(seed=1))
    assert facts["bytes"]["weights"][0] == facts["bytes"]["weights"][1]
    assert "the choices are the same: times, weights or machine code differ" in printed


def test_other_inputs_and_outputs_profiles_device_and_versions(diff: Diff) -> None:
    profile = tactix.OptimizationProfile().set_shape("x", (1, 5), (2, 5), (4, 5))
    a, b = plan_of(), plan_of(width=9, profiles=[profile], threads=2)
    facts, printed = diff(
        a, replace(b, device={**b.device, "name": "another"}, meta={**b.meta, "tactix": "0.2.0"})
    )
    assert facts["inputs"] == {}
    assert facts["outputs"] == {
        "y": [{"name": "y", "dtype": "f32", "shape": ["n", w]} for w in (7, 9)]
    }
    assert facts["profiles"]["profile"] == [None, {"n": [1, 2, 4]}]
    assert facts["device"] == {"name": [a.device["name"], "another"]}
    assert {"tactix", "threads"} <= facts["meta"].keys()
    for word in ("another", "0.2.0", "Outputs"):
        assert word in printed


def test_memory_at_given_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "p.plan")
    container.save(plan_of(wide=True), path)
    sizes = []
    for n in (1, 100):
        assert cli.main(["diff", path, path, "--shapes", f"x:{n}x5", "--json"]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["bytes"]["activations"])
    assert sizes[0][0] == sizes[0][1] < sizes[1][0]
    assert cli.main(["diff", path, path, "--shapes", "q:1"]) == cli.USAGE
    assert "error: no input 'q'" in capsys.readouterr().err


def test_what_is_no_plan_is_no_difference(tmp_path: Path) -> None:
    container.save(plan_of(), tmp_path / "a.plan")
    (tmp_path / "b.plan").write_bytes(b"nothing")
    assert cli.main(["diff", str(tmp_path / "a.plan"), str(tmp_path / "b.plan")]) == cli.PLAN
    bad = plan_of()
    container.save(
        replace(bad, ledger={"predicted_seconds": []}, device={"x": {"y": [1]}}),
        tmp_path / "b.plan",
    )
    assert cli.main(["diff", str(tmp_path / "a.plan"), str(tmp_path / "b.plan")]) == 1


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_damaged_plan_is_named(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although its header is the other's."""
    paths = [tmp_path / "a.plan", tmp_path / "b.plan"]
    for path in paths:
        container.save(plan_of(), path)
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert cli.main(["diff", *map(str, paths), *options]) == cli.PLAN
    said = capsys.readouterr().err
    assert "b.plan" in said
    assert "does not fit its sha256" in said
