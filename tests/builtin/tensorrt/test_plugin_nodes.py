"""ONNX nodes that name a plugin; plugins before version 3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_plugins import CircularPad, Creator, at, registered
from trt_runs import built, run

from tactix_tensorrt import api as trt

Net = trt.INetworkDefinition
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
PADDED = np.pad(X, [(0, 0), (0, 0), (1, 2)], "wrap")


def model(op: str, domain: str = "", **attributes: object) -> bytes:
    """y = op(relu(x)), x: f32(2, 3, 4)."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node(op, ["r"], ["y"], "own", domain=domain, **attributes),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y])
    opsets = [helper.make_opsetid(d, 16 if not d else 1) for d in {"", domain}]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return made.SerializeToString()


class OldPad(trt.IPluginV2DynamicExt):
    """The last axis continued circularly, as a plugin before version 3."""

    def __init__(self, fields: Sequence[trt.PluginField] = ()) -> None:
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_type, self.plugin_version, self.plugin_namespace = "OldPad", "1", ""
        self.pads = next((f.data for f in fields if f.name == "pads"), np.zeros(2, np.int32))
        self.log: list[str] = []

    def initialize(self) -> None:
        self.log.append("initialize")

    def terminate(self) -> None:
        self.log.append("terminate")

    def get_output_datatype(self, index: int, types: list[trt.DataType]) -> trt.DataType:
        return types[0]

    def get_output_dimensions(self, index: int, inputs: list, builder: trt.IExprBuilder) -> object:
        out = trt.DimsExprs(inputs[0])
        more = builder.constant(int(self.pads.sum()))
        out[-1] = builder.operation(trt.DimensionOperation.SUM, out[-1], more)
        return out

    def supports_format_combination(self, pos: int, in_out: list, num_inputs: int) -> bool:
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == trt.float32

    def configure_plugin(self, inputs: list, outputs: list) -> None:
        self.log.append(f"configure {list(inputs[0].desc.dims)}")

    def serialize(self) -> str:
        return json.dumps(self.pads.tolist())

    def enqueue(
        self, given: list, made: list, inputs: list, outputs: list, workspace: int, stream: int
    ) -> None:
        x, y = at(inputs[0], given[0].dims, trt.float32), at(outputs[0], made[0].dims, trt.float32)
        y[...] = np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(self.pads)], "wrap")

    def clone(self) -> OldPad:
        out = OldPad()
        out.__dict__.update(self.__dict__)
        return out


class OldCreator(trt.IPluginCreator):
    def __init__(self) -> None:
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "OldPad", "1", ""
        empty = trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)
        self.field_names = trt.PluginFieldCollection([empty])
        self.made: list[OldPad] = []

    def create_plugin(self, name: str, fields: trt.PluginFieldCollection) -> OldPad:
        return OldPad(fields)

    def deserialize_plugin(self, name: str, data: bytes) -> OldPad:
        out = OldPad()
        out.pads = np.array(json.loads(data), np.int32)
        self.made.append(out)
        return out


def padding() -> Creator:
    return Creator(CircularPad, trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32))


@pytest.mark.parametrize("domain", ["", "acme"])
def test_a_node_becomes_the_plugin_of_its_name(
    network: Net, config: trt.IBuilderConfig, logger: Kept, domain: str
) -> None:
    with registered(padding()):
        parser = trt.OnnxParser(network, logger)
        assert parser.supports_operator("CircularPad")
        attributes = {"pads": [1, 2], "plugin_version": "1", "plugin_namespace": "", "other": 3}
        assert parser.parse(model("CircularPad", domain, **attributes)), logger.errors
        layer = network.get_layer(1)
        assert layer.type is trt.LayerType.PLUGIN_V3
        assert layer.plugin.pads.dtype == np.int32
        assert np.array_equal(run(built(network, config, logger), {"x": X})["y"], PADDED)


def test_a_node_becomes_a_plugin_before_version_3(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    creator = OldCreator()
    with registered(creator):
        assert trt.OnnxParser(network, logger).parse(model("OldPad", pads=[1, 2])), logger.errors
        assert network.get_layer(1).type is trt.LayerType.PLUGIN_V2
        got = run(built(network, config, logger), {"x": X})["y"]
    assert np.array_equal(got, PADDED)


def test_a_plugin_before_version_3_is_initialized_configured_and_terminated(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    creator = OldCreator()
    with registered(creator):
        pads = trt.PluginField("pads", np.array([1, 2], np.int32), trt.PluginFieldType.INT32)
        plugin = creator.create_plugin("pad", trt.PluginFieldCollection([pads]))
        layer = network.add_plugin_v2([network.add_input("x", trt.float32, (-1, 3, 4))], plugin)
        layer.get_output(0).name = "y"
        network.mark_output(layer.get_output(0))
        profile = network.builder.create_optimization_profile()
        profile.set_shape("x", (1, 3, 4), (2, 3, 4), (4, 3, 4))
        config.add_optimization_profile(profile)
        engine = built(network, config, logger)
        assert plugin.log == ["configure [-1, 3, 4]"]
        assert np.array_equal(run(engine, {"x": X})["y"], PADDED)
    log = creator.made[-1].log
    assert log[:2] == ["initialize", "configure [2, 3, 4]"]
    assert log[-1] == "terminate"


def test_a_field_has_the_type_that_its_creator_declares(network: Net, logger: Kept) -> None:
    kinds = {
        "text": (b"", trt.PluginFieldType.CHAR, "wrap", np.int8),
        "factor": (np.array([]), trt.PluginFieldType.FLOAT32, 0.5, np.float32),
        "count": (np.array([]), trt.PluginFieldType.INT32, 7, np.int32),
        "scales": (np.array([]), trt.PluginFieldType.FLOAT64, [1.0, 2.0], np.float64),
    }
    told: dict[str, object] = {}

    class Told(CircularPad):
        def __init__(self, fields: Sequence[trt.PluginField] = (), phase: object = None) -> None:
            super().__init__(fields, phase)
            told.update({f.name: f.data for f in fields})

    declared = [trt.PluginField(name, k[0], k[1]) for name, k in kinds.items()]
    with registered(Creator(Told, *declared)):
        attributes = {name: k[2] for name, k in kinds.items()}
        assert trt.OnnxParser(network, logger).parse(model("Told", **attributes)), logger.errors
    assert told["text"].tobytes() == b"wrap"
    assert told["scales"].tolist() == [1.0, 2.0]
    assert {name: told[name].dtype for name in kinds} == {
        n: np.dtype(k[3]) for n, k in kinds.items()
    }


def test_a_version_that_nobody_registered_is_an_error_of_the_parser(
    network: Net, logger: Kept
) -> None:
    with registered(padding()):
        parser = trt.OnnxParser(network, logger)
        assert not parser.parse(model("CircularPad", pads=[1, 2], plugin_version="2"))
    text = parser.get_error(0).desc()
    assert "CircularPad version 2" in text
    assert "registered: CircularPad 1" in text


def test_an_operator_that_tactix_has_is_no_plugin(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    creator = padding()
    creator.name = "Relu"
    with registered(creator):
        assert trt.OnnxParser(network, logger).parse(model("Relu")), logger.errors
    assert creator.made == []


def test_a_node_of_a_branch_becomes_the_plugin_of_its_name(network: Net, logger: Kept) -> None:
    def branch(*node: str, **attributes: object) -> onnx.GraphProto:
        own = helper.make_node(node[0], ["x"], ["b"], domain=node[1], **attributes)
        return helper.make_graph([own], node[0], [], [helper.make_empty_tensor_value_info("b")])

    branches = {
        "then_branch": branch("CircularPad", "acme", pads=[1, 2]),
        "else_branch": branch("Concat", "", axis=2),
    }
    branches["else_branch"].node[0].input.extend(["x"])
    node = helper.make_node("If", ["c"], ["y"], **branches)
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    graph = helper.make_graph([node], "net", [c, x], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 16), helper.make_opsetid("acme", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with registered(padding()):
        assert trt.OnnxParser(network, logger).parse(proto.SerializeToString()), logger.errors


def test_a_model_is_parsed_by_its_importer_alone(
    network: Net, logger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model("CircularPad", pads=[1, 2])
    for name in ("load_model", "load_model_from_string", "load", "load_from_string"):
        monkeypatch.delattr(onnx, name)
    with registered(padding()):
        assert trt.OnnxParser(network, logger).parse(source), logger.errors


def test_a_node_that_no_creator_has_is_not_supported(network: Net, logger: Kept) -> None:
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(model("CircularPad", pads=[1, 2]))
    assert parser.get_error(0).code() is trt.ErrorCode.UNSUPPORTED_NODE


AT_8_6 = """
import sys
sys.path.insert(0, sys.argv[1])
from test_plugin_nodes import OldCreator, model
from tactix_tensorrt import api as trt
from trt_logger import Kept

trt.get_plugin_registry().register_creator(OldCreator(), "")
logger = Kept()
network = trt.Builder(logger).create_network(1)
print(trt.__version__, trt.OnnxParser(network, logger).parse(model("OldPad", pads=[1, 2])))
"""


def test_a_node_becomes_a_plugin_at_the_level_of_tensorrt_8() -> None:
    made = subprocess.run(
        [sys.executable, "-c", AT_8_6, str(Path(__file__).parent)],
        env={**os.environ, "TACTIX_TENSORRT_LEVEL": "8.6"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.split() == ["8.6.1", "True"], made.stderr
