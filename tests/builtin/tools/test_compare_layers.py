"""``tactix compare``: percentiles, providers, tensors on the way, tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tactix_inspect import model_tensors
from tactix_inspect.agreement import agree
from tactix_inspect.model_tensors import pieces
from tactix_tools import cli

TEXT = """<ir_version: 9, opset_import: ["" : 20]> chain (float[n, 6] x) => (float[n, 6] y) <float[6, 6] w> {
    a = MatMul (x, w) b = Softmax (a) c = MatMul (b, w) d = Softmax (c) y = MatMul (d, w) }"""

FAST = ["-O0", "--no-timing-cache"]

Compared = Callable[..., Any]


def saved(path: Path, seed: int = 0, scale: float = 1.0) -> str:
    model = onnx.parser.parse_model(TEXT)
    w = np.random.default_rng(seed).standard_normal((6, 6)).astype(np.float32) * scale
    model.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), "w"))
    onnx.save(model, path)
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and its plan."""
    folder = tmp_path_factory.mktemp("models")
    model, plan = saved(folder / "model.onnx"), str(folder / "model.plan")
    assert cli.main(["build", model, "-o", plan, "--quiet", *FAST]) == 0
    return model, plan


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Compared:
    def run(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert cli.main(["compare", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


def test_tensors_of_a_plan_and_the_model(files: tuple[str, str], compared: Compared) -> None:
    model, plan = files
    found = compared(plan, model, "--layers", "--shapes", "x:3x6")
    assert [r["output"] for r in found["layers"]] == ["a", "b", "c", "d", "y"]
    assert found["first_departure"] is None
    assert all(r["passed"] and r["cosine"] > 0.9999 for r in found["layers"])


def test_pieces_give_the_same(
    files: tuple[str, str], compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plan = files
    whole = compared(plan, model, "--layers")
    monkeypatch.setattr(model_tensors, "BUDGET", 1)
    assert compared(plan, model, "--layers") == whole
    assert compared(plan, plan, "--layers")["passed"]


def test_pieces_fit_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_tensors, "BUDGET", 10)
    names, sizes = list("abcdef"), {"a": 4, "b": 6, "c": 1, "d": 99, "f": 3}
    assert list(pieces(names, sizes)) == [["a", "b"], ["c"], ["d"], ["e", "f"]]


def test_the_first_departure_is_told(
    files: tuple[str, str], tmp_path: Path, compared: Compared, capsys: pytest.CaptureFixture[str]
) -> None:
    other = saved(tmp_path / "other.onnx", scale=1.5)
    plan = str(tmp_path / "other.plan")
    assert cli.main(["build", other, "-o", plan, "--quiet", *FAST]) == 0
    found = compared(files[1], plan, "--layers", code=cli.MISMATCH)
    assert found["first_departure"] == "a"
    capsys.readouterr()
    cli.main(["compare", files[1], plan, "--layers"])
    assert "first departure: a" in capsys.readouterr().out


def test_nothing_on_the_way_is_no_success(
    files: tuple[str, str], tmp_path: Path, compared: Compared, capsys: pytest.CaptureFixture[str]
) -> None:
    nameless = str(tmp_path / "nameless.plan")
    build = ["build", files[0], "-o", nameless, "--quiet", "--profiling-verbosity", "none", *FAST]
    assert cli.main(build) == 0
    found = compared(nameless, files[0], "--layers", code=cli.MISMATCH)
    assert (found["layers"], found["passed"]) == ([], False)
    assert all(r["passed"] for r in found["outputs"])
    capsys.readouterr()
    assert cli.main(["compare", nameless, files[0], "--layers"]) == cli.MISMATCH
    assert "nothing on the way was compared" in capsys.readouterr().out
    assert compared(nameless, files[0])["passed"]


def test_a_cure_is_none_that_is_refused(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--against tactix-reference`` takes no ``--layers``."""
    other = onnx.load(files[0])
    other.graph.node[1].domain = "acme"
    onnx.save(other, tmp_path / "other.onnx")
    asked = ["compare", files[1], str(tmp_path / "other.onnx"), "--layers"]
    assert cli.main(asked) == cli.MISMATCH
    assert "--against tactix-reference, without --layers" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_table_of_all_rows(files: tuple[str, str], tmp_path: Path, compared: Compared) -> None:
    path = tmp_path / "rows.csv"
    found = compared(files[1], files[0], "--layers", "--csv", str(path))
    with path.open() as f:
        rows = list(csv.DictReader(f))
    assert [r["kind"] for r in rows] == ["output", *["layer"] * len(found["layers"])]
    assert [float(r["max_abs"]) for r in rows[1:]] == [r["max_abs"] for r in found["layers"]]


def test_a_provider_is_named(files: tuple[str, str], compared: Compared) -> None:
    found = compared(files[1], files[0], "--provider", "CPUExecutionProvider")
    assert found["outputs"][0]["peer"] == "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--provider", "NoExecutionProvider"], "ONNX Runtime has no NoExecutionProvider here"),
        (["--provider", "CPUExecutionProvider", "--against", "reference"], "Leave --provider out"),
        (["--layers", "--against", "tactix-reference"], "Leave --layers out"),
    ],
)
def test_what_does_not_go_together_is_refused(
    files: tuple[str, str], options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", files[1], files[0], *options]) == cli.USAGE
    assert told in capsys.readouterr().err


def test_a_provider_runs_no_plan(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--provider", "CPUExecutionProvider"]
    assert cli.main(["compare", files[1], files[1], *options]) == cli.USAGE
    assert "cannot run a plan" in capsys.readouterr().err


def test_percentiles_are_differences_that_are_there() -> None:
    want = np.zeros(100, np.float32)
    got = np.arange(1, 101, dtype=np.float32)
    found = agree("y", "peer", got, want, 1e-4, None)
    assert (found.p50, found.p90, found.p99, found.max_abs) == (51, 91, 100, 100)
    assert agree("y", "peer", want[:0], want[:0], 1e-4, None).p99 == 0
