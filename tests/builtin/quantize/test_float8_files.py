"""8-bit floats by sample data: files of ``tactix quantize --precision fp8``, which the standard's
reference computes as tactix does, builds with that precision, and what both are on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import quantized_networks as networks
from kept_log import KeptLog
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tactix
from tactix import BuilderConfig, BuilderFlag
from tactix.api import configure
from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.contracts.launcher import Step
from tactix_quantize.numbers import FLOATS8, INTEGERS
from tactix_tools import cli

WIDTH, ROWS = 48, 40
PRODUCTS = ("first", "second", "third")


def layered(path: Path, opset: int = 17) -> Path:
    """Gemm, Relu, MatMul, Add of what is before, MatMul; and a Conv that stays float."""
    rng = np.random.default_rng(2)
    shapes = {"a": (WIDTH, WIDTH), "b": (WIDTH, WIDTH), "c": (WIDTH, 16)}
    stored = {
        name: rng.standard_normal(s).astype(np.float32) / WIDTH**0.5 for name, s in shapes.items()
    }
    stored["bias"] = rng.standard_normal(WIDTH).astype(np.float32)
    stored["k"] = rng.standard_normal((1, 1, 3)).astype(np.float32)
    stored["middle"] = np.array([1])
    nodes = [
        helper.make_node("Gemm", ["x", "a", "bias"], ["h"], "first", transB=1),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "b"], ["m"], "second"),
        helper.make_node("Add", ["m", "h"], ["s"], "sum"),
        helper.make_node("MatMul", ["s", "c"], ["t"], "third"),
        helper.make_node("Unsqueeze", ["t", "middle"], ["u"], "more"),
        helper.make_node("Conv", ["u", "k"], ["y"], "spread", pads=[1, 1]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 16]),
    ]
    held = [numpy_helper.from_array(a, name) for name, a in stored.items()]
    graph = helper.make_graph(nodes, "layered", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def quantize(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict, onnx.ModelProto]]:
    """Runs the tool on ``layered``; what it tells, and the file, ``q.onnx``."""

    def run(*options: str) -> tuple[dict, onnx.ModelProto]:
        model, data, out = (tmp_path / n for n in ("m.onnx", "samples.npy", "q.onnx"))
        layered(model)
        np.save(data, rows(0))
        words = ["quantize", str(model), "--data", str(data), "-o", str(out), "--json", *options]
        code = cli.main(words)
        told = capsys.readouterr().out
        assert code == 0, told
        return json.loads(told), onnx.load(out)

    return run


def with_outlier(path: Path, factor: float = 1e3) -> Path:
    """``layered`` whose first input is much larger than the others, and its weights smaller."""
    model = onnx.load(layered(path))
    stored = next(t for t in model.graph.initializer if t.name == "a")
    array = numpy_helper.to_array(stored).copy()
    array[:, 0] /= factor
    stored.CopyFrom(numpy_helper.from_array(array, "a"))
    onnx.save(model, path)
    return path


def rows(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float32)


def computed(path: Path, x: Array) -> Array:
    return tactix.build(str(path), level=0, timing_cache=False)(x)


def test_the_file_is_standard_and_its_numbers_are_those_of_the_reference(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]], tmp_path: Path
) -> None:
    facts, made = quantize("--precision", "fp8")
    onnx.checker.check_model(made, full_check=True)
    assert made.ir_version >= 9
    assert [o.version for o in made.opset_import] == [19]
    assert (facts["precision"], facts["quantized"], facts["layers"]) == ("fp8", 3, 4)
    assert facts["stayed"] == {"spread": "there is no Convolution of 8-bit floats"}
    stored = {t.name: t for t in made.graph.initializer}
    by_name = {n.name: n for n in made.graph.node}
    makers = {n.output[0]: n for n in made.graph.node}
    for name in PRODUCTS:
        weights = makers[by_name[name].input[1]]
        assert stored[weights.input[0]].data_type == TensorProto.FLOAT8E4M3FN
        activations = makers[makers[by_name[name].input[0]].input[0]]
        assert activations.op_type == "QuantizeLinear"
        assert stored[activations.input[2]].data_type == TensorProto.FLOAT8E4M3FN
        assert not any(a.name == "saturate" and not a.i for a in activations.attribute)
    assert by_name["first"].input[2] == "bias"
    x = rows(1)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(computed(tmp_path / "q.onnx", x), wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["--precision", "fp8"], 25),
        (["--precision", "fp8", "--per-tensor"], 25),
        (["--precision", "fp8", "--calibrator", "entropy2"], 20),
        (["--precision", "int8"], 30),
    ],
)
def test_results_are_near_those_of_floats(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]],
    tmp_path: Path,
    options: list[str],
    least: float,
) -> None:
    quantize(*options)
    x = rows(1)
    found, wanted = (computed(tmp_path / name, x) for name in ("q.onnx", "m.onnx"))
    assert networks.decibels(found, wanted) > least


def test_floats_hold_small_numbers_beside_large_ones(tmp_path: Path) -> None:
    model, x = with_outlier(tmp_path / "m.onnx"), rows(1)
    noise = {}
    scaled = np.where(np.arange(WIDTH) == 0, np.float32(1e3), np.float32(1))
    np.save(tmp_path / "samples.npy", rows(0) * scaled)
    for name in ("int8", "fp8"):
        out = tmp_path / f"{name}.onnx"
        words = ["--data", str(tmp_path / "samples.npy"), "--precision", name, "-o", str(out)]
        assert cli.main(["quantize", str(model), *words]) == 0
        noise[name] = networks.decibels(computed(out, x * scaled), computed(model, x * scaled))
    assert noise["fp8"] > 20 > noise["int8"] + 5


def test_onnxruntime_agrees_where_it_keeps_the_relu(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]], tmp_path: Path
) -> None:
    """Its optimizer drops a Relu before QuantizeLinear, as if 8-bit floats had no sign."""
    ort = pytest.importorskip("onnxruntime")
    quantize("--precision", "fp8")
    session = ort.InferenceSession(
        str(tmp_path / "q.onnx"),
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ReluQuantRewrite"],
    )
    (wanted,) = session.run(None, {"x": rows(1)})
    np.testing.assert_allclose(computed(tmp_path / "q.onnx", rows(1)), wanted, atol=1e-4)


def test_a_cache_serves_integers_and_floats(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]], tmp_path: Path
) -> None:
    cache = ["--cache", str(tmp_path / "it.cache")]
    quantize("--precision", "int8", *cache)
    x = rows(1)
    _, made = quantize("--precision", "fp8", *cache)
    stored = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    assert stored["x/scale"] == pytest.approx(np.abs(rows(0)).max() / 448, rel=1e-5)
    assert networks.decibels(*(computed(tmp_path / f, x) for f in ("q.onnx", "m.onnx"))) > 25


def test_layers_stay_float_until_the_metric_is_good_enough(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]],
) -> None:
    facts, made = quantize("--precision", "fp8", "--max-drop", "1e-3")
    assert 1 <= len(facts["float_layers"]) < 3
    assert facts["drop"] <= 1e-3 < facts["trials"][0]["drop"]
    name = facts["float_layers"][0]
    assert facts["stayed"][name] == "8-bit floats lose too much there"
    by_name = {n.name: n for n in made.graph.node}
    assert by_name[name].input[1] in {t.name for t in made.graph.initializer}


def test_what_is_wrong_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(layered(tmp_path / "m.onnx"))
    for options, said in (
        (["--random", "1", "--symmetric"], "--symmetric is for --precision int8"),
        (["--weights", "int8"], "--precision and --weights contradict each other"),
        (["--random", "1", *(f"--exclude={n}" for n in PRODUCTS)], "it has no Gemm or MatMul"),
    ):
        assert cli.main(["quantize", model, "--precision", "fp8", *options]) == cli.USAGE
        assert said in " ".join(capsys.readouterr().err.split())


def test_looking_at_a_file_tells_who_computes_8_bit_floats(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    quantize("--precision", "fp8")
    assert cli.main(["inspect", str(tmp_path / "q.onnx"), "--quantization"]) == 0
    told = capsys.readouterr().out
    assert "have kernels on GPUs alone" in told
    assert "int8 ones" not in told


def test_an_opset_that_cannot_be_raised_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Scan of opset 8 has another meaning than those behind it."""
    model = onnx.load(layered(tmp_path / "m.onnx"))
    model.graph.node.append(helper.make_node("Scan", ["y"], ["z"], "old"))
    model.opset_import[0].version = 8
    onnx.save(model, tmp_path / "old.onnx")
    words = ["quantize", str(tmp_path / "old.onnx"), "--random", "1", "--precision", "fp8"]
    assert cli.main(words) == cli.MODEL
    told = " ".join(capsys.readouterr().err.split())
    assert "cannot be brought to 19" in told
    assert "Export it with a newer opset" in told


def test_numbers_of_weights_and_activations() -> None:
    """Zeros, one scale for all, and magnitudes at both ends."""
    w = np.array([[0, 0, 0], [-4, 1, 2], [1e-3, 5e3, 448]], np.float32)
    made = FLOATS8.weights(w, 0)
    assert made.stored.dtype == DType.FP8.numpy
    assert np.abs(made.stored.astype(np.float32)).max(1).tolist() == [0, 448, 448]
    assert made.scales == pytest.approx([1 / 448, 4 / 448, 5e3 / 448])
    assert FLOATS8.weights(w, 0, per_channel=False).scales == pytest.approx([5e3 / 448])
    scale = FLOATS8.scale(-2, 7, symmetric=False)
    assert (scale.zero, scale.dtype) == (0, DType.FP8)
    assert scale.scale == np.float32(7 / 448)
    assert FLOATS8.scale(0, 0, symmetric=True).scale == np.float32(1 / 448)
    x = np.array([-9, 0, 7, 99], np.float32)
    assert FLOATS8.rounded(x, scale).tolist() == pytest.approx([-7, 0, 7, 7])
    assert FLOATS8.bias(x, made.scales) is None
    whole = INTEGERS.rounded(x, INTEGERS.scale(-7, 7, symmetric=True))
    assert whole == pytest.approx([-7 * 128 / 127, 0, 7, 7])


def test_products_on_a_gpu_multiply_8_bits(
    quantize: Callable[..., tuple[dict, onnx.ModelProto]], tmp_path: Path
) -> None:
    quantize("--precision", "fp8", "--exclude", "third")
    steps = steps_for_a_gpu(tmp_path / "q.onnx", precision="fp16")
    assert products(steps) == ["tactix.cuda_hopper_float8_gemm@1"] * 2
    assert not [s.info["tactic"] for s in steps if "host" in s.info["tactic"]]


def test_a_build_calibrates_itself(tmp_path: Path) -> None:
    """Where 8 bits are faster, or layers are to read them; in float16 between, if that is said."""
    model = layered(tmp_path / "m.onnx")
    wishes = {"first": "fp8", "second": "fp8", "third": "fp32"}
    config = configure(
        precision="fp8", calibration=[{"x": rows(0)}], layer_precisions=wishes, **FOR_A_GPU
    )
    config.flags.add(BuilderFlag.FP16)
    log = KeptLog()
    builder = tactix.Builder(log)
    found = products(builder.build_plan(builder.import_model(str(model)), config).steps)
    assert found == ["tactix.cuda_hopper_float8_gemm@1"] * 2
    said = "2 of 4 products in fp8; 2 stay float"
    assert any(said in line for line in log.lines), log.lines


def test_a_build_for_a_processor_is_near_floats(tmp_path: Path) -> None:
    model = layered(tmp_path / "m.onnx")
    options = {"level": 0, "timing_cache": False, "precision": "fp8"}
    forced = {"second": "fp8"}
    engine = tactix.build(
        str(model), calibration=[{"x": rows(0)}], layer_precisions=forced, **options
    )
    kinds = {s.info["kind"] for s in engine.plan.steps}
    assert networks.decibels(engine(rows(1)), computed(model, rows(1))) > 25, kinds


def test_settings_that_contradict() -> None:
    flags = {BuilderFlag.INT8, BuilderFlag.FP8}
    with pytest.raises(ConfigError, match="INT8 and FP8 contradict each other"):
        BuilderConfig(flags=flags).check()
    with pytest.raises(ConfigError, match="EXACT_NUMERICS and FP8 contradict each other"):
        BuilderConfig(flags={BuilderFlag.EXACT_NUMERICS, BuilderFlag.FP8}).check()
    builder = tactix.Builder()
    with pytest.raises(ConfigError, match=r"BuilderFlag\.FP8 without a calibration"):
        builder.build_plan(networks.residual(builder), configure(precision="fp8", level=0))


FOR_A_GPU: dict[str, Any] = {
    "device": "tactix.cuda@1",
    "target": "sm_90a",
    "level": 0,
    "timing_cache": False,
}


def steps_for_a_gpu(model: Path, **options: Any) -> Sequence[Step]:
    """By estimates."""
    builder = tactix.Builder()
    config = configure(**FOR_A_GPU, **options)
    return builder.build_plan(builder.import_model(str(model)), config).steps


def products(steps: Iterable[Step]) -> list[str]:
    """Tactics of products of 8-bit floats."""
    return [s.info["tactic"] for s in steps if s.info["kind"] == "tactix.Float8MatMul@1"]
