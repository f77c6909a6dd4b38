"""TensorRT's own plugins, by the registry and by the parser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_plugins import CircularPad, Creator, registered
from trt_runs import built, run

from tactix_tensorrt import api as trt
from tactix_trtops import operators

F32 = np.float32
BOXES = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6], [0, 0, 1, 9]]], F32)
SCORES = np.array([[[0.9, 0.1], [0.8, 0.0], [0.3, 0.7], [0.2, 0.2]]], F32)
FIELDS = {"score_threshold": 0.25, "iou_threshold": 0.5, "max_output_boxes": 3, "box_coding": 0}
FOUND = {
    "num_detections": np.array([[3]], np.int32),
    "boxes": BOXES[:, [0, 2, 2]],
    "scores": np.array([[0.9, 0.7, 0.3]], F32),
    "classes": np.array([[0, 1, 0]], np.int32),
}


@pytest.fixture
def registry() -> trt.IPluginRegistry:
    """With TensorRT's own plugins."""
    assert trt.init_libnvinfer_plugins(None, "")
    return trt.get_plugin_registry()


def collection(fields: dict[str, Any]) -> trt.PluginFieldCollection:
    out = []
    for name, value in fields.items():
        is_float = np.asarray(value).dtype.kind == "f"
        kind = trt.PluginFieldType.FLOAT32 if is_float else trt.PluginFieldType.INT32
        out.append(trt.PluginField(name, np.array(value, F32 if is_float else np.int32), kind))
    return trt.PluginFieldCollection(out)


def inputs(network: trt.INetworkDefinition, **arrays: Any) -> list[trt.ITensor]:
    return [network.add_input(name, trt.float32, a.shape) for name, a in arrays.items()]


def test_a_creator_gives_a_plugin_that_a_network_takes(
    registry: trt.IPluginRegistry, network: trt.INetworkDefinition, config: Any, logger: Kept
) -> None:
    creator = registry.get_plugin_creator("EfficientNMS_TRT", "1", "")
    names = [f.name for f in creator.field_names]
    assert names[:3] == ["score_threshold", "iou_threshold", "max_output_boxes"]
    assert creator in registry.plugin_creator_list
    plugin = creator.create_plugin("nms", collection({**FIELDS, "unknown": 1}))
    assert (plugin.plugin_type, plugin.plugin_version, plugin.num_outputs) == (
        "EfficientNMS_TRT",
        "1",
        4,
    )
    layer = network.add_plugin_v2(inputs(network, b=BOXES, s=SCORES), plugin)
    assert tuple(layer.get_output(1).shape) == (1, 3, 4)
    assert layer.get_output(3).dtype == trt.int32
    for i, name in enumerate(FOUND):
        layer.get_output(i).name = name
        network.mark_output(layer.get_output(i))
    got = run(built(network, config, logger), {"b": BOXES, "s": SCORES})
    for name, want in FOUND.items():
        assert got[name].dtype == want.dtype
        np.testing.assert_allclose(got[name], want, rtol=1e-6)


def test_plugins_of_version_3_and_fields_that_are_bytes(
    registry: trt.IPluginRegistry, network: trt.INetworkDefinition, config: Any, logger: Kept
) -> None:
    creator = registry.get_creator("InstanceNormalization_TRT", "3", "")
    scale, bias = np.array([2.0, 1.0], F32), np.array([0.5, 0.0], F32)
    given = [
        trt.PluginField("epsilon", np.array([1e-5], F32), trt.PluginFieldType.FLOAT32),
        trt.PluginField("scales", scale.tobytes()),
        trt.PluginField("bias", bias, trt.PluginFieldType.FLOAT32),
    ]
    plugin = creator.create_plugin("n", trt.PluginFieldCollection(given), trt.TensorRTPhase.BUILD)
    x = np.random.default_rng(2).standard_normal((1, 2, 3, 4)).astype(F32)
    layer = network.add_plugin_v3(inputs(network, x=x), [], plugin)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    flat = x.reshape(1, 2, -1)
    want = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + 1e-5)
    want = (want * scale[:, None] + bias[:, None]).reshape(x.shape)
    got = run(built(network, config, logger), {"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_plugin_that_lacks_a_field_builds_nothing(
    registry: trt.IPluginRegistry, network: trt.INetworkDefinition, config: Any, logger: Kept
) -> None:
    creator = registry.get_creator("InstanceNormalization_TRT", "1", "")
    plugin = creator.create_plugin("n", trt.PluginFieldCollection())
    layer = network.add_plugin_v2(inputs(network, x=np.zeros((1, 2, 3, 3), F32)), plugin)
    network.mark_output(layer.get_output(0))
    assert network.builder.build_serialized_network(network, config) is None
    assert any("scales is missing" in line for line in logger.errors)


def test_every_plugin_of_its_own_has_a_creator(registry: trt.IPluginRegistry) -> None:
    for o in operators():
        for name in o.own:
            creator = registry.get_creator(name, o.versions[-1], "")
            assert {f.name for f in creator.field_names} == set(o.fields)
    assert registry.get_creator("GridSampler", "1", "") is None  # a name of exporters
    count = len(registry.all_creators)
    assert trt.init_libnvinfer_plugins(None, "")
    assert len(registry.all_creators) == count
    split = registry.get_creator("Split", "1", "")
    assert split.create_plugin("s", collection({"output_lengths": [1, 2, 3]})).num_outputs == 3


def model(op: str, domain: str, **attributes: object) -> bytes:
    """y of boxes and scores, and what else a plugin gives."""
    out = ["num_detections", "boxes", "scores", "classes"]
    node = helper.make_node(op, ["b", "s"], out, domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
        for n, a in (("b", BOXES), ("s", SCORES))
    ]
    graph = helper.make_graph(
        [node], "net", given, [helper.make_empty_tensor_value_info(n) for n in out]
    )
    opsets = [helper.make_opsetid(d, 16 if not d else 1) for d in {"", domain}]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("domain", ["", "TRT", "of.somebody"])
def test_the_parser_reads_them_in_any_domain(
    registry: trt.IPluginRegistry,
    network: trt.INetworkDefinition,
    config: Any,
    logger: Kept,
    domain: str,
) -> None:
    parser = trt.OnnxParser(network, logger)
    assert parser.supports_operator("EfficientNMS_TRT")
    assert parser.parse(model("EfficientNMS_TRT", domain, **FIELDS)), logger.errors
    got = run(built(network, config, logger), {"b": BOXES, "s": SCORES})
    for name, want in FOUND.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-6)


def test_a_programs_own_plugin_comes_before_what_exporters_call_so(
    network: trt.INetworkDefinition, logger: Kept
) -> None:
    class GridSampler(CircularPad):
        pass

    fields = trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)
    node = helper.make_node("GridSampler", ["x"], ["y"], pads=[1, 2])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    graph = helper.make_graph([node], "net", [x], [helper.make_empty_tensor_value_info("y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    with registered(Creator(GridSampler, fields)):
        assert trt.OnnxParser(network, logger).parse(made.SerializeToString()), logger.errors
        assert network.get_layer(0).type is trt.LayerType.PLUGIN_V3
