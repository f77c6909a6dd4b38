"""One run of an engine over arrays of the host, for programs that show something else."""

from __future__ import annotations

import numpy as np
import tensorrt as trt
from common import check
from cuda.bindings import runtime as cudart


def run(engine: trt.ICudaEngine, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name. Raises RuntimeError for shapes out of the profile, and if it fails."""
    context, kinds = engine.create_execution_context(), cudart.cudaMemcpyKind
    for name, array in inputs.items():
        if not context.set_input_shape(name, array.shape):
            raise RuntimeError(f"{name} cannot be {array.shape}")
    outputs = {
        name: np.empty(
            tuple(context.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name))
        )
        for name in engine
        if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT
    }
    stream, memory = check(cudart.cudaStreamCreate()), {}
    for name, array in (inputs | outputs).items():
        memory[name] = check(cudart.cudaMalloc(array.nbytes))
        context.set_tensor_address(name, memory[name])
    for name, array in inputs.items():
        source, kind = np.ascontiguousarray(array), kinds.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(memory[name], source.ctypes.data, source.nbytes, kind))
    if not context.execute_async_v3(int(stream)):
        raise RuntimeError("the engine failed")
    check(cudart.cudaStreamSynchronize(stream))
    for name, array in outputs.items():
        kind = kinds.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(array.ctypes.data, memory[name], array.nbytes, kind))
    for address in memory.values():
        check(cudart.cudaFree(address))
    check(cudart.cudaStreamDestroy(stream))
    return outputs
