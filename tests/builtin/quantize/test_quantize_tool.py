"""``tactix quantize`` on a network that was trained: files that others read, drops of accuracy,
layers that stay float.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import quantized_networks as networks
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix_tools import cli
from tactix_tools.quantize import left_float

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
HALF = 128
"""Held-out images that serve as samples; accuracy is measured on others."""
METRIC = """\
import numpy as np
labels = np.load({labels!r})
def metric(outputs, inputs):
    return (np.concatenate([o["logits"] for o in outputs]).argmax(1) == labels).mean()
"""


@pytest.fixture(scope="module")
def images() -> Array:
    return np.load(DIGITS / "digits_test.npz")["images"]


@pytest.fixture(scope="module")
def labels() -> Array:
    return np.load(DIGITS / "digits_test.npz")["labels"]


@pytest.fixture
def samples(tmp_path: Path, images: Array) -> str:
    np.savez(tmp_path / "samples.npz", image=images[:HALF])
    return str(tmp_path / "samples.npz")


@pytest.fixture
def quantize(
    tmp_path: Path, samples: str, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict]:
    """Runs the tool to ``q.onnx``; what it tells."""

    def run(model: Path, *options: str) -> dict:
        out = str(tmp_path / "q.onnx")
        code = cli.main(["quantize", str(model), "--data", samples, "-o", out, "--json", *options])
        told = capsys.readouterr().out
        assert code == 0, told
        return json.loads(told)

    return run


def accuracy(model: Path | str, images: Array, labels: Array) -> float:
    engine = tactix.build(str(model), level=0, timing_cache=False)
    return float((engine(images).argmax(1) == labels).mean())


def kinds(path: Path) -> Counter[str]:
    return Counter(n.op_type for n in onnx.load(path).graph.node)


def with_outlier(path: Path, factor: float = 1e4) -> Path:
    """The same function with a channel between two layers that is much larger than the others:
    integers that hold it hold nothing else.
    """
    model = onnx.load(DIGITS / "digits.onnx")
    stored = {t.name: t for t in model.graph.initializer}
    by_name = {n.name: n for n in model.graph.node}
    norm, second = by_name["batch_norm_3"], by_name["conv2d_2"]
    for name, scale, at in (
        (norm.input[1], factor, np.s_[0]),
        (norm.input[2], factor, np.s_[0]),
        (second.input[1], 1 / factor, np.s_[:, 0]),
    ):
        array = numpy_helper.to_array(stored[name]).copy()
        array[at] *= scale
        stored[name].CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("options", [[], ["--symmetric"], ["--calibrator", "entropy2"]])
def test_a_trained_network_stays_as_good(
    quantize: Callable[..., dict],
    tmp_path: Path,
    images: Array,
    labels: Array,
    options: list[str],
) -> None:
    facts = quantize(DIGITS / "digits.onnx", *options)
    assert facts["quantized"] == facts["layers"] >= 4
    assert facts["bytes"] < facts["float_bytes"] / 2
    rest = images[HALF:], labels[HALF:]
    before = accuracy(DIGITS / "digits.onnx", *rest)
    assert accuracy(tmp_path / "q.onnx", *rest) >= before - 0.005


def test_onnxruntime_reads_the_file_and_agrees(
    quantize: Callable[..., dict], tmp_path: Path, images: Array
) -> None:
    """As it is written: on x86 without VNNI its fused products saturate pairs in 16 bits, and are
    off by a third of the largest result here.
    """
    ort = pytest.importorskip("onnxruntime")
    quantize(DIGITS / "digits.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(tmp_path / "q.onnx", options)
    found = session.run(None, {"image": images[:64]})[0]
    ours = tactix.build(str(tmp_path / "q.onnx"), level=0, timing_cache=False)(images[:64])
    assert np.abs(found - ours).max() < 0.05 * np.abs(ours).max()
    assert (found.argmax(1) == ours.argmax(1)).mean() > 0.98


def test_weights_of_seven_bits_are_exact_in_products_that_saturate(
    quantize: Callable[..., dict], tmp_path: Path, images: Array, labels: Array
) -> None:
    """ONNX Runtime with all its optimizations agrees on every processor then."""
    ort = pytest.importorskip("onnxruntime")
    facts = quantize(DIGITS / "digits.onnx", "--reduce-range")
    assert facts["quantized"] == facts["layers"] >= 4
    made = onnx.load(tmp_path / "q.onnx").graph.initializer
    weights = [
        w for t in made if (w := onnx.numpy_helper.to_array(t)).dtype == np.int8 and w.ndim > 1
    ]
    assert len(weights) == facts["quantized"]
    assert all(np.abs(w.astype(int)).max() == 64 for w in weights)
    found = ort.InferenceSession(tmp_path / "q.onnx").run(None, {"image": images[:64]})[0]
    ours = tactix.build(str(tmp_path / "q.onnx"), level=0, timing_cache=False)(images[:64])
    assert np.abs(found - ours).max() < 0.05 * np.abs(ours).max()
    rest = images[HALF:], labels[HALF:]
    before = accuracy(DIGITS / "digits.onnx", *rest)
    assert accuracy(tmp_path / "q.onnx", *rest) >= before - 0.005


def test_a_layer_that_integers_ruin_stays_float(
    quantize: Callable[..., dict], tmp_path: Path, images: Array, labels: Array
) -> None:
    model = with_outlier(tmp_path / "outlier.onnx")
    np.save(tmp_path / "labels.npy", labels[:HALF])
    script = tmp_path / "metric.py"
    script.write_text(METRIC.format(labels=str(tmp_path / "labels.npy")))
    rest = images[HALF:], labels[HALF:]
    before = accuracy(model, *rest)
    quantize(model)
    assert accuracy(tmp_path / "q.onnx", *rest) < before - 0.1
    facts = quantize(
        model, "--max-drop", "0.005", "--metric", str(script), "--picture", str(tmp_path / "p.svg")
    )
    assert facts["quantized"] == facts["layers"] - 1
    assert facts["float_layers"] == [next(iter(facts["losses"]))]
    assert facts["drop"] <= 0.005 < facts["trials"][0]["drop"]
    assert accuracy(tmp_path / "q.onnx", *rest) >= before - 0.01
    picture = (tmp_path / "p.svg").read_text()
    assert picture.count("<circle") == len(facts["trials"])
    assert picture.startswith("<svg")


def test_the_noise_of_outputs_is_the_metric_without_a_script(
    quantize: Callable[..., dict], tmp_path: Path
) -> None:
    model = with_outlier(tmp_path / "outlier.onnx")
    facts = quantize(model, "--max-drop", "0.01")
    assert facts["metric"] == 1
    assert facts["drop"] <= 0.01
    assert 1 <= len(facts["float_layers"]) < facts["layers"]


def test_excluded_layers_and_weights_with_one_scale(
    quantize: Callable[..., dict], tmp_path: Path
) -> None:
    model = onnx.load(DIGITS / "digits.onnx")
    names = [n.name for n in model.graph.node if n.op_type in ("Conv", "Gemm", "MatMul")]
    facts = quantize(DIGITS / "digits.onnx", "--exclude", names[0], "--per-tensor")
    assert (facts["quantized"], facts["layers"]) == (len(names) - 1, len(names))
    assert facts["stayed"] == {names[0]: "it is excluded"}
    made = onnx.load(tmp_path / "q.onnx")
    stored = {t.name: t for t in made.graph.initializer}
    by_name = {n.name: n for n in made.graph.node}
    assert by_name[names[0]].input[1] in stored
    scales = [n.input[1] for n in made.graph.node if n.op_type == "DequantizeLinear"]
    weights = [s for s in scales if s.startswith(model.graph.initializer[0].name.split("/")[0])]
    assert all(not stored[s].dims for s in weights)


def test_a_cache_needs_no_data(
    quantize: Callable[..., dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = str(tmp_path / "it.cache")
    quantize(DIGITS / "digits.onnx", "--cache", cache)
    first = (tmp_path / "q.onnx").read_bytes()
    model = str(DIGITS / "digits.onnx")
    again = str(tmp_path / "again.onnx")
    assert cli.main(["quantize", model, "--cache", cache, "-o", again, "--json"]) == 0
    assert (tmp_path / "again.onnx").read_bytes() == first
    assert kinds(tmp_path / "again.onnx")["QuantizeLinear"] >= 3


def test_a_layer_whose_weights_are_not_finite_stays_float(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(DIGITS / "digits.onnx")
    last = [n for n in model.graph.node if n.op_type in ("Gemm", "MatMul")][-1]
    stored = next(t for t in model.graph.initializer if t.name == last.input[1])
    array = numpy_helper.to_array(stored).copy()
    array[0, 0] = np.nan
    stored.CopyFrom(numpy_helper.from_array(array, stored.name))
    onnx.save(model, tmp_path / "nan.onnx")
    out = str(tmp_path / "q.onnx")
    assert cli.main(["quantize", str(tmp_path / "nan.onnx"), "--random", "1", "-o", out]) == 0
    said = f"layer '{last.name}' stays float: '{stored.name}' has values that are not finite"
    assert said in capsys.readouterr().err
    made = {n.name: n for n in onnx.load(out).graph.node}
    assert made[last.name].input[1] == stored.name


def test_random_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "q.onnx")
    assert cli.main(["quantize", str(DIGITS / "digits.onnx"), "--random", "2", "-o", out]) == 0
    told = capsys.readouterr()
    assert "layers read integers" in told.out
    assert "observe sample inputs" in told.err


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        ([], "give --data, --random", cli.USAGE),
        (["--data", ".", "--random", "3"], "contradict", cli.USAGE),
        (["--random", "1", "--metric", __file__], "for --max-drop", cli.USAGE),
        (["--weights", "int4", "--random", "1"], "--random is of no use: --weights", cli.USAGE),
        (["--random", "1", "--zero-points"], "for --weights", cli.USAGE),
        (["--weights", "int8", "--reduce-range"], "contradict each other", cli.USAGE),
        (
            ["--random", "1", "--precision", "fp8", "--reduce-range"],
            "for --precision int8",
            cli.USAGE,
        ),
        (
            ["--weights", "int4", "--exclude", "*"],
            "it has no product or table with constant",
            cli.USAGE,
        ),
        (["--random", "1", "--exclude", "nothing*"], "no layer fits --exclude", cli.USAGE),
        (["--random", "1", "--exclude", "*"], "there is nothing to quantise", cli.USAGE),
        (["--random", "1", "--max-drop", "nan"], "--max-drop takes a finite", cli.USAGE),
        (["--random", "1", "--cache", "/nowhere/c"], "another place with --cache", cli.USAGE),
        (
            ["--random", "1", "--max-drop", "1", "--picture", "/nowhere/p.svg"],
            "another place with --picture",
            cli.USAGE,
        ),
        (["--random", "1", "--calibrator", "middle"], "no calibrator 'middle'", cli.USAGE),
        (
            ["--random", "1", "--max-drop", "1", "--metric", __file__],
            "has no function metric",
            cli.USAGE,
        ),
    ],
)
def test_what_is_wrong_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
    code: int,
) -> None:
    out = tmp_path / "q.onnx"
    assert cli.main(["quantize", str(DIGITS / "digits.onnx"), "-o", str(out), *options]) == code
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("def metric(outputs, inputs):\n    return float('nan')\n", "the metric is nan"),
        ("def metric(outputs, inputs):\n    raise SystemExit(3)\n", "SystemExit: 3"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_metric_that_fails_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, said: str
) -> None:
    (tmp_path / "metric.py").write_text(script)
    assert cli.main(controlled(tmp_path)) == cli.USAGE
    assert said in capsys.readouterr().err


def test_a_metric_may_change_what_it_is_given_and_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "def metric(outputs, inputs):\n    inputs[0].clear()\n    print('hm')\n    return 1.0\n"
    )
    (tmp_path / "metric.py").write_text(script)
    assert cli.main([*controlled(tmp_path), "--json"]) == cli.OK
    told = capsys.readouterr()
    assert json.loads(told.out)["metric"] == 1
    assert "hm" in told.err


def controlled(folder: Path) -> list[str]:
    """Arguments for accuracy control by ``metric.py`` of a folder."""
    options = ["--random", "1", "--max-drop", "1", "--metric", str(folder / "metric.py")]
    return ["quantize", str(DIGITS / "digits.onnx"), "-o", str(folder / "q.onnx"), *options]


def test_a_quantised_model_is_refused(
    quantize: Callable[..., dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantize(DIGITS / "digits.onnx")
    again = ["quantize", str(tmp_path / "q.onnx"), "--random", "1"]
    assert cli.main([*again, "-o", str(tmp_path / "z.onnx")]) == cli.USAGE
    assert "quantised already" in capsys.readouterr().err


def with_computed_weights(path: Path) -> Path:
    """Products of many forms: weights that a Transpose and a factor compute, a Gemm with factors, a
    transposed convolution, and a product of two activations.
    """
    rng = np.random.default_rng(4)
    stored = {
        "half": np.float32(0.5),
        **{name: rng.standard_normal(shape, np.float32) for name, shape in WEIGHTS.items()},
    }
    nodes = [
        helper.make_node("Transpose", ["turned"], ["w"], "turn", perm=[1, 0]),
        helper.make_node("Mul", ["w", "half"], ["less"], "less"),
        helper.make_node("MatMul", ["x", "less"], ["a"], "first"),
        helper.make_node("Gemm", ["a", "g", "b"], ["c"], "second", alpha=0.5, beta=2.0),
        helper.make_node("Transpose", ["c"], ["t"], "over", perm=[1, 0]),
        helper.make_node("MatMul", ["t", "c"], ["p"], "both"),
        helper.make_node("Unsqueeze", ["p", "axes"], ["q"], "more"),
        helper.make_node("ConvTranspose", ["q", "k"], ["y"], "spread"),
    ]
    stored["axes"] = np.array([0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(np.asarray(a), name) for name, a in stored.items()]
    graph = helper.make_graph(nodes, "forms", [x], [y], held)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


WEIGHTS = {"turned": (8, 6), "g": (8, 5), "b": (5,), "k": (5, 2, 3)}


def test_weights_that_are_computed_and_factors_are_quantised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = with_computed_weights(tmp_path / "m.onnx"), str(tmp_path / "q.onnx")
    flags = ["quantize", str(model), "--random", "2", "-o", out]
    assert cli.main([*flags, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["quantized"], facts["layers"]) == (2, 4)
    assert facts["stayed"] == {
        "both": "its weights are not constant",
        "spread": "there is no ConvTranspose of integers",
    }
    assert kinds(Path(out))["Mul"] == 0
    x = np.random.default_rng(7).standard_normal((4, 6), np.float32)
    floats, whole = (tactix.build(str(m), level=0, timing_cache=False)(x) for m in (model, out))
    assert networks.decibels(whole, floats) > 15
    assert cli.main(flags) == 0
    told = capsys.readouterr().out
    assert "2 of 4 layers read integers" in told
    assert "both stays float: its weights are not constant" in told


def test_layers_that_stay_float_for_one_reason_are_one_line() -> None:
    many = {f"conv{i}": "there is none" for i in range(14)}
    said, alone = left_float({**many, "head": "it is excluded"})
    assert said.startswith("14 layers stay float: there is none (conv0, conv1, ")
    assert said.endswith("conv11, and 2 more, which --json names)")
    assert alone == "head stays float: it is excluded"


def test_weights_beside_the_file_are_counted(quantize: Callable[..., dict], tmp_path: Path) -> None:
    model = tmp_path / "outside.onnx"
    onnx.save(
        onnx.load(DIGITS / "digits.onnx"), model, save_as_external_data=True, size_threshold=0
    )
    beside = [f for f in tmp_path.iterdir() if f.suffix not in (".onnx", ".npz")]
    assert beside
    size = sum(f.stat().st_size for f in (model, *beside))
    assert quantize(model)["float_bytes"] == size > model.stat().st_size


@pytest.mark.parametrize("what", ["IR version", "opset"])
def test_a_model_that_is_too_new_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    model = onnx.load(DIGITS / "digits.onnx")
    if what == "opset":
        model.opset_import[0].version = 999
    else:
        model.ir_version = 999
    path = str(tmp_path / "new.onnx")
    onnx.save(model, path)
    assert cli.main(["quantize", path, "--random", "1"]) == cli.MODEL
    told = " ".join(capsys.readouterr().err.split())
    assert f"{path}: the model is of {what} 999" in told
