"""Inputs of a parsed network that the program gives another shape, dtype or name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from trt_logger import Kept
from trt_runs import built, run

from tactix_tensorrt import api as trt

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def _model(batch: int | str) -> bytes:
    """x: f32(batch, 4); y: its rows as they are shaped, plus 1; z: x itself."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Add", ["x", "one"], ["a"], "add"),
        helper.make_node("Reshape", ["a", "s"], ["y"], "reshape"),
        helper.make_node("Identity", ["x"], ["z"], "same"),
    ]
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    x, *ys = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 4]) for n in ("x", "y", "z")
    )
    graph = helper.make_graph(nodes, "g", [x], ys, [one])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.fixture
def static(network: trt.INetworkDefinition, logger: Kept) -> trt.INetworkDefinition:
    assert trt.OnnxParser(network, logger).parse(_model(1))
    return network


@pytest.fixture
def dynamic(network: trt.INetworkDefinition, logger: Kept) -> trt.INetworkDefinition:
    assert trt.OnnxParser(network, logger).parse(_model("n"))
    return network


def _profile(config: trt.IBuilderConfig, name: str, *batches: int) -> None:
    profile = trt.Builder(Kept()).create_optimization_profile()
    profile.set_shape(name, *((b, 4) for b in batches))
    config.add_optimization_profile(profile)


def test_a_fixed_size_becomes_another(
    static: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    y = static.get_output(0)
    static.get_input(0).shape = (2, 4)
    assert y.shape == (2, 4)
    assert static.get_output(0) is y
    got = run(built(static, config, logger), {"x": X})
    np.testing.assert_array_equal(got["y"], X + 1)
    np.testing.assert_array_equal(got["z"], X)


def test_a_fixed_size_becomes_open(
    static: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    static.get_input(0).shape = (-1, 4)
    _profile(config, "x", 1, 2, 8)
    engine = built(static, config, logger)
    assert engine.get_tensor_shape("x") == (-1, 4)
    np.testing.assert_array_equal(run(engine, {"x": X})["y"], X + 1)


def test_layers_that_were_added_follow(
    static: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    doubled = static.add_elementwise(
        static.get_output(0), static.get_output(0), trt.ElementWiseOperation.SUM
    ).get_output(0)
    doubled.name = "w"
    static.mark_output(doubled)
    assert doubled.shape == (1, 4)
    static.get_input(0).shape = (2, 4)
    np.testing.assert_array_equal(run(built(static, config, logger), {"x": X})["w"], 2 * X + 2)


def test_a_shape_that_the_model_cannot_have_builds_nothing(
    builder: trt.Builder, static: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    static.get_input(0).shape = (2, 3, 4, -1)
    assert builder.build_serialized_network(static, config) is None
    assert logger.errors


def test_a_fixed_shape_runs_without_being_set(
    dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    dynamic.get_input(0).shape = [2, 4]
    engine = built(dynamic, config, logger)
    assert engine.get_tensor_shape("x") == (2, 4)
    context, got = engine.create_execution_context(), {n: np.zeros_like(X) for n in "yz"}
    for name, array in {"x": X, **got}.items():
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0), logger.errors
    np.testing.assert_array_equal(got["y"], X + 1)


def test_the_only_shape_of_a_profile_is_taken(
    dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    _profile(config, "x", 2, 2, 2)
    engine = built(dynamic, config, logger)
    assert engine.get_tensor_shape("x") == engine.get_tensor_shape("y") == (2, 4)
    context = engine.create_execution_context()
    assert context.get_tensor_shape("y") == (2, 4)
    assert context.infer_shapes() == []


def test_sizes_that_differ_among_profiles_stay_open(
    dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    _profile(config, "x", 2, 2, 2)
    _profile(config, "x", 3, 3, 3)
    engine = built(dynamic, config, logger)
    assert engine.get_tensor_shape("x") == (-1, 4)


def test_an_input_of_another_dtype_is_cast(
    dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    dynamic.get_input(0).dtype = trt.float16
    _profile(config, "x", 1, 2, 4)
    engine = built(dynamic, config, logger)
    assert engine.get_tensor_dtype("x") == trt.float16
    assert engine.get_tensor_dtype("y") == trt.float32
    np.testing.assert_array_equal(run(engine, {"x": X.astype(np.float16)})["y"], X + 1)


def test_an_input_has_another_name(
    dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    dynamic.get_input(0).name = "images"
    _profile(config, "images", 1, 2, 4)
    engine = built(dynamic, config, logger)
    assert list(engine) == ["images", "y", "z"]
    np.testing.assert_array_equal(run(engine, {"images": X})["y"], X + 1)


def test_a_name_that_is_taken_builds_nothing(
    builder: trt.Builder, dynamic: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept
) -> None:
    dynamic.get_input(0).name = "y"
    _profile(config, "y", 1, 2, 4)
    assert builder.build_serialized_network(dynamic, config) is None
    assert "'y'" in logger.errors[-1]
