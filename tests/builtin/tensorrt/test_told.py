"""What programs are told of what cannot be: parsers' errors, precisions, caches, CUDA graphs."""

from __future__ import annotations

import itertools
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt
from tactix_tensorrt.cuda_stand_in import runtime


def test_an_error_of_a_parser_names_the_node(network: trt.INetworkDefinition, logger: Kept) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "ok"),
        helper.make_node("Frobnicate", ["a"], ["y"], "bad", domain="my"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    graph = helper.make_graph(nodes, "net", [x], [y])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(made.SerializeToString())
    error = parser.get_error(0)
    assert (error.node(), error.node_name(), error.node_operator()) == (1, "bad", "Frobnicate")
    assert "node 1 with name: bad and operator: Frobnicate" in str(error)


def test_each_node_that_there_is_not_has_its_error(
    network: trt.INetworkDefinition, logger: Kept
) -> None:
    ops = {"n0": "Foo", "n1": "Relu", "n2": "Bar"}
    pairs = itertools.pairwise("xaby")
    nodes = [
        helper.make_node(op, [i], [o], n)
        for (n, op), (i, o) in zip(ops.items(), pairs, strict=True)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(made.SerializeToString())
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    assert [(e.node(), e.node_operator()) for e in errors] == [(0, "Foo"), (2, "Bar")]
    assert {e.code() for e in errors} == {trt.ErrorCode.UNSUPPORTED_NODE}
    assert "'n2'" in errors[1].desc()
    assert "'n0'" not in errors[1].desc()
    assert len(logger.errors) == 1


def test_what_is_no_model_is_not_supported(network: trt.INetworkDefinition, logger: Kept) -> None:
    parser = trt.OnnxParser(network, logger)
    assert parser.supports_model(b"\xff no model") == (False, [])
    assert parser.num_errors == 1


def test_an_error_about_no_node_names_none(network: trt.INetworkDefinition, logger: Kept) -> None:
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(b"no model")
    error = parser.get_error(0)
    assert (error.node(), error.node_name(), error.node_operator()) == (-1, "", "")


@pytest.mark.parametrize("flag", ["OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"])
def test_a_processor_is_not_asked_for_half(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept, flag: str
) -> None:
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_activation(x, trt.ActivationType.RELU)
    layer.precision = trt.float16
    network.mark_output(layer.get_output(0))
    config.set_flag(trt.BuilderFlag[flag])
    obeyed = flag.startswith("OBEY")
    plan = network.builder.build_serialized_network(network, config)
    assert (plan is None) is obeyed, logger.errors
    told = (logger.errors if obeyed else logger.warnings)[-1]
    assert "'(Unnamed Layer* 0) [Activation]'" in told
    assert ("reset_precision" in told) is obeyed


@pytest.mark.parametrize("flag", ["OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"])
def test_what_no_kernel_computes_is_an_error_where_it_must_be(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept, flag: str
) -> None:
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_shuffle(x)
    layer.reshape_dims = (3, 2)
    layer.name, layer.precision = "turned", trt.bfloat16
    network.mark_output(layer.get_output(0))
    config.set_flag(trt.BuilderFlag.BF16)
    config.set_flag(trt.BuilderFlag[flag])
    obeyed = flag.startswith("OBEY")
    plan = network.builder.build_serialized_network(network, config)
    assert (plan is None) is obeyed, logger.errors
    told = (logger.errors if obeyed else logger.warnings)[0]
    assert told.startswith("turned: "), told


def test_what_is_no_timing_cache_is_told_at_once(config: trt.IBuilderConfig, logger: Kept) -> None:
    made = config.create_timing_cache(b"garbage")
    assert "7 bytes are no timing cache" in logger.warnings[-1]
    assert made.queryKeys() == []
    assert config.create_timing_cache(made.serialize()).queryKeys() == []
    assert len(logger.warnings) == 1


def test_cuda_graphs_are_refused_by_each_call() -> None:
    refused = runtime.cudaError_t.cudaErrorNotSupported
    stream = runtime.cudaStreamCreate()[1]
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
    assert runtime.cudaStreamBeginCapture(stream, mode) == (refused,)
    none = runtime.cudaStreamCaptureStatus.cudaStreamCaptureStatusNone
    assert runtime.cudaStreamIsCapturing(stream)[1] is none
    assert runtime.cudaStreamEndCapture(stream) == (refused, None)
    assert runtime.cudaGraphInstantiate(None, 0) == (refused, None)
    assert runtime.cudaGraphLaunch(None, stream) == (refused,)
    runtime.cudaStreamDestroy(stream)


def test_small_members_do_what_they_say(engine: trt.ICudaEngine, logger: Kept) -> None:
    settings = engine.create_runtime_config()
    managed = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    settings.set_execution_context_allocation_strategy(managed)
    assert settings.get_execution_context_allocation_strategy() is managed
    context = engine.create_execution_context(settings)
    assert context is not None
    assert context.device_memory == 0
    assert not context.set_input_consumed_event(1)
    assert "behind execute_async_v3" in logger.errors[-1]
    assert context.set_input_consumed_event(0)
    assert context.get_input_consumed_event() == 0
    assert engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE) >= (5 * 27 + 5 * 4) * 4
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == -1
    registry = trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD)
    assert registry is trt.get_plugin_registry()
    assert trt.get_builder_plugin_registry(trt.EngineCapability.SAFETY) is None
    assert trt.get_nv_onnx_parser_version() == 100


def test_bytes_that_were_left_out_are_told(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    profiled.set_flag(trt.BuilderFlag.STRIP_PLAN)
    engine = built(parsed, profiled, logger)
    left_out = engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE)
    assert 0 < left_out <= engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)


def test_what_only_a_dla_runs_fails_in_the_parser(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept, model: bytes
) -> None:
    parser = trt.OnnxParser(network, logger)
    assert parser.get_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    parser.set_builder_config(config)
    parser.set_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
    assert not parser.parse(model)
    assert "DLA validation failed for layer: " in parser.get_error(0).desc()
    parser.clear_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
    assert parser.parse(model)


def test_a_models_file_is_not_read_beside_its_bytes(
    logger: Kept, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> bytes:
        raise AssertionError(f"{path} is read whole")

    monkeypatch.setattr(Path, "read_bytes", read)
    sources: list[object] = []
    take = trt.OnnxParser._take
    monkeypatch.setattr(trt.OnnxParser, "_take", lambda self, s: sources.append(s) or take(self, s))
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    path.write_bytes(model)
    other.write_bytes(bytes(len(model)))
    for beside in (path, other, tmp_path / "none.onnx"):
        network = trt.Builder(logger).create_network(0)
        assert trt.OnnxParser(network, logger).parse(model, str(beside))
    assert sources == [str(path), model, model]


def test_asking_what_is_supported_reads_a_model_once(
    network: trt.INetworkDefinition, logger: Kept, model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[object] = []
    read = trt.OnnxParser._read
    monkeypatch.setattr(trt.OnnxParser, "_read", lambda self, s: sources.append(s) or read(self, s))
    assert trt.OnnxParser(network, logger).supports_model_v2(model)
    (source,) = sources
    assert isinstance(source, onnx.ModelProto), "what was parsed for its nodes"
