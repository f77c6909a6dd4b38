"""``tactix inspect --source``: the text of a step, what is told of it, and steps that have none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tactix
from tactix.base.dims import sym
from tactix.base.errors import InvalidArgument
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_tools import cli, kernel_source
from tactix_tools.kernel_source import kernel_texts

COMPILED = "compiled"


def plan_of(tactic_sources: set[str] | None = None) -> Plan:
    builder, rng = tactix.Builder(), np.random.default_rng(3)
    net = builder.create_network("two")
    x = net.add_input("x", "f32", (60, 256))
    w = net.add_constant(rng.standard_normal((256, 96), np.float32))
    (y,) = net.add_layer("tactix.MatMul", [x, w], name="up")
    (y,) = net.add_layer("tactix.Relu", [y], name="act")
    (y,) = net.add_layer("tactix.Softmax", [y], name="last */ sly", axis=1)
    net.mark_output(y, "y")
    options = tactix.BuilderConfig(
        timing_cache=False, builder_optimization_level=0, tactic_sources=tactic_sources
    )
    return builder.build_plan(net, options)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of()


@pytest.fixture
def file(plan: Plan, tmp_path: Path) -> str:
    path = str(tmp_path / "two.plan")
    container.save(plan, path)
    return path


@pytest.mark.compiler
def test_the_text_is_what_was_compiled(plan: Plan) -> None:
    (found,) = kernel_texts(plan, "act")
    (step,) = (s for s in plan.steps if s.name == found.step)
    assert found.text == step.artifact.code.source  # type: ignore[union-attr]
    assert "TX_ENTRY" in found.text
    assert found.is_checked is True
    assert found.preludes[0] == "vec.h"
    assert found.computes == ["t2 = MatMul(x0, x1)", "y0 = Relu(t2)", "of the model's up, act"]
    assert found.language == "c"
    assert "no other candidate" in found.chosen or "next " in found.chosen


@pytest.mark.compiler
def test_another_text_is_told(plan: Plan) -> None:
    steps = [
        replace(
            s,
            artifact=replace(
                s.artifact, code=replace(s.artifact.code, source=s.artifact.code.source + " ")
            ),
        )  # type: ignore
        for s in plan.steps
    ]
    (found,) = kernel_texts(replace(plan, steps=tuple(steps)), "up")
    assert found.is_checked is False
    assert "NOT what was compiled" in found.header


@pytest.mark.compiler
def test_what_cannot_be_checked_is_told(plan: Plan) -> None:
    silent = replace(plan, ledger={k: v for k, v in plan.ledger.items() if k != COMPILED})
    (found,) = kernel_texts(silent, "up")
    assert found.is_checked is None
    assert "cannot be checked" in found.check
    noted = {name: {**row, "preludes": ["0" * 16]} for name, row in plan.ledger[COMPILED].items()}
    (found,) = kernel_texts(replace(plan, ledger={**plan.ledger, COMPILED: noted}), "up")
    assert found.is_checked is None
    assert "another version" in found.check


@pytest.mark.compiler
def test_a_header_is_one_comment(plan: Plan) -> None:
    (found,) = kernel_texts(plan, "last")
    assert found.header.count("*/") == 1
    assert found.header.endswith(" */")
    assert "axis=1" in found.header
    assert all(len(line) <= 120 for line in found.header.split("\n"))


@pytest.mark.compiler
def test_the_command(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", file, "--source", "up"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("/* up + act")
    assert "void TX_ENTRY(const int64_t* a, int tid, int nt) {\n" in out
    assert cli.main(["inspect", file, "--source", "up", "--json"]) == 0
    (source,) = json.loads(capsys.readouterr().out)["sources"]
    assert source["text"] in out
    assert source["tactic"].startswith("tactix.c_")
    assert cli.main(["inspect", file, "--source", "upp"]) == cli.USAGE
    assert "no node 'upp'" in capsys.readouterr().err


def test_a_step_without_a_text_says_what_runs_it() -> None:
    with pytest.raises(InvalidArgument, match=r"no kernel with a text.*launcher tactix"):
        kernel_texts(plan_of({"numpy"}), "up")


def test_a_model_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no plan")
    assert cli.main(["inspect", str(path), "--source", "up"]) == cli.USAGE
    assert "Build a plan of it first" in capsys.readouterr().err


@pytest.fixture(scope="module")
def reshaped() -> Plan:
    """Softmax, a reshape that moves nothing, softmax."""
    builder = tactix.Builder()
    network = builder.create_network("reshaped")
    x = network.add_input("x", "f32", ["batch", 4, 4])
    (h,) = network.add_layer("tactix.Softmax", [x], name="first")
    (h,) = network.add_layer("tactix.Reshape", [h], name="/Reshape", shape=(sym("batch"), 16))
    network.mark_output(network.add_layer("tactix.Softmax", [h], name="last", axis=1)[0], "y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    return builder.build_plan(network, config)


def test_a_view_is_told_as_one(reshaped: Plan) -> None:
    with pytest.raises(InvalidArgument, match=r"'/Reshape' runs no code: .* makes a view of it"):
        kernel_texts(reshaped, "/Reshape")
    with pytest.raises(InvalidArgument, match="no node '/Resha'"):
        kernel_texts(reshaped, "/Resha")


def test_dims_are_written_as_people_read_them() -> None:
    attrs = {"shape": [{"dim": "batch"}, 16], "to": {"dtype": "f16"}, "odd": {"new": 1}}
    told = kernel_source._call({"layer": "tactix.Reshape@1", "attrs": attrs}, ["x0"])
    assert told == "Reshape(x0, shape=[batch, 16], to=f16, odd={'new': 1})"
