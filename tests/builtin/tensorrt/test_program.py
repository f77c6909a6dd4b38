"""Programs as they are written against TensorRT 10, from a model to answers."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept

from tactix_tensorrt import api as trt

X = np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype(np.float32)


def answer(model: bytes, x: np.ndarray = X) -> np.ndarray:
    """ONNX Runtime's."""
    return onnxruntime.InferenceSession(model).run(None, {"x": x})[0]


def test_a_model_is_parsed_built_and_run_at_addresses_of_the_host(model: bytes) -> None:
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        raise AssertionError([parser.get_error(i) for i in range(parser.num_errors)])
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
    config.builder_optimization_level = 0
    if builder.platform_has_fast_fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    profile = builder.create_optimization_profile()
    profile.set_shape(network.get_input(0).name, (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)

    with trt.Runtime(logger) as runtime, runtime.deserialize_cuda_engine(plan) as engine:
        context = engine.create_execution_context()
        assert context.set_input_shape("x", X.shape)
        arrays = {}
        for i in range(engine.num_io_tensors):
            name = engine.get_tensor_name(i)
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                arrays[name] = np.ascontiguousarray(X, trt.nptype(engine.get_tensor_dtype(name)))
            else:
                shape = context.get_tensor_shape(name)
                assert trt.volume(shape) == 12
                arrays[name] = np.empty(shape, trt.nptype(engine.get_tensor_dtype(name)))
            context.set_tensor_address(name, arrays[name].ctypes.data)
        assert context.execute_async_v3(stream_handle=0)
    np.testing.assert_allclose(arrays["y"], answer(model), rtol=1e-3, atol=1e-3)


def test_execute_v2_asks_output_allocators_which_may_give_the_same_again(
    builder: trt.Builder, config: trt.IBuilderConfig, logger: Kept
) -> None:
    network = builder.create_network(0)
    found = network.add_non_zero(network.add_input("x", trt.float32, (4,))).get_output(0)
    found.name = "y"
    network.mark_output(found)
    plan = builder.build_serialized_network(network, config)
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)

    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory: list[np.ndarray] = []
            self.shape = trt.Dims()

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            if not self.memory or size > self.memory[-1].nbytes:
                self.memory.append(np.zeros(size, np.uint8))
                return self.memory[-1].ctypes.data
            return memory

        def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
            self.shape = shape

    context, allocator = engine.create_execution_context(), Allocator()
    context.set_output_allocator("y", allocator)
    unused = np.zeros(64, np.uint8)
    for numbers in ([1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1]):
        x = np.array(numbers, np.float32)
        assert context.execute_v2([x.ctypes.data, unused.ctypes.data]), logger.errors
        dtype, count = trt.nptype(engine.get_tensor_dtype("y")), allocator.shape.numel
        places = allocator.memory[-1].view(dtype)[:count].reshape(tuple(allocator.shape))
        np.testing.assert_array_equal(places.ravel(), np.flatnonzero(x))
    assert not unused.any()
    assert len(allocator.memory) == 2


def test_execute_v2_takes_pointers_in_the_order_of_tensors(
    engine: trt.ICudaEngine, model: bytes
) -> None:
    context = engine.create_execution_context()
    context.set_input_shape("x", X.shape)
    y = np.empty((3, 4), np.float32)
    assert context.execute_v2([X.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, answer(model), rtol=1e-4, atol=1e-5)


class Growing(trt.IOutputAllocator):
    """Gives host memory once a size is known."""

    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory = np.empty(0, np.uint8)
        self.shape: tuple[int, ...] = ()
        self.stream = -1

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):  # type: ignore[no-untyped-def]
        self.stream = stream
        self.memory = np.empty(size + alignment, np.uint8)
        return -(-self.memory.ctypes.data // alignment) * alignment

    def notify_shape(self, tensor_name, shape):  # type: ignore[no-untyped-def]
        self.shape = tuple(shape)


def test_an_output_allocator_is_asked_for_every_output(
    engine: trt.ICudaEngine, model: bytes
) -> None:
    context, allocator = engine.create_execution_context(), Growing()
    context.set_input_shape("x", X.shape)
    context.set_tensor_address("x", X.ctypes.data)
    assert context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(77)
    assert allocator.shape == (3, 4)
    assert allocator.stream == 77
    start = -allocator.memory.ctypes.data % 64
    y = allocator.memory[start : start + 48].view(np.float32).reshape(3, 4)
    np.testing.assert_allclose(y, answer(model), rtol=1e-4, atol=1e-5)


def test_a_shape_outside_of_the_profile_is_false_and_told(
    engine: trt.ICudaEngine, logger: Kept
) -> None:
    context = engine.create_execution_context()
    assert context.set_input_shape("x", (5, 3, 8, 8)) is False
    assert "profile 0" in logger.errors[-1]
    assert context.infer_shapes() == ["x"]
    assert context.set_input_shape("x", (4, 3, 8, 8))
    assert context.infer_shapes() == []
    assert context.get_tensor_shape("y") == (4, 4)


def test_an_open_shape_without_a_profile_builds_nothing(
    builder: trt.Builder, parsed: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    assert builder.build_serialized_network(parsed, config) is None
    assert "no optimization profile" in logger.errors[-1]


def test_a_plan_that_is_none_gives_no_engine(logger: Kept) -> None:
    assert trt.Runtime(logger).deserialize_cuda_engine(b"no plan") is None
    assert logger.errors


def test_a_parser_tells_why_it_failed(network: trt.INetworkDefinition, logger: Kept) -> None:
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(b"\x08\x08 no model") is False
    assert parser.num_errors == 1
    assert parser.get_error(0).desc()
    assert parser.get_error(0).code() == trt.ErrorCode.INVALID_GRAPH
    parser.clear_errors()
    assert parser.num_errors == 0


@pytest.mark.parametrize("format", list(trt.LayerInformationFormat))
def test_an_inspector_tells_of_layers(
    engine: trt.ICudaEngine, format: trt.LayerInformationFormat
) -> None:
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(format)
    assert "conv" in text
    assert ("Bindings" in text) is (format is trt.LayerInformationFormat.JSON)
    assert "conv" in inspector.get_layer_information(0, format)


def test_the_inspectors_json_has_tensorrts_keys(engine: trt.ICudaEngine) -> None:
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    told = json.loads(text)
    assert told["Bindings"] == ["x", "y"]
    assert len(told["Layers"]) == engine.num_layers
    first = told["Layers"][0]
    assert {"Name", "LayerType", "Inputs", "Outputs", "TacticName"} <= first.keys()
    assert first["Inputs"] == [
        {
            "Name": "x",
            "Location": "Device",
            "Dimensions": [-1, 3, 8, 8],
            "Format/Datatype": "Row major linear FP32",
        }
    ]


def test_a_parser_tells_which_nodes_are_supported(
    network: trt.INetworkDefinition, logger: Kept, model: bytes
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mystery", ["a"], ["b"], domain="acme"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    graph = helper.make_graph(nodes, "mystery", [x], [y])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    parser = trt.OnnxParser(network, logger)
    assert parser.supports_model(made) == (False, [([0], True), ([1], False), ([2], True)])
    assert parser.num_subgraphs == 3
    assert not parser.is_subgraph_supported(1)
    assert parser.get_error(0).code() == trt.ErrorCode.UNSUPPORTED_NODE
    assert parser.supports_operator("Relu")
    assert not parser.supports_operator("Mystery")
    assert parser.supports_model_v2(model)
    assert parser.get_subgraph_nodes(0) == [0, 1, 2, 3]


def test_a_precision_that_is_obeyed_is_the_layers(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig
) -> None:
    parsed[0].precision = trt.float32
    assert parsed[0].precision_is_set
    assert parsed.precise_layers(profiled) == []
    profiled.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    native = profiled.native(parsed.open_inputs(), parsed.precise_layers(profiled), cache=None)
    assert native.layer_precisions == {"conv": "fp32"}
