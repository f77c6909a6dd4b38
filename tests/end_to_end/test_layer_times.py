"""The cases of ``tests/benchmarks/layers.py``, and that the script runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import layers
from layer_cases import UNMEASURED, Case, cases

from tactix import Session


def test_names_are_unique_and_many() -> None:
    assert [n for n, count in Counter(c.name for c in cases()).items() if count > 1] == []
    assert len(cases()) >= 300


def test_every_case_makes_a_model_of_one_layer() -> None:
    for case in cases():
        model = case.model()
        assert len(model.graph.node) == 1
        assert {v.name for v in model.graph.input} == set(case.feed())


def test_inputs_are_the_same_each_time() -> None:
    for case in cases()[::20]:
        first, again = case.feed(), case.feed()
        assert all(np.array_equal(first[k], again[k], equal_nan=True) for k in first)


def test_every_operator_is_measured_or_has_a_reason() -> None:
    """Those of com.microsoft count that tactix imports."""
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    kernels = state.get_all_opkernel_def()
    theirs = {(k.domain, k.op_name) for k in kernels if k.provider == "CPUExecutionProvider"}
    names = {f"{d}::{n}" if d else n for d, n in theirs}
    counted = {n for n in names if not n.startswith("com.microsoft") or n in imported()}
    measured = {c.op for c in cases()}
    excused = {n for names in UNMEASURED.values() for n in names.split()}
    assert counted - measured - excused == set()
    assert measured & excused == set()


def imported() -> set[str]:
    """The operators that tactix knows, without their versions."""
    session = Session(discover=True)
    keys = {k for layer in session.layers.values() for k in getattr(layer, "imports", ())}
    keys |= set(session.converters)
    return {k.removeprefix("onnx:").partition("@")[0] for k in keys}


@pytest.mark.compiler
def test_the_script_prints_a_table_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    page = tmp_path / "page.md"
    names = "Relu f32[[]7,33,129];ArgMax last axis f32*"
    quick = ["--rounds", "1", "--seconds", "0", "--level", "0"]
    assert layers.main(["--only", names, *quick, "--write", str(page)]) == 0
    said = capsys.readouterr().out
    assert said.count("| `Relu f32[7,33,129]` |") == 1
    assert "| functions | 1 |" in said
    assert "ArgMax last axis f32[64,1000]" in page.read_text()
    assert layers.main(["--only", "no such case"]) == 2


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (np.array([1.0, 2.0], np.float32), ""),
        (np.array([1.0, 2.1], np.float32), "off by"),
        (np.array([1.0, np.nan], np.float32), "off by inf"),
        (np.array([1.0], np.float32), "output 0 is"),
        (np.array([1.0, 2.0], np.float16), "output 0 is"),
    ],
)
def test_wrong_results_are_told(got: np.ndarray, says: str) -> None:
    found = layers.difference(Case("Relu", ()), [got], [np.array([1.0, 2.0], np.float32)])
    assert says in found if says else not found


def test_what_onnx_runtime_departs_from_is_told_in_words() -> None:
    row = layers.Row(Case("Resize", (), by_reference=True), 1e-5, 2e-5)
    assert "from which ONNX Runtime departs:\n\n- `Resize" in layers.summary([row])


def test_an_interrupt_keeps_the_rows_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(self: layers.Terms, case: Case) -> layers.Row:
        if case is cases()[2]:
            raise KeyboardInterrupt
        return layers.Row(case, 1.0, 1.0)

    monkeypatch.setattr(layers.Terms, "row", row)
    found = layers.measure(cases()[:5], layers.Terms(1, 0, 1, 0.0), layers.KeptRows(None))
    assert len(found) == 2


def test_a_run_goes_on_where_another_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def row(self: layers.Terms, case: Case) -> layers.Row:
        asked.append(case.name)
        return layers.Row(case, float(len(asked)), 2.0, "wrong")

    monkeypatch.setattr(layers.Terms, "row", row)
    terms, path = layers.Terms(1, 0, 1, 0.0), tmp_path / "rows"
    first = layers.measure(cases()[:3], terms, layers.KeptRows(path))
    again = layers.measure(cases()[:5], terms, layers.KeptRows(path))
    assert again[:3] == first
    assert asked == [c.name for c in cases()[:5]]
    kept = layers.KeptRows(path, 1.0).rows  # of the ratios 0.5, 1, 1.5 and so on
    assert [*kept] == [c.name for c in cases()[:2]]
