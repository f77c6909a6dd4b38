"""A layer that two distributions provide: every tool that misses it names both, and the cure."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper, save

from tactix.plugins import loader
from tactix_tools.cli import main

BODY = """
from tactix_sdk import hookimpl, pointwise

@pointwise("acme.Swirl@1")
def swirl(x): return x * 2

@hookimpl
def tactix_layers(): return [swirl]
"""
TOLD = (
    "layer 'acme.Swirl@1' is left out: it is provided by plugin 'acme' (acme-one 1.0) "
    "and by plugin 'acme' (acme-two 1.0)"
)
CURE = "Disable or uninstall one: TACTIX_DISABLE=acme-one or TACTIX_DISABLE=acme-two"
Text = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both are installed."""
    for name in ("acme_one", "acme_two"):
        (tmp_path / f"{name}.py").write_text(BODY)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        dist = name.replace("_", "-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tactix.build.v1]\nacme = {name}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    loader.reset_scan()
    importlib.invalidate_caches()
    yield
    loader.reset_scan()
    for name in ("acme_one", "acme_two"):
        sys.modules.pop(name, None)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Of the one layer."""
    node = helper.make_node("Swirl", ["x"], ["y"], name="swirled", domain="acme")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    path = tmp_path / "m.onnx"
    save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets), path)
    return str(path)


@pytest.mark.parametrize("key", ["acme.Swirl@1", "acme.Swirl"])
def test_why_names_both_packs(key: str, capsys: Text) -> None:
    assert main(["plugins", "why", key, "--json"]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["provided"], found["cure"]) == ([], "")
    assert [r["distribution"] for r in found["broken"]] == ["acme-one", "acme-two"]
    assert {(r["reason"], r["cure"]) for r in found["broken"]} == {(TOLD, CURE)}
    assert main(["plugins", "why", key]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"nobody provides {key}. acme (acme-one 1.0): {TOLD}. {CURE}")


def test_list_tells_a_clash_once(capsys: Text) -> None:
    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().out.count(TOLD) == 1


def test_another_key_of_theirs_is_only_missing(capsys: Text) -> None:
    assert main(["plugins", "why", "acme.Twirl@1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] == []


def test_a_build_that_needs_the_layer_names_the_clash(model: str, capsys: Text) -> None:
    assert main(["build", model, "--json"]) != 0
    error = json.loads(capsys.readouterr().out)["error"]
    assert "acme-one 1.0" in str(error)
    assert CURE in str(error)
    assert "Install a pack" not in str(error)


def test_inspect_names_the_clash(model: str, capsys: Text) -> None:
    main(["inspect", model, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["packs_not_in_use"] == {"acme": f"{TOLD}. {CURE}"}
    (row,) = found["refused"]
    assert row["reason"] == f"no plugin in use provides it: {TOLD}"
    assert row["do"] == CURE
