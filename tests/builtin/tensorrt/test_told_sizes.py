"""Shapes that follow from what an input on the host holds are known before a run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt

X = np.arange(6, dtype=np.float32)


def reshaped(network: trt.INetworkDefinition, dtype: trt.DataType, first: bool) -> None:
    """``x`` in a shape that ``s`` holds, or whose end it holds; and that negated."""
    x = network.add_input("x", trt.float32, (-1,))
    sizes = network.add_input("s", dtype, (1 if first else 2,))
    if dtype is trt.int32:
        sizes = network.add_cast(sizes, trt.int64).get_output(0)
    if first:
        three = network.add_constant((1,), np.array([3], np.int64)).get_output(0)
        sizes = network.add_concatenation([three, sizes]).get_output(0)
    shuffle = network.add_shuffle(x)
    shuffle.set_input(1, sizes)
    y = network.add_unary(shuffle.get_output(0), trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)


def profiled(config: trt.IBuilderConfig, network: trt.INetworkDefinition, count: int) -> None:
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1,), (6,), (24,))
    profile.set_shape_input("s", (1,) * count, (2,) * count, (24,) * count)
    config.add_optimization_profile(profile)


@pytest.mark.parametrize("dtype", [trt.int32, trt.int64])
def test_a_shape_input_tells_the_shape_of_an_output(
    dtype: trt.DataType, network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    reshaped(network, dtype, first=False)
    profiled(config, network, 2)
    context = built(network, config, logger).create_execution_context()
    assert context.set_input_shape("x", (6,))
    assert context.get_tensor_shape("y") == (-1, -1)
    sizes, out = np.array([2, 3], trt.nptype(dtype)), np.zeros(6, np.float32)
    assert context.set_tensor_address("s", sizes.ctypes.data)
    assert context.infer_shapes() == []
    assert context.get_tensor_shape("y") == (2, 3)
    assert context.get_max_output_size("y") == 24
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address("y", out.ctypes.data)
    assert context.execute_async_v3(0), logger.errors
    np.testing.assert_array_equal(out, -X)
    sizes[:] = 3, 2
    assert context.get_tensor_shape("y") == (3, 2)
    sizes[:] = -1, 2
    assert context.get_tensor_shape("y") == (-1, 2)


def test_one_of_several_sizes_is_told(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    reshaped(network, trt.int64, first=True)
    profiled(config, network, 1)
    context = built(network, config, logger).create_execution_context()
    sizes = np.array([2])
    context.set_tensor_address("s", sizes.ctypes.data)
    assert context.get_tensor_shape("y")[1] == 2


def test_expansions_of_models_are_told(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "s"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, ["n", 1, 3]), info("s", TensorProto.INT64, [4])],
        [info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 1, 3), (2, 1, 3), (4, 1, 3))
    profile.set_shape_input("s", (1,) * 4, (5, 2, 4, 3), (9,) * 4)
    config.add_optimization_profile(profile)
    context = built(network, config, logger).create_execution_context()
    sizes = np.array([5, 1, 4, 3])
    context.set_input_shape("x", (2, 1, 3))
    context.set_tensor_address("s", sizes.ctypes.data)
    assert context.get_tensor_shape("y") == (5, -1, 4, 3), "a 1 leaves the size of the data"


def test_an_output_for_shapes_is_told_before_a_run(
    network: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = network.add_input("x", trt.float32, (-1, -1))
    shape = network.add_shape(x).get_output(0)
    twice = network.add_elementwise(shape, shape, trt.ElementWiseOperation.SUM).get_output(0)
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name, twice.name = "y", "twice"
    network.mark_output(y)
    assert not network.mark_output_for_shapes(y)
    assert network.mark_output_for_shapes(twice)
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 1), (2, 2), (4, 4))
    config.add_optimization_profile(profile)
    engine = built(network, config, logger)
    assert engine.is_shape_inference_io("twice")
    assert not engine.is_shape_inference_io("y")
    context, told = engine.create_execution_context(), np.zeros(2, np.int64)
    assert context.set_tensor_address("twice", told.ctypes.data)
    assert context.infer_shapes() == ["x"]
    assert told.tolist() == [0, 0]
    assert context.set_input_shape("x", (3, 2))
    assert context.infer_shapes() == []
    assert told.tolist() == [6, 4]
    assert network.unmark_output_for_shapes(twice)
    assert network.num_outputs == 1
