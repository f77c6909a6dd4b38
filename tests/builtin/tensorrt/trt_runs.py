"""Builds and runs as programs do them."""

from __future__ import annotations

import numpy as np
from trt_logger import Kept
from trt_plugins import at

from tactix_tensorrt import api as trt

Array = np.ndarray


def run(engine: trt.ICudaEngine, feeds: dict[str, Array]) -> dict[str, Array]:
    """What an engine gives, each output in memory of the program's or of an allocator's."""

    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory: dict[str, Array] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            self.memory[name] = np.zeros(max(1, size), np.uint8)
            return self.memory[name].ctypes.data

        def notify_shape(self, name: str, shape: trt.Dims) -> None:
            self.shapes[name] = tuple(shape)

    context, allocator = engine.create_execution_context(), Allocator()
    for name, array in feeds.items():
        assert context.set_input_shape(name, array.shape)
        assert context.set_tensor_address(name, array.ctypes.data)
    outputs = [n for n in engine if engine.get_tensor_mode(n) == trt.TensorIOMode.OUTPUT]
    for name in outputs:
        context.set_output_allocator(name, allocator)
    assert context.execute_async_v3(0)
    return {
        n: at(
            allocator.memory[n].ctypes.data, allocator.shapes[n], engine.get_tensor_dtype(n)
        ).copy()
        for n in outputs
    }


def built(net: trt.INetworkDefinition, config: trt.IBuilderConfig, logger: Kept) -> trt.ICudaEngine:
    plan = net.builder.build_serialized_network(net, config)
    assert plan is not None, logger.errors
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    assert engine is not None, logger.errors
    return engine
