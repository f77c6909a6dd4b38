"""The command line on damaged models: one message, and the exit code for models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx.helper import make_node
from onnx_hostile import laughs, model, nested_ifs

from tactix_tools.cli import MODEL, OTHER, main

LENET = Path(__file__).parents[2] / "models" / "lenet.onnx"

FILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"hello, world\n",
    "cut": lambda: LENET.read_bytes()[:1000],
    "a cycle": lambda: _bytes(model([make_node("Add", ["x", "y"], ["y"])])),
    "billion laughs": lambda: _bytes(laughs(30, 10)),
    "a wrong shape": lambda: _bytes(model([make_node("MatMul", ["x", "x"], ["y"])], {"x": [2, 3]})),
    "no text": lambda: _bytes(model([make_node("Relu", ["x"], ["y"])])).replace(
        b"Relu", b"\xff\xfe\xfd\xfc"
    ),
    "operator set 999": lambda: _bytes(model([make_node("Relu", ["x"], ["y"])], opset=999)),
    "an input twice": lambda: _bytes(_twice(model([make_node("Relu", ["x"], ["y"])]))),
    "deep": lambda: _bytes(nested_ifs(90)),
}


def _bytes(m: Any) -> bytes:
    return bytes(m.SerializeToString())


def _twice(m: Any) -> Any:
    m.graph.input.append(m.graph.input[0])
    return m


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_model_ends_with_the_code_for_models(
    name: str, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(FILES[name]())
    assert main(["build", str(path), "-o", str(tmp_path / "out.plan"), "--json"]) == MODEL
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert error["type"] in ("ModelImportError", "UnsupportedOperator")
    assert "Traceback" not in told.err
    assert not (tmp_path / "out.plan").exists()


@pytest.mark.parametrize("name", FILES)
def test_inspecting_a_damaged_model_ends_with_a_code_of_its_own(
    name: str, tmp_path: Path, capsys: Any
) -> None:
    """What is no model is an error; a model with a node that contradicts itself is described."""
    path = tmp_path / "model.onnx"
    path.write_bytes(FILES[name]())
    code = main(["inspect", str(path), "--json"])
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert code == (OTHER if name == "a wrong shape" else MODEL)
    assert ("refused" in document) == (code == OTHER)
    assert "Traceback" not in told.err
