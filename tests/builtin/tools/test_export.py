"""``tactix export``: files that other programs read, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tactix
from tactix.plan import container
from tactix_tools import cli


def saved(path: Path, *layers: tuple[str, dict[str, Any]]) -> tactix.Plan:
    """A plan of a product and some more layers in a row."""
    builder = tactix.Builder()
    net = builder.create_network("small")
    w = net.add_constant(np.random.default_rng(0).standard_normal((5, 4), np.float32), "w")
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("n", 5)), w], name="product")
    for layer, attrs in layers:
        (y,) = net.add_layer(f"tactix.{layer}", [y], **attrs)
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    plan = builder.build_plan(net, config)
    container.save(plan, path)
    return plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "small.plan"
    saved(path, ("Relu", {}), ("Softmax", {}))
    return path


def test_onnx(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    assert cli.main(["export", str(plan), "--onnx", "-o", str(out)]) == 0
    assert "operator set" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((3, 5), np.float32)
    want = tactix.load(plan, on_untrusted="allow")(x)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5)


def test_layers_without_operators_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "custom.plan"
    saved(path, ("CastToExponent", {}), ("Cast", {"to": tactix.DType.FP32}))
    model = path.with_suffix(".onnx")  # that the plan was built from, as a rule
    model.write_bytes(b"model")
    assert cli.main(["export", str(path), "--onnx"]) == 0
    assert model.read_bytes() == b"model"
    assert "tactix.CastToExponent@1 (1)" in capsys.readouterr().out
    assert cli.main(["export", str(path), "--onnx", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["written"][0]["custom"] == {"tactix.CastToExponent@1": 1}
    assert onnx.load(facts["written"][0]["output"]).graph.output[0].name == "y"


def test_layers(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    assert cli.main(["export", str(plan), "--layers-json", "-o", str(out)]) == 0
    told = json.loads(out.read_text())
    first = told["Layers"][0]
    assert told["Bindings"] == ["x", "y"]
    assert first["LayerType"] == "MatrixMultiply"
    assert first["Inputs"][0]["Dimensions"] == [-1, 5]
    assert first["Inputs"][0]["Format/Datatype"] == "Row major linear FP32"
    assert first["Metadata"].startswith("[ONNX Layer: product]")
    assert first["Weights"]["Type"] == "Float"


def test_layers_at_a_shape(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    given = ["--layers-json", "-o", str(out), "--shapes", "x:3x5"]
    assert cli.main(["export", str(plan), *given]) == 0
    tensors = [t for x in json.loads(out.read_text())["Layers"] for t in x["Inputs"]]
    assert {t["Dimensions"][0] for t in tensors} == {3}


def test_nothing_says_what_to_write(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(plan)]) == cli.USAGE
    assert "Give --onnx, --layers-json or --c" in capsys.readouterr().err


def test_a_model_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    assert cli.main(["export", str(path), "--onnx"]) == cli.USAGE
    assert "tactix build" in capsys.readouterr().err


def test_both_forms_at_once(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["export", str(plan), "--onnx", "--layers-json"]
    assert cli.main([*both, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [w["form"] for w in told["written"]] == ["onnx", "layers-json"]
    files = [Path(w["output"]) for w in told["written"]]
    assert files == [plan.with_suffix(".opt.onnx"), plan.with_suffix(".layers.json")]
    assert all(f.stat().st_size for f in files)
    assert cli.main([*both, "-o", str(plan.with_name("one"))]) == cli.USAGE
    assert "two forms are no one file" in capsys.readouterr().err
