"""Programs of TensorRT, on the processor, with builds that measure nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tactix_tensorrt import api as trt

sys.path.insert(0, str(Path(__file__).parent))

from trt_logger import Kept


@pytest.fixture(autouse=True)
def on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def as_registered() -> Iterator[None]:
    """What a test registers is gone after it."""
    registry = trt.get_plugin_registry()
    before = registry.all_creators
    yield
    for creator in registry.all_creators:
        if creator not in before:
            registry.deregister_creator(creator)


@pytest.fixture
def logger() -> Kept:
    return Kept()


@pytest.fixture
def builder(logger: Kept) -> trt.Builder:
    return trt.Builder(logger)


@pytest.fixture
def network(builder: trt.Builder) -> trt.INetworkDefinition:
    return builder.create_network(0)


@pytest.fixture
def config(builder: trt.Builder) -> trt.IBuilderConfig:
    out = builder.create_builder_config()
    out.builder_optimization_level = 0
    return out


@pytest.fixture(scope="session")
def model() -> bytes:
    """x: f32(n, 3, 8, 8); y: f32(n, 4), a convolution, a Relu, a mean and a product."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((5, 3, 3, 3)).astype(np.float32),
        "m": rng.standard_normal((5, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r", "axes"], ["p"], "pool", keepdims=0),
        helper.make_node("MatMul", ["p", "m"], ["y"], "head"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    stored = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    stored.append(numpy_helper.from_array(np.array([2, 3]), "axes"))
    graph = helper.make_graph(nodes, "net", [x], [y], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return made.SerializeToString()


@pytest.fixture
def parsed(network: trt.INetworkDefinition, logger: Kept, model: bytes) -> trt.INetworkDefinition:
    """The network of the model."""
    assert trt.OnnxParser(network, logger).parse(model)
    return network


@pytest.fixture
def profiled(builder: trt.Builder, config: trt.IBuilderConfig) -> trt.IBuilderConfig:
    """A configuration for batches of 1 to 4."""
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    assert config.add_optimization_profile(profile) == 0
    return config


@pytest.fixture
def engine(
    builder: trt.Builder,
    parsed: trt.INetworkDefinition,
    profiled: trt.IBuilderConfig,
    logger: Kept,
) -> trt.ICudaEngine:
    """The model's engine, through a serialized plan."""
    plan = builder.build_serialized_network(parsed, profiled)
    assert plan is not None, logger.errors
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    assert engine is not None, logger.errors
    return engine
