"""The smallest part of a model that a command fails on, for failures of every kind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tactix_inspect.check_command import CheckCommand
from tactix_inspect.delta import fewest
from tactix_inspect.submodel import WholeModel, cuts_of, inputs_of
from tactix_tools import cli

TEXT = """<ir_version: 9, opset_import: ["" : 20, "acme" : 1]> long
    (float[n, 4, 6] x) => (float[n, 6, 4] y) <float[6, 6] w = {WEIGHTS}> {
    a = Relu (x) b = MatMul (a, w) c = Sigmoid (b) h = Shape (c)
    i = Constant <value = int64[3] {0, 2, 1}> () g = Gather (h, i) d = Reshape (c, g)
    e = Tanh (d) m = acme.Mystery (e) f = Neg (m) k = Abs (f) o = Exp (k) y = Sqrt (o) }"""

PROGRAM = """
import os, signal, sys, time
ops = open(sys.argv[1], "rb").read().decode("latin-1")  # names of operators stand there as they are
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Fourteen nodes in a row, one of them of an unknown operator, and weights."""
    text = TEXT.replace("WEIGHTS", ", ".join(["0.5"] * 36))
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], str]:
    """The command of a script, which knows the model's operators as ``ops``."""

    def made(body: str) -> str:
        script = tmp_path / "check.py"
        script.write_text(PROGRAM + body)
        return f"{sys.executable} -I -S {script} {{}}"

    return made


def ops_of(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def reduced(model: Path, command: str, *options: str) -> list[str]:
    out = model.with_name("small.onnx")
    arguments = ["debug", "reduce", str(model), "--check", command, "-o", str(out), "--quiet"]
    assert cli.main([*arguments, *options]) == 0
    return ops_of(out)


CRASH = "os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("sys.exit('Mystery' in ops)", ["Mystery"]),
        ("sys.exit('Relu' in ops and 'Sqrt' in ops)", ["Relu", "Sqrt"]),
        (f"'Tanh' in ops and {CRASH}", ["Tanh"]),
        ("time.sleep(60 if 'Abs' in ops else 0)", ["Abs"]),
    ],
)
def test_the_fault_alone_is_left(
    model: Path, check: Callable[[str], str], body: str, left: list[str]
) -> None:
    options = ["--timeout", "3s"] if "sleep" in body else []
    assert reduced(model, check(body), *options) == left


def test_another_failure_does_not_count(model: Path, check: Callable[[str], str]) -> None:
    body = "print('first') if 'Neg' in ops else print('second')\nsys.exit('Exp' in ops)"
    assert reduced(model, check(body), "--match", "first") == ["Neg", "Exp"]


def test_a_command_that_does_not_fail(
    model: Path, check: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["debug", "reduce", str(model), "--check", check("")]) == cli.USAGE
    assert "does not fail on the whole model" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["true", "'true {}"])
def test_a_command_that_cannot_be_understood(model: Path, command: str) -> None:
    assert cli.main(["debug", "reduce", str(model), "--check", command]) == cli.USAGE


def test_no_such_command(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["debug", "reduce", str(model), "--check", "/no/such/program {}"]) == cli.USAGE
    assert "cannot be run" in capsys.readouterr().err


def test_inputs_that_are_none_are_refused(
    model: Path, check: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = model.with_name("x.npz")
    np.savez(given, y=np.zeros((2, 4, 6), np.float32))
    command = ["--check", check("sys.exit(1)"), "--inputs", str(given)]
    assert cli.main(["debug", "reduce", str(model), *command]) == cli.USAGE
    assert "no input is named 'y'" in capsys.readouterr().err


def test_time_that_is_over(
    model: Path, check: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--check", check("sys.exit(1)"), "--max-seconds", "0", "--json"]
    assert cli.main(["debug", "reduce", str(model), *command]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes"], told["runs"], told["output"]) == (told["of"], 0, None)


@pytest.mark.parametrize(
    ("stop", "code"),
    [(KeyboardInterrupt, cli.INTERRUPTED), (cli.Terminated, cli.TERMINATED)],
)
def test_an_interruption_leaves_the_smallest(
    stop: type[BaseException],
    code: int,
    model: Path,
    check: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs: list[str] = []
    ran = CheckCommand.__call__

    def stopped(self: CheckCommand, path: str) -> Any:
        runs.append(path)
        if len(runs) == 4:
            raise stop
        return ran(self, path)

    monkeypatch.setattr(CheckCommand, "__call__", stopped)
    out = model.with_name("small.onnx")
    command = ["--check", check("sys.exit('Mystery' in ops)"), "-o", str(out), "--quiet"]
    assert cli.main(["debug", "reduce", str(model), *command]) == code
    assert f"{out}: " in capsys.readouterr().out
    assert 1 < len(ops_of(out)) < len(ops_of(model))
    assert "Mystery" in ops_of(out)


def test_the_fewest_of_any_set() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        wanted = set(rng.choice(count, min(count, 3), replace=False).tolist())
        *_, last = [tuple(range(count)), *fewest(count, lambda kept: wanted <= set(kept))]  # noqa: B023
        assert set(last) == wanted


def test_shapes_are_frozen_where_they_are_known(model: Path) -> None:
    whole = WholeModel(onnx.load(model), cuts_of(onnx.load(model), [("g", np.array([2, 6, 4]))]))
    at = next(i for i, n in enumerate(whole.nodes) if n.op_type == "Reshape")
    part = whole.part([at])
    assert part is not None
    assert [v.name for v in part.graph.input] == ["c"]
    ran = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = ran.run(None, {"c": np.zeros((2, 4, 6), np.float32)})
    assert y.shape == (2, 6, 4)


def test_what_a_branch_reads_of_the_graph_around_it_is_an_input() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> branch (float[n] x, bool b) => (float[n] y) {
        a = Relu (x) c = Neg (x)
        y = If (b) <then_branch = t () => (float[n] p) { p = Exp (a) },
                    else_branch = e () => (float[n] q) { q = Identity (c) }> }"""
    found = onnx.parser.parse_model(text)
    part = WholeModel(found, cuts_of(found)).part([2])
    assert part is not None
    assert {v.name for v in part.graph.input} == {"a", "b", "c"}


def test_a_part_that_needs_what_nobody_knows_is_none(model: Path) -> None:
    found = onnx.load(model)
    assert WholeModel(found).part([len(found.graph.node) - 2]) is None


def test_functions_stay_with_those_that_call_them() -> None:
    body = [helper.make_node("Relu", ["x"], ["y"])]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", name, ["x"], ["y"], body, opsets[:1]) for name in ("F", "G")
    ]
    nodes = [
        helper.make_node(op, [a], [b], domain="own")
        for op, a, b in (("F", "x", "t"), ("G", "t", "y"))
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    made = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)
    part = WholeModel(made, cuts_of(made)).part([1])
    assert part is not None
    assert [f.name for f in part.functions] == ["G"]


def test_inputs_of_a_model(model: Path) -> None:
    found = inputs_of(str(model))
    assert found is not None
    assert [(io.name, str(io.shape[0]), io.shape[1:]) for io in found] == [("x", "n", (4, 6))]
