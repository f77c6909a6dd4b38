"""Runs look whether tensors have room in what the stand-in for CUDA has allocated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt
from tactix_tensorrt.cuda_stand_in import runtime

ROW = 64 * 4
"""Bytes of a sample."""


def device_memory(size: int) -> int:
    status, address = runtime.cudaMalloc(size)
    assert int(status) == 0
    assert address is not None
    return int(address)


def copied(address: int, array: np.ndarray) -> int:
    way = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    assert int(runtime.cudaMemcpy(address, array.ctypes.data, array.nbytes, way)[0]) == 0
    return address


@pytest.fixture
def engine() -> trt.ICudaEngine:
    logger = Kept()
    builder = trt.Builder(logger)
    net, config = builder.create_network(0), builder.create_builder_config()
    config.builder_optimization_level = 0
    x = net.add_input("x", trt.float32, (-1, 64))
    y = net.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    net.mark_output(y)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 64), (2, 64), (1024, 64))
    config.add_optimization_profile(profile)
    return built(net, config, logger)


def context_of(engine: trt.ICudaEngine) -> tuple[trt.IExecutionContext, Kept]:
    context, logger = engine.create_execution_context(), Kept()
    assert context is not None
    context._logger = logger
    return context, logger


def by_name(context: trt.IExecutionContext, x: int, y: int) -> bool:
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", y)
    return context.execute_async_v3(0)


def by_order(context: trt.IExecutionContext, x: int, y: int) -> bool:
    return context.execute_v2([x, y])


Call = Callable[[trt.IExecutionContext, int, int], bool]


@pytest.mark.parametrize("call", [by_name, by_order])
def test_an_output_without_room_is_not_written(engine: trt.ICudaEngine, call: Call) -> None:
    context, logger = context_of(engine)
    x, y = device_memory(4 * ROW), device_memory(2 * ROW)
    copied(x, np.full(4 * 64, 3, np.float32))
    assert context.set_input_shape("x", (4, 64))
    assert not call(context, x, y)
    (line,) = logger.errors
    assert f"'y' needs {4 * ROW} bytes" in line
    assert f"{2 * ROW} are there" in line
    assert context.set_input_shape("x", (2, 64))
    assert call(context, x, y)
    assert not call(context, x + 3 * ROW, y)
    assert f"'x' needs {2 * ROW} bytes" in logger.errors[-1]
    runtime.cudaFree(x)
    runtime.cudaFree(y)


@pytest.mark.parametrize("call", [by_name, by_order])
def test_freed_memory_is_not_read(engine: trt.ICudaEngine, call: Call) -> None:
    context, logger = context_of(engine)
    x, y = device_memory(1024 * ROW), device_memory(1024 * ROW)
    assert context.set_input_shape("x", (1024, 64))
    assert call(context, x, y)
    assert int(runtime.cudaFree(x)[0]) == 0
    assert not call(context, x, y)
    assert f"'x' needs {1024 * ROW} bytes" in logger.errors[-1]
    runtime.cudaFree(y)


def test_memory_of_the_programs_own_is_taken(engine: trt.ICudaEngine) -> None:
    context, logger = context_of(engine)
    x, y = np.full((2, 64), -1, np.float32), np.ones((2, 64), np.float32)
    kept = device_memory(1)
    assert context.set_input_shape("x", (2, 64))
    assert by_name(context, x.ctypes.data, y.ctypes.data)
    assert logger.errors == []
    assert not y.any()
    runtime.cudaFree(kept)
