"""What TensorRT answers with None, False or a TypeError, and a line in the log."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt


@pytest.mark.parametrize("kind", ["topk", "softmax"])
def test_a_layer_of_one_axis_refuses_two(
    kind: str,
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    x = network.add_input("x", trt.float32, (2, 4))
    layer = (
        network.add_topk(x, trt.TopKOperation.MAX, 1, 3)
        if kind == "topk"
        else network.add_softmax(x)
    )
    layer.axes = 3
    network.mark_output(layer.get_output(0))
    assert builder.build_serialized_network(network, config) is None
    assert "axes=0b11 names 2 axes" in logger.errors[-1]


@pytest.mark.parametrize("dtype", [TensorProto.DOUBLE, TensorProto.INT16, TensorProto.STRING])
def test_a_model_with_inputs_of_other_types_is_not_parsed(
    dtype: int, network: trt.INetworkDefinition, logger: Kept
) -> None:
    x, y = (helper.make_tensor_value_info(n, dtype, [2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(model)
    assert "'x' is" in parser.get_error(0).desc()


def test_weights_of_a_type_that_there_is_not_are_a_type_error(
    network: trt.INetworkDefinition,
) -> None:
    with pytest.raises(TypeError, match="weights of float64"):
        network.add_constant((1,), np.ones(1))


def test_a_build_of_nothing_is_a_type_error(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
) -> None:
    with pytest.raises(TypeError, match="network: None is no INetworkDefinition"):
        builder.build_serialized_network(None, config)
    with pytest.raises(TypeError, match="config: None is no IBuilderConfig"):
        builder.build_engine_with_config(network, None)


@pytest.fixture
def nonzero(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> trt.ICudaEngine:
    """x: f32(2, 4); z: where it is not 0."""
    z = network.add_non_zero(network.add_input("x", trt.float32, (2, 4))).get_output(0)
    z.name = "z"
    network.mark_output(z)
    return built(network, config, logger)


class Answering(trt.IOutputAllocator):
    """Gives None, or raises."""

    def __init__(self, answer: Exception | None) -> None:
        trt.IOutputAllocator.__init__(self)
        self.answer = answer

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int | None:
        if self.answer is not None:
            raise self.answer
        return None

    def notify_shape(self, name: str, shape: trt.Dims) -> None: ...


@pytest.mark.parametrize(
    ("answer", "told"), [(None, "it gives None"), (MemoryError("mine"), "mine")]
)
def test_an_output_allocator_that_fails_ends_the_run(
    answer: Exception | None, told: str, nonzero: trt.ICudaEngine, logger: Kept
) -> None:
    context, x = nonzero.create_execution_context(), np.ones((2, 4), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_output_allocator("z", Answering(answer))
    assert not context.execute_async_v3(0)
    assert "Answering for 'z'" in logger.errors[-1]
    assert told in logger.errors[-1]


def test_names_and_indices_that_are_none(nonzero: trt.ICudaEngine, logger: Kept) -> None:
    context = nonzero.create_execution_context()
    inspector = nonzero.create_engine_inspector()
    lines = len(logger.errors)
    assert not context.set_input_shape("zz", (1,))
    assert context.get_tensor_shape("zz") == ()
    assert nonzero.get_tensor_shape("zz") == ()
    assert nonzero.get_tensor_dtype("zz") == trt.float32
    assert nonzero.get_tensor_name(9) is None
    assert nonzero.get_tensor_profile_shape("zz", 0) == []
    assert nonzero.get_tensor_profile_shape("x", 7) == []
    assert inspector.get_layer_information(99, trt.LayerInformationFormat.JSON) == ""
    assert len(logger.errors) == lines + 8
    with pytest.raises(IndexError):
        nonzero[9]


def test_a_strongly_typed_network_has_no_flags_of_precision(
    builder: trt.Builder, config: trt.IBuilderConfig, logger: Kept
) -> None:
    """Types of its tensors say all, so that no flag may lower them."""
    network = builder.create_network(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED.mask)
    x = network.add_input("x", trt.float32, (2, 4))
    network.mark_output(network.add_unary(x, trt.UnaryOperation.EXP).get_output(0))
    config.set_flag(trt.BuilderFlag.BF16)
    assert builder.build_serialized_network(network, config) is None
    assert "BuilderFlag.BF16 is set, and the network is strongly typed" in logger.errors[-1]


def test_a_profile_that_lacks_an_input_is_told_with_what_it_has(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
) -> None:
    network.mark_output(
        network.add_softmax(network.add_input("x", trt.float32, (-1,))).get_output(0)
    )
    profile = builder.create_optimization_profile()
    profile.set_shape("X", (1,), (2,), (4,))
    config.add_optimization_profile(profile)
    assert builder.build_serialized_network(network, config) is None
    assert "profile 0 has no shapes for 'x': it has 'X'" in logger.errors[-1]


def test_what_is_misspelt_or_missing_is_an_error_of_python(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig
) -> None:
    with pytest.raises(AttributeError, match="Did you mean 'builder_optimization_level'"):
        config.builder_optimisation_level = 5
    with pytest.raises(AttributeError, match="max_workspace_size"):
        config.max_workspace_size = 1 << 30
    config.reset()
    config.builder_optimization_level = 5
    with pytest.raises(AttributeError, match="'Builder' object has no attribute 'fp16_mode'"):
        builder.fp16_mode = True
    x = network.add_input("x", trt.float32, (2, 4))
    with pytest.raises(AttributeError, match="'fmt'"):
        x.fmt = trt.TensorFormat.LINEAR
    with pytest.raises(TypeError, match="op: 'SUM' is no ElementWiseOperation"):
        network.add_elementwise(x, x, "SUM")
    layer = network.add_softmax(x)
    for wrong in (layer.get_output(1), None):
        with pytest.raises(TypeError, match=r"tensor: None is no ITensor\. See in the log"):
            network.mark_output(wrong)
        with pytest.raises(TypeError, match="input: None is no ITensor"):
            network.add_identity(wrong)

    class Own(trt.Builder):
        """A program's may have what it likes."""

    Own(trt.Logger()).batch = 7


def test_scales_without_an_axis_are_told_where_they_do_not_fit(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (2, 6))
    scales = network.add_constant((6,), np.ones(6, np.float32)).get_output(0)
    rounded = network.add_quantize(x, scales).get_output(0)
    network.mark_output(network.add_dequantize(rounded, scales).get_output(0))
    assert network.builder.build_serialized_network(network, config) is None
    assert "6 scales along axis 0 of f32(2, 6), where there must be 2" in logger.errors[-1]


@pytest.mark.parametrize(
    ("low", "told"),
    [((-1, 3), "a size below 0"), ((1,), "the same number of axes"), ((4, 3), "not in order")],
)
def test_a_profile_says_what_is_wrong_with_it(
    network: trt.INetworkDefinition, logger: Kept, low: tuple, told: str
) -> None:
    profile = network.builder.create_optimization_profile()
    with pytest.raises(ValueError, match=told):
        profile.set_shape("x", low, (2, 3), (8, 3))
    assert told in logger.errors[-1]
