"""The programs in examples/tensorrt run without a GPU, and find what ONNX Runtime and numpy find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "tensorrt"
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, str(FOLDER / "models.py"), str(folder)], check=True)
    return folder


def run(program: str, model: Path) -> tuple[Arrays, str]:
    """What it saved, and what it printed."""
    saved = model.with_name(f"{program}.npz")
    flags = ["--level", "0", "--output", str(saved)]
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "tactix_tensorrt",
            str(FOLDER / f"{program}.py"),
            str(model),
            *flags,
        ],
        env={**os.environ, "TACTIX_TENSORRT_DEVICE": "cpu"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    with np.load(saved) as arrays:
        return dict(arrays), found.stdout


def expected(model: Path | bytes, inputs: Arrays) -> Arrays:
    """ONNX Runtime's outputs by name."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model))
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def part(arrays: Arrays, index: int) -> Arrays:
    """Those of one run of several."""
    start = f"{index}."
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}


def hold(found: Arrays, wanted: Arrays) -> None:
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_detector_is_built_once_and_gives_boxes(models: Path) -> None:
    model = models / "detector.onnx"
    found, told = run("detector", model)
    hold(found, expected(model, {"images": found["images"]}))
    assert len(found["boxes"]) == len(told.splitlines()) > 0
    assert (np.diff(found["boxes"][:, 4]) <= 0).all()
    engine = model.with_suffix(".engine")
    written = engine.stat().st_mtime_ns
    again, _ = run("detector", model)
    np.testing.assert_array_equal(again["boxes"], found["boxes"])
    assert engine.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("program", "model", "inputs", "runs"),
    [
        ("question_answering", "reader", ("input_ids", "attention_mask"), 2),
        ("dynamic_batch", "classifier", ("images",), 3),
        ("data_dependent", "selector", ("signal",), 3),
        ("profiles", "classifier", ("images",), 3),
    ],
)
def test_each_run_gives_what_onnx_runtime_gives(
    models: Path, program: str, model: str, inputs: tuple[str, ...], runs: int
) -> None:
    path = models / f"{model}.onnx"
    found, told = run(program, path)
    for i in range(runs):
        arrays = part(found, i)
        hold(arrays, expected(path, {name: arrays[name] for name in inputs}))
    assert len(told.splitlines()) >= runs


def test_batches_on_two_streams_are_in_order(models: Path) -> None:
    path = models / "classifier.onnx"
    found, _ = run("streams", path)
    for images, scores in zip(found["images"], found["scores"], strict=True):
        hold({"scores": scores}, expected(path, {"images": images}))


def test_a_refit_changes_the_weights_of_the_model(models: Path) -> None:
    path = models / "classifier.onnx"
    found, _ = run("refit", path)
    hold({"scores": found["before"]}, expected(path, {"images": found["images"]}))
    model = onnx.load(path)
    for weight in model.graph.initializer:
        if weight.name in found:
            weight.CopyFrom(numpy_helper.from_array(found[weight.name], weight.name))
    changed = expected(model.SerializeToString(), {"images": found["images"]})
    hold({"scores": found["after"]}, changed)
    assert not np.allclose(found["before"], found["after"])


def test_a_plugin_pads_for_a_network_and_for_a_model(models: Path) -> None:
    path = models / "panorama.onnx"
    found, _ = run("circular_pad", path)
    padded = np.pad(found["images"], [(0, 0), (0, 0), (0, 0), (1, 1)], "wrap")
    np.testing.assert_array_equal(found["padded"], padded)
    model = onnx.load(path)
    (node,) = (n for n in model.graph.node if n.domain)
    model.graph.node.remove(node)
    model.graph.input[0].CopyFrom(
        onnx.helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, padded.shape)
    )
    hold(found, expected(model.SerializeToString(), {node.output[0]: padded}))


def test_a_quick_plugin_follows_a_model(models: Path) -> None:
    path = models / "filters.onnx"
    found, told = run("snake", path)
    for i in range(2):
        arrays = part(found, i)
        x = expected(path, {"signal": arrays["signal"]})["bands"]
        hold(arrays, {"activated": x + np.sin(0.5 * x) ** 2 / 0.5})
    assert len(told.splitlines()) == 2


def test_int8_by_samples_and_by_the_scales_that_were_kept(models: Path) -> None:
    path = models / "classifier.onnx"
    found, told = run("int8", path)
    hold({"scores": found["floats"]}, expected(path, {"images": found["images"]}))
    assert "calibrated: 8 batches" in told
    assert "cached: 0 batches" in told
    assert "classifier.cache: TRT-8401-EntropyCalibration2" in told
    np.testing.assert_array_equal(found["calibrated"], found["cached"])
    error = np.abs(found["calibrated"] - found["floats"]).max()
    assert error < 0.1 * np.abs(found["floats"]).max()
