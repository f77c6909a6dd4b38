"""What programs rely on beside names: how enums print, what compares with what, defaults, None."""

from __future__ import annotations

import io
import operator

import numpy as np
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept

from tactix_tensorrt import api as trt

# -- enums -----------------------------------------------------------------------------------------


def test_enums_are_pybind11s() -> None:
    assert str(trt.float32) == "DataType.FLOAT"
    assert repr(trt.float16) == "<DataType.HALF: 1>"
    assert trt.DataType.FLOAT != 0
    assert int(trt.DataType.INT8) == 2
    assert 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == 2
    assert {trt.DataType.FLOAT: "f"}[trt.float32] == "f"
    assert trt.DataType(3) is trt.int32
    assert list(trt.MemoryPoolType.__members__)[:2] == ["WORKSPACE", "DLA_MANAGED_SRAM"]
    assert trt.Logger.WARNING.name == "WARNING"
    assert str(trt.Logger.Severity.VERBOSE) == "Severity.VERBOSE"


def test_severities_are_in_order() -> None:
    assert trt.Logger.ERROR < trt.Logger.WARNING <= trt.Logger.WARNING
    assert trt.Logger.ERROR != 1
    with pytest.raises(TypeError, match="matching type"):
        operator.gt(trt.Logger.VERBOSE, 3)


def test_each_layer_type_names_a_class() -> None:
    own = {c.TYPE for c in vars(trt).values() if isinstance(c, type) and issubclass(c, trt.ILayer)}
    assert set(trt.LayerType) - own == set()


# -- values ----------------------------------------------------------------------------------------


def test_dims_are_lists_and_tuples() -> None:
    dims = trt.Dims([1, 3, 8, 8])
    assert dims == (1, 3, 8, 8)
    assert dims == [1, 3, 8, 8]
    assert dims != (1, 3)
    assert dims[:-3] == (1,)
    assert isinstance(dims[1:], tuple)
    assert trt.Dims4(1, 2, 3, 4) == trt.Dims4((1, 2, 3, 4))
    assert str(trt.Dims((2, -1))) == "(2, -1)"
    assert np.empty(dims).shape == (1, 3, 8, 8)
    dims[0] = 7
    assert trt.volume(dims) == 7 * 3 * 64


def test_host_memory_is_a_buffer() -> None:
    memory = trt.IHostMemory(b"plan")
    out = io.BytesIO()
    out.write(memory)
    with memory as inside:
        assert bytes(inside) == out.getvalue() == bytes(memoryview(memory)) == b"plan"
    assert np.frombuffer(memory, np.uint8).size == memory.nbytes == 4


def test_numpy_types_of_what_numpy_has() -> None:
    assert trt.nptype(trt.float16) is np.float16
    assert trt.nptype(trt.bool) is np.bool_
    for dtype in (trt.bfloat16, trt.fp8, trt.int4):
        with pytest.raises(TypeError):
            trt.nptype(dtype)


def test_weights_are_of_arrays_or_addresses() -> None:
    numbers = np.arange(6, dtype=np.float32)
    at = trt.Weights(trt.float32, numbers.ctypes.data, 6)
    assert at.numpy().tolist() == trt.Weights(numbers).numpy().tolist() == numbers.tolist()
    assert (at.size, at.nbytes, at.dtype) == (6, 24, trt.float32)
    assert trt.Weights().size == 0


# -- configurations --------------------------------------------------------------------------------


def test_defaults_of_a_configuration(config: trt.IBuilderConfig) -> None:
    assert config.get_flag(trt.BuilderFlag.TF32)
    assert config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
    limit = config.get_memory_pool_limit
    assert limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY) == 1024 << 20
    dla = [trt.MemoryPoolType[f"DLA_{n}"] for n in ("MANAGED_SRAM", "LOCAL_DRAM", "GLOBAL_DRAM")]
    assert [limit(p) >> 20 for p in dla] == [0, 1024, 512]
    assert config.DLA_core == -1
    assert config.profiling_verbosity == trt.ProfilingVerbosity.LAYER_NAMES_ONLY
    wanted = (trt.TacticSource.EDGE_MASK_CONVOLUTIONS, trt.TacticSource.JIT_CONVOLUTIONS)
    assert config.get_tactic_sources() == sum(1 << int(s) for s in wanted)


def test_flags_are_bits(config: trt.IBuilderConfig) -> None:
    config.flags = 1 << int(trt.BuilderFlag.FP16) | 1 << int(trt.BuilderFlag.REFIT)
    assert config.get_flag(trt.BuilderFlag.FP16)
    assert not config.get_flag(trt.BuilderFlag.TF32)
    config.flags &= ~(1 << int(trt.BuilderFlag.FP16))
    config.clear_flag(trt.BuilderFlag.REFIT)
    assert config.flags == 0
    config.reset()
    assert config.get_flag(trt.BuilderFlag.TF32)


def test_a_flag_without_effect_is_told(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    profiled.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    profiled.avg_timing_iterations = 3
    assert builder.build_serialized_network(parsed, profiled) is not None
    assert [t.split()[0] for t in logger.warnings if "no counterpart" in t] == [
        "IBuilderConfig.avg_timing_iterations",
        "BuilderFlag.SPARSE_WEIGHTS",
    ]


def test_a_profile_out_of_order_is_refused(builder: trt.Builder) -> None:
    profile = builder.create_optimization_profile()
    with pytest.raises(ValueError, match="inconsistent"):
        profile.set_shape("x", (4,), (2,), (1,))
    profile.set_shape("x", (1,), (2,), (4,))
    assert profile.get_shape("x") == [(1,), (2,), (4,)]
    assert profile.get_shape("y") == []


class Monitor(trt.IProgressMonitor):
    def __init__(self) -> None:
        trt.IProgressMonitor.__init__(self)
        self.phases: list[tuple[str, str]] = []

        self.counts: list[int] = []
        self.stepped: set[str] = set()

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.phases.append(("start", phase_name))
        self.counts.append(num_steps)

    def step_complete(self, phase_name: str, step: int) -> bool:
        self.stepped.add(phase_name)
        return True

    def phase_finish(self, phase_name: str) -> None:
        self.phases.append(("finish", phase_name))


def test_a_monitor_hears_of_phases(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig
) -> None:
    profiled.progress_monitor = monitor = Monitor()
    assert builder.build_serialized_network(parsed, profiled)
    started = {name for what, name in monitor.phases if what == "start"}
    assert started == {name for what, name in monitor.phases if what == "finish"} != set()
    assert min(monitor.counts) >= 1
    assert started == monitor.stepped


def test_a_monitor_that_answers_false_ends_the_build(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    class Stopping(Monitor):
        def step_complete(self, phase_name: str, step: int) -> bool:
            return False

    profiled.progress_monitor = monitor = Stopping()
    assert builder.build_serialized_network(parsed, profiled) is None
    assert "stopped the build" in logger.errors[-1]
    assert monitor.phases[-1][0] == "finish"


def test_one_timing_cache_gives_one_plan(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig
) -> None:
    cache = profiled.create_timing_cache(b"")
    assert profiled.set_timing_cache(cache, ignore_mismatch=False)
    plans = [builder.build_serialized_network(parsed, profiled) for _ in range(2)]
    assert np.array_equal(*(np.frombuffer(p, np.uint8) for p in plans))
    kept = profiled.create_timing_cache(profiled.get_timing_cache().serialize())
    assert kept.combine(cache, False)
    assert not kept.combine(trt.ITimingCache(b"no cache"), False)


# -- networks --------------------------------------------------------------------------------------


def test_tensors_keep_their_identity(parsed: trt.INetworkDefinition) -> None:
    conv, relu = parsed[0], parsed[1]
    assert relu.get_input(0) is conv.get_output(0)
    assert {relu.get_input(0), conv.get_output(0)} == {conv.get_output(0)}
    assert conv.get_input(7) is None
    assert conv.get_output(7) is None
    assert len(parsed) == parsed.num_layers


def test_the_class_of_a_layer_can_be_set(parsed: trt.INetworkDefinition) -> None:
    layer = parsed.get_layer(0)
    assert layer.type == trt.LayerType.CONVOLUTION
    layer.__class__ = trt.IConvolutionLayer
    assert "stride_nd" in dir(layer)
    assert "parsed_node" not in dir(layer)


def test_outputs_are_marked_and_unmarked(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    parsed.unmark_output(parsed.get_output(0))
    inner = parsed[1].get_output(0)
    inner.name = "activated"
    parsed.mark_output(inner)
    assert inner.is_network_output
    engine = builder.build_engine_with_config(parsed, profiled)
    assert [engine[i] for i in range(engine.num_io_tensors)] == ["x", "activated"], logger.errors
    assert engine.get_tensor_shape("activated") == (-1, 5, 8, 8)


def test_a_network_without_outputs_builds_nothing(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    network.add_input("x", trt.float32, (2,))
    assert builder.build_serialized_network(network, config) is None
    assert "at least one output" in logger.errors[-1]


def test_a_layer_that_is_not_there_is_none_and_one_line(
    network: trt.INetworkDefinition, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2,))
    gather = trt.CollectiveOperation.ALL_GATHER
    assert network.add_dist_collective(x, gather, trt.ReduceOperation.NONE, -1, [0]) is None
    (line,) = logger.errors
    assert "add_dist_collective" in line
    assert "Run an engine on each device" in line


def test_the_shape_of_a_parsed_input_can_be_fixed(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    parsed.get_input(0).shape = (3, 3, 8, 8)
    assert parsed.get_input(0).shape == (3, 3, 8, 8)
    engine = builder.build_engine_with_config(parsed, config)
    assert engine is not None, logger.errors
    assert engine.get_tensor_shape("x") == (3, 3, 8, 8)
    assert engine.get_tensor_shape("y") == (3, 4)
    context = engine.create_execution_context()
    assert not context.set_input_shape("x", (2, 3, 8, 8))
    assert context.set_input_shape("x", (3, 3, 8, 8))


def test_the_dtype_of_an_output_can_be_set(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig
) -> None:
    parsed.get_output(0).dtype = trt.float16
    engine = builder.build_engine_with_config(parsed, profiled)
    assert engine.get_tensor_dtype("y") == trt.float16


def test_allowed_formats_are_bits(network: trt.INetworkDefinition) -> None:
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    x.allowed_formats = 1 << int(trt.TensorFormat.HWC)
    assert x.allowed_formats == 256


def test_a_format_that_no_engine_has_builds_nothing(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    parsed.get_input(0).allowed_formats = 1 << int(trt.TensorFormat.DLA_LINEAR)
    assert builder.build_serialized_network(parsed, profiled) is None
    assert "TensorFormat.DLA_LINEAR" in logger.errors[-1]


# -- engines ---------------------------------------------------------------------------------------


def test_an_engine_is_iterated_by_names(engine: trt.ICudaEngine) -> None:
    assert list(engine) == ["x", "y"]
    assert engine[1] == "y"
    assert engine.get_tensor_shape("x") == (-1, 3, 8, 8)
    assert engine.get_tensor_profile_shape("x", 0) == [(1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)]
    assert engine.get_tensor_format("x") == trt.TensorFormat.LINEAR
    assert engine.get_tensor_vectorized_dim("x") == engine.get_tensor_components_per_element("x")
    assert engine.get_tensor_mode("none") == trt.TensorIOMode.NONE


def test_objects_are_context_managers(builder: trt.Builder, config: trt.IBuilderConfig) -> None:
    with builder as b, b.create_network() as network, config as c:
        assert (b, c) == (builder, config)
        assert network.num_layers == 0


class Reader(trt.IStreamReader):
    def __init__(self, content: bytes) -> None:
        trt.IStreamReader.__init__(self)
        self._rest = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._rest.read(min(size, 1000))


class Writer(trt.IStreamWriter):
    def __init__(self) -> None:
        trt.IStreamWriter.__init__(self)
        self.content = b""

    def write(self, data: bytes) -> int:
        self.content += bytes(data)
        return len(data)


def test_plans_are_streamed(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    writer = Writer()
    assert builder.build_serialized_network_to_stream(parsed, profiled, writer)
    engine = trt.Runtime(logger).deserialize_cuda_engine(Reader(writer.content))
    assert engine.serialize() == writer.content
    assert engine.serialize_with_config(engine.create_serialization_config()) == writer.content


@pytest.mark.parametrize("taken", [0, 7, None])
def test_a_writer_that_does_not_take_all_is_told(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
    taken: object,
) -> None:
    class Half(Writer):
        def write(self, data: bytes) -> int:
            return taken

    assert not builder.build_serialized_network_to_stream(parsed, profiled, Half())
    (line,) = logger.errors
    assert f"the stream writer Half took {taken} of " in line


class Recorder(trt.IErrorRecorder):
    def __init__(self) -> None:
        trt.IErrorRecorder.__init__(self)
        self.reported: list[tuple[trt.ErrorCodeTRT, str]] = []

    def report_error(self, code: trt.ErrorCodeTRT, desc: str) -> bool:
        self.reported.append((code, desc))
        return False


def test_errors_reach_a_recorder(logger: Kept) -> None:
    runtime = trt.Runtime(logger)
    runtime.error_recorder = recorder = Recorder()
    assert runtime.deserialize_cuda_engine(b"no plan at all") is None
    assert len(recorder.reported) == 1


def test_other_weights_go_into_an_engine(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    profiled.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(parsed, profiled)
    assert engine.refittable
    refitter = trt.Refitter(engine, logger)
    assert set(refitter.get_all_weights()) == {"w", "m"}
    prototype = refitter.get_weights_prototype("m")
    assert (prototype.dtype, prototype.size) == (trt.float32, 20)
    zeros = np.zeros(20, np.float32)
    weights = trt.Weights(trt.float32, zeros.ctypes.data, 20)
    assert refitter.set_named_weights("m", weights, trt.TensorLocation.DEVICE)
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()
    context, x, y = engine.create_execution_context(), np.ones((1, 3, 8, 8), "f"), np.ones(4, "f")
    context.set_input_shape("x", x.shape)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    assert y.tolist() == [0, 0, 0, 0]
    again = trt.Runtime(logger).deserialize_cuda_engine(engine.serialize())
    assert again is not None, logger.errors
    context, y[:] = again.create_execution_context(), 1
    context.set_input_shape("x", x.shape)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    assert y.tolist() == [0, 0, 0, 0]
    assert refitter.set_named_weights("unknown", weights) is False
    assert "unknown" in logger.errors[-1]


def test_a_plan_without_recipes_is_not_refitted(engine: trt.ICudaEngine, logger: Kept) -> None:
    assert not engine.refittable
    assert trt.Refitter(engine, logger).refit_cuda_engine() is False
    assert logger.errors


def test_creators_are_registered_by_name_and_version() -> None:
    class Creator(trt.IPluginCreatorV3One):
        def __init__(self) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = "Twice", "1", ""
            self.field_names = trt.PluginFieldCollection([])

    registry, creator = trt.get_plugin_registry(), Creator()
    assert registry.register_creator(creator, "")
    assert registry.get_creator("Twice", "1", "") is creator
    assert not registry.register_creator(Creator(), "")
    assert registry.deregister_creator(creator)
    assert trt.init_libnvinfer_plugins(None, "")


def test_outputs_that_are_inputs_or_other_outputs_keep_both_names(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Identity", ["r"], ["s"]),
    ]
    names = ["y", "r", "s"]
    x, *outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ["x", *names])
    model = helper.make_model(
        helper.make_graph(nodes, "net", [x], outputs),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    assert [network.get_input(i).name for i in range(network.num_inputs)] == ["x"]
    assert [network.get_output(i).name for i in range(network.num_outputs)] == names
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, logger.errors
    given = np.array([-1, 2], np.float32)
    found = engine.create_execution_context().native.run({"x": given})
    for name, expected in zip(names, ([-1, 2], [0, 2], [0, 2])):
        np.testing.assert_array_equal(found[name], expected)


def test_weights_come_and_go_within_a_budget(
    builder: trt.Builder, parsed: trt.INetworkDefinition, profiled: trt.IBuilderConfig, logger: Kept
) -> None:
    profiled.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)
    plan = builder.build_serialized_network(parsed, profiled)
    assert plan is not None, logger.errors
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    assert engine is not None, logger.errors
    assert engine.weight_streaming_budget_v2 == engine.streamable_weights_size > 0
    assert engine.weight_streaming_budget == -1
    given = {"x": np.ones((2, 3, 8, 8), np.float32)}
    expected = engine.create_execution_context().native.run(given)["y"]
    engine.weight_streaming_budget_v2 = 0
    assert engine.weight_streaming_budget_v2 == engine.weight_streaming_budget == 0
    for name in ("weight_streaming_budget", "weight_streaming_budget_v2"):
        setattr(engine, name, -5)
        assert "-5 bytes" in logger.errors[-1]
        assert getattr(engine, name) == 0
    logger.told.clear()
    least = engine.minimum_weight_streaming_budget
    assert engine.native.weight_streaming_budget_v2 == least < engine.streamable_weights_size
    np.testing.assert_array_equal(
        engine.create_execution_context().native.run(given)["y"], expected
    )
    assert logger.errors == []


def test_an_interface_says_which_it_is() -> None:
    class Monitor(trt.IProgressMonitor):
        pass

    class Plugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2):
        pass

    for made, kind in ((Monitor(), "IProgressMonitor"), (Plugin(), "PLUGIN")):
        assert made.api_language is trt.APILanguage.PYTHON
        assert made.interface_info.kind == kind
    told = trt.IPluginV3OneBuildV2().interface_info
    assert (told.kind, told.major, told.minor) == ("PLUGIN_V3ONE_BUILD", 2, 0)


# -- names -----------------------------------------------------------------------------------------


def test_what_has_no_name_is_called_as_there(network: trt.INetworkDefinition) -> None:
    """As logs and calibration caches of TensorRT have it."""
    x = network.add_input("x", trt.float32, (4, 4))
    none = trt.MatrixOperation.NONE
    made = [
        network.add_matrix_multiply(x, none, x, none),
        network.add_softmax(x),
        network.add_topk(x, trt.TopKOperation.MAX, 2, 1),
    ]
    assert [[layer.get_output(i).name for i in range(layer.num_outputs)] for layer in made] == [
        ["(Unnamed Layer* 0) [Matrix Multiply]_output"],
        ["(Unnamed Layer* 1) [Softmax]_output"],
        ["(Unnamed Layer* 2) [TopK]_output_1", "(Unnamed Layer* 2) [TopK]_output_2"],
    ]


def test_indices_of_topk_have_the_type_that_is_asked(network: trt.INetworkDefinition) -> None:
    x = network.add_input("x", trt.float32, (4, 4))
    layer = network.add_topk(x, trt.TopKOperation.MAX, 2, 1, indices_type=trt.int64)
    assert layer.indices_type is layer.get_output(1).dtype is trt.int64


def test_shapes_that_do_not_fit_raise_where_they_are_inferred(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    profile = builder.create_optimization_profile()
    for name in "xy":
        network.add_input(name, trt.float32, (-1,)).set_dimension_name(0, "n")
        profile.set_shape(name, (1,), (2,), (4,))
    config.add_optimization_profile(profile)
    both = network.add_elementwise(*network.inputs, trt.ElementWiseOperation.SUM)
    network.mark_output(both.get_output(0))
    context = builder.build_engine_with_config(network, config).create_execution_context()
    assert context.set_input_shape("x", (3,))
    assert context.infer_shapes() == ["y"]
    assert context.set_input_shape("y", (4,))
    with pytest.raises(RuntimeError, match="infer_shapes error code: -1"):
        context.infer_shapes()
    assert "'n'" in logger.errors[-1]


def test_a_logger_goes_into_with() -> None:
    with trt.Logger(trt.Logger.ERROR) as logger:
        assert logger.min_severity is trt.Logger.ERROR
