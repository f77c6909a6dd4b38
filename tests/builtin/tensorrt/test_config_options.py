"""What of a configuration a build heeds, tells its engines, or refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept

from tactix_tensorrt import api as trt


@pytest.fixture
def product(network: trt.INetworkDefinition) -> trt.INetworkDefinition:
    """A product of matrices, for which several tactics bid."""
    x, w = (network.add_input(n, trt.float32, s) for n, s in (("x", (4, 8)), ("w", (8, 9))))
    none = trt.MatrixOperation.NONE
    layer = network.add_matrix_multiply(x, none, w, none)
    layer.name = "own"
    network.mark_output(layer.get_output(0))
    return network


class Chooser(trt.IAlgorithmSelector):
    """Keeps what it is told. ``choose``: which of so many."""

    def __init__(self, choose: Callable[[int], list[int]]) -> None:
        trt.IAlgorithmSelector.__init__(self)
        self._choose = choose
        self.choices: list[trt.IAlgorithm] = []
        self.reported: list[tuple[trt.IAlgorithmContext, trt.IAlgorithm]] = []

    def select_algorithms(
        self, context: trt.IAlgorithmContext, choices: list[trt.IAlgorithm]
    ) -> list[int]:
        self.choices = choices
        return self._choose(len(choices))

    def report_algorithms(
        self, contexts: list[trt.IAlgorithmContext], choices: list[trt.IAlgorithm]
    ) -> None:
        self.reported = list(zip(contexts, choices, strict=True))


def test_an_algorithm_selector_chooses_and_is_told(
    builder: trt.Builder, product: trt.INetworkDefinition, config: trt.IBuilderConfig
) -> None:
    config.algorithm_selector = chooser = Chooser(lambda count: [count - 1])
    assert builder.build_serialized_network(product, config) is not None
    assert len(chooser.choices) > 1
    ((context, choice),) = chooser.reported
    assert (context.name, context.num_inputs, context.num_outputs) == ("own", 2, 1)
    assert context.get_shape(2) == [trt.Dims((4, 9))] * 3
    assert choice is chooser.choices[-1]
    first = choice.get_algorithm_io_info(0)
    assert (first.dtype, first.strides, first.vectorized_dim) == (trt.float32, (8, 1), -1)
    variants = [c.algorithm_variant for c in chooser.choices]
    assert len({(v.implementation, v.tactic) for v in variants}) == len(variants)


def test_a_selector_that_fails_ends_the_build(
    builder: trt.Builder, product: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    config.algorithm_selector = Chooser(lambda count: [count])
    assert builder.build_serialized_network(product, config) is None
    assert "own: select_algorithms fails with IndexError" in logger.errors[-1]


def test_so_many_candidates_race_as_are_asked_for(
    builder: trt.Builder, product: trt.INetworkDefinition, config: trt.IBuilderConfig
) -> None:
    config.algorithm_selector = chooser = Chooser(lambda count: [])
    config.max_num_tactics = 1
    assert config.set_tactic_sources(0)
    assert builder.build_serialized_network(product, config) is not None
    assert len(chooser.choices) == 1


@pytest.mark.parametrize(
    ("verbosity", "told"),
    [
        (trt.ProfilingVerbosity.NONE, []),
        (trt.ProfilingVerbosity.LAYER_NAMES_ONLY, ["own"]),
        (trt.ProfilingVerbosity.DETAILED, [{"Name": "own"}]),
    ],
)
def test_an_inspector_tells_what_the_build_was_asked_to_keep(
    builder: trt.Builder,
    product: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    verbosity: trt.ProfilingVerbosity,
    told: list[object],
) -> None:
    config.profiling_verbosity = verbosity
    engine = builder.build_engine_with_config(product, config)
    assert engine is not None
    assert engine.profiling_verbosity is verbosity
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(text)["Layers"]
    assert [{"Name": x["Name"]} if isinstance(x, dict) else x for x in layers] == told


def safety(config: trt.IBuilderConfig) -> None:
    config.engine_capability = trt.EngineCapability.SAFETY


def windows(config: trt.IBuilderConfig) -> None:
    config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64


def dla(config: trt.IBuilderConfig) -> None:
    config.default_device_type = trt.DeviceType.DLA


@pytest.mark.parametrize(
    ("ask", "why"), [(safety, "SAFETY"), (windows, "WINDOWS_AMD64"), (dla, "GPU_FALLBACK")]
)
def test_what_would_run_elsewhere_is_not_built(
    builder: trt.Builder,
    product: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
    ask: Callable[[trt.IBuilderConfig], None],
    why: str,
) -> None:
    ask(config)
    assert builder.build_serialized_network(product, config) is None
    assert why in logger.errors[-1]


def test_layers_for_a_dla_run_beside_the_others_with_a_fallback(
    builder: trt.Builder, product: trt.INetworkDefinition, config: trt.IBuilderConfig
) -> None:
    layer = product.get_layer(0)
    config.set_device_type(layer, trt.DeviceType.DLA)
    assert config.is_device_type_set(layer)
    assert builder.build_serialized_network(product, config) is None
    config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
    assert builder.build_serialized_network(product, config) is not None


def test_a_timing_that_is_missing_ends_the_build_where_it_should(
    builder: trt.Builder, product: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    config.builder_optimization_level = 1
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    assert builder.build_serialized_network(product, config) is None
    assert "timing" in logger.errors[-1]


def test_an_engine_tells_the_values_that_profiles_have_of_shape_tensors(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"])
    model = helper.make_model(helper.make_graph([node], "net", inputs, [y]), ir_version=10)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    profile = builder.create_optimization_profile()
    assert not profile.set_shape_input("shape", (3, 1), (2, 3), (6, 6))
    assert "shape" in logger.errors[-1]
    assert profile.set_shape_input("shape", (1, 1), (2, 3), (6, 6))
    assert profile.get_shape_input("shape") == [[1, 1], [2, 3], [6, 6]]
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, logger.errors
    assert engine.get_tensor_profile_values("shape", 0) == [[1, 1], [2, 3], [6, 6]]
    assert engine.get_tensor_profile_values(0, "shape") == [[1, 1], [2, 3], [6, 6]]
    assert engine.get_tensor_profile_values("x", 0) == []
    assert engine.is_shape_inference_io("shape")
    assert engine.get_tensor_location("shape") is trt.TensorLocation.HOST
    given = {"x": np.arange(6, dtype=np.float32), "shape": np.array([3, 2])}
    (found,) = engine.create_execution_context().native.run(given).values()
    np.testing.assert_array_equal(found, given["x"].reshape(3, 2))


def test_a_processor_has_no_fast_fp16(
    builder: trt.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not builder.platform_has_fast_fp16
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cuda")
    assert builder.platform_has_fast_fp16
