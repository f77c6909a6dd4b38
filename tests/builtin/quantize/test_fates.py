"""What became of each QuantizeLinear and DequantizeLinear, and why floats remain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix.config import BuilderConfig, ProfilingVerbosity
from tactix_quantize import fates
from tactix_quantize.fates import Fate
from tactix_tools import cli


class Graph:
    """A Q/DQ model of opset 21 that grows."""

    def __init__(self, **inputs: list[Any]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [
            helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()
        ]

    def constant(self, name: str, x: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_y"], name, **attrs))
        return f"{name}_y"

    def through(self, x: str, scale: Any = 0.05, dtype: Any = np.uint8, **attrs: Any) -> str:
        """``x`` quantised and back."""
        point = [
            self.constant(f"{x}_s", np.float32(scale)),
            self.constant(f"{x}_z", np.zeros_like(scale, dtype)),
        ]
        q = self.add("QuantizeLinear", f"{x}_q", x, *point, **attrs)
        return self.add("DequantizeLinear", f"{x}_dq", q, *point, **attrs)

    def weights(self, name: str, x: Array, scale: Any = 0.01, **attrs: Any) -> str:
        s = self.constant(f"{name}_s", np.float32(scale))
        return self.add("DequantizeLinear", name, self.constant(f"{name}_w", x), s, **attrs)

    def save(self, path: Path, *outputs: str) -> str:
        made = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs]
        graph = helper.make_graph(self.nodes, path.stem, self.inputs, made, self.constants)
        opset = [helper.make_opsetid("", 21)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
        return str(path)


def whole(*shape: int) -> Array:
    return np.random.default_rng(3).integers(-100, 100, shape).astype(np.int8)


def mixed(path: Path) -> str:
    """Products that become integers and such that do not, each for a reason of its own."""
    g = Graph(x=["n", 8, 6, 6])
    x = g.through("x")
    y = g.add("Conv", "conv", x, g.weights("wc", whole(8, 8, 1, 1), np.full(8, 0.01), axis=0))
    y = g.through(g.add("Relu", "relu", y))
    grouped = g.weights("wg", whole(8, 4, 3, 3))
    y = g.through(g.add("Conv", "groups", y, grouped, group=2), 0.5)
    y = g.add("Flatten", "flat", y)
    y = g.add("MatMul", "short", y, g.weights("ws", whole(128, 6).astype(np.int16)))
    return g.save(path, g.add("Softmax", "soft", g.through(y, np.full(6, 0.1), axis=1)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return mixed(tmp_path_factory.mktemp("fates") / "mixed.onnx")


@pytest.fixture(scope="module")
def plan(model: str) -> str:
    engine = tactix.build(model, level=0, timing_cache=False)
    path = str(Path(model).with_suffix(".plan"))
    engine.save(path)
    return path


def asked(capsys: pytest.CaptureFixture[str], path: str) -> dict[str, dict[str, Any]]:
    assert cli.main(["inspect", path, "--quantization", "--json"]) == 0
    return {row["node"]: row for row in json.loads(capsys.readouterr().out)["quantization"]}


def test_of_a_plan(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, plan)
    assert len(rows) == sum("QuantizeLinear" in n.op_type or "DequantizeLinear" in n.op_type
                            for n in onnx.load(plan.replace(".plan", ".onnx")).graph.node)  # fmt: skip
    assert {name: rows[name]["became"] for name in ("x_q", "x_dq", "wc", "relu_y_q")} == {
        "x_q": "alone", "x_dq": "integers", "wc": "integers", "relu_y_q": "fused",
    }  # fmt: skip
    assert rows["x_q"]["why"] == [
        "'x' comes from the caller: give the model bytes to save the step"
    ]
    assert rows["wc"]["scales"] == "(8)"
    assert rows["wc"]["parts"][0]["tactic"].startswith("tactix.")
    assert rows["wc"]["why"] == rows["x_dq"]["why"] == []


def test_a_constant_that_floats_read_says_why(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = asked(capsys, plan)["ws"]
    assert (row["became"], row["dtype"]) == ("constant", "i16")
    assert row["why"] == [
        "MatMul 'short': its weights are i16, not int8 or uint8: give them 8 bits",
    ]


def test_convolutions_without_a_kernel_of_bytes_say_so(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = asked(capsys, plan)
    assert rows["relu_y_dq"]["why"] == [f"Convolution 'groups': {fates.NO_KERNEL}"]
    assert (rows["relu_y_dq"]["became"], rows["wg"]["became"]) == ("fused", "constant")


def test_several_scales_of_an_activation_are_told(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = asked(capsys, plan)
    told = " ".join(rows["short_y_dq"]["why"])
    assert "give the tensor one scale" in told
    assert rows["short_y_dq"]["became"] == "fused"


def test_of_a_model_nothing_is_chosen(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, model)
    assert rows["wc"]["became"] == "integers"
    assert {p["tactic"] for row in rows.values() for p in row["parts"]} == {""}


def test_what_one_node_of_the_model_is_all_of_is_not_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = Graph(x=["n", 6])
    steps = [g.constant("s", np.float32(0.1)), g.constant("z", np.uint8(7))]
    w = [
        g.constant("w", whole(6, 4)),
        g.constant("t", np.float32(0.1)),
        g.constant("o", np.int8(0)),
    ]
    q = g.add("QuantizeLinear", "q", "x", *steps)
    q = g.add("QLinearMatMul", "product", q, *steps, *w, *steps)
    y = g.add("DequantizeLinear", "back", q, *steps)
    rows = asked(capsys, g.save(tmp_path / "m.onnx", g.add("Softmax", "soft", y)))
    became = [row["became"] for name, row in rows.items() if name.startswith("product")]
    assert became == ["integers", "integers", "fused"]


def test_who_quantises_as_it_runs_is_asked_for_no_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = Graph(x=["n", 6])
    made = ["q", "s", "z"]
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], made, "dynamic"))
    rows = asked(capsys, g.save(tmp_path / "m.onnx", g.add("DequantizeLinear", "back", *made)))
    assert [row["why"] for row in rows.values() if row["layer"] == "QuantizeLinear"] == [[]]


def test_weights_of_few_bits_stay_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = Graph(x=["n", 64])
    w = g.weights("w", whole(64, 8), np.full((2, 8), 0.1), axis=0, block_size=32)
    row = asked(capsys, g.save(tmp_path / "blocks.onnx", g.add("MatMul", "product", "x", w)))["w"]
    assert (row["became"], row["why"]) == ("packed", [])


def test_of_a_plan_that_was_calibrated(tmp_path: Path) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits"
    images = np.load(digits / "digits_test.npz")["images"][:32]
    engine = tactix.build(
        str(digits / "digits.onnx"), precision="int8", calibration=[images], level=0,
        timing_cache=False,
    )  # fmt: skip
    found = fates.of_plan(engine.plan)
    assert found
    assert all(isinstance(f, Fate) and f.became in fates.WAYS for f in found)
    assert any(f.became == "integers" for f in found)


def test_the_table_tells_each_reason_once(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", plan, "--quantization"]) == 0
    told = capsys.readouterr().out
    assert told.count("give them 8 bits") == 1
    assert "1 alone" in told


def test_a_model_without_them_and_a_plan_that_tells_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = Graph(x=["n", 3])
    path = g.save(tmp_path / "float.onnx", g.add("Relu", "relu", "x"))
    assert asked(capsys, path) == {}
    builder = tactix.Builder()
    config = BuilderConfig(
        timing_cache=False, builder_optimization_level=0,
        profiling_verbosity=ProfilingVerbosity.LAYER_NAMES_ONLY,
    )  # fmt: skip
    builder.build(builder.import_model(path), config).save(str(tmp_path / "quiet.plan"))
    assert cli.main(["inspect", str(tmp_path / "quiet.plan"), "--quantization"]) == 2
    assert "profiling verbosity" in capsys.readouterr().err
