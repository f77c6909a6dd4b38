"""Programs with "device" memory, streams and copies, on the stand-in for CUDA: from an array to the
engine's answers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest

from tactix_tensorrt import api as trt
from tactix_tensorrt import cuda_stand_in

X = np.random.default_rng(2).standard_normal((2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    cuda_stand_in.install(force=True)
    yield
    cuda_stand_in.uninstall()


@pytest.fixture
def context(engine: trt.ICudaEngine) -> trt.IExecutionContext:
    made = engine.create_execution_context()
    assert made.set_input_shape("x", X.shape)
    return made


@pytest.fixture
def expected(model: bytes) -> np.ndarray:
    return onnxruntime.InferenceSession(model).run(None, {"x": X})[0]


def test_pycuda(context: trt.IExecutionContext, expected: np.ndarray) -> None:
    import pycuda.autoinit
    import pycuda.driver as cuda

    assert pycuda.autoinit.context is not None
    host = cuda.pagelocked_empty(trt.volume(context.get_tensor_shape("y")), np.float32)
    inputs, outputs, stream = cuda.mem_alloc(X.nbytes), cuda.mem_alloc(host.nbytes), cuda.Stream()
    cuda.memcpy_htod_async(inputs, X, stream)
    context.set_tensor_address("x", int(inputs))
    context.set_tensor_address("y", int(outputs))
    assert context.execute_async_v3(stream_handle=stream.handle)
    cuda.memcpy_dtoh_async(host, outputs, stream)
    stream.synchronize()
    np.testing.assert_allclose(host.reshape(2, 4), expected, rtol=1e-4, atol=1e-5)
    assert context.execute_v2([int(inputs), int(outputs)])


def test_cuda_python(context: trt.IExecutionContext, expected: np.ndarray) -> None:
    from cuda import cudart

    kinds = cudart.cudaMemcpyKind
    stream = cudart.cudaStreamCreate()[1]
    inputs, outputs = (cudart.cudaMalloc(n)[1] for n in (X.nbytes, expected.nbytes))
    cudart.cudaMemcpyAsync(inputs, X, X.nbytes, kinds.cudaMemcpyHostToDevice, stream)
    context.set_tensor_address("x", inputs)
    context.set_tensor_address("y", outputs)
    assert context.execute_async_v3(stream)
    host = np.zeros_like(expected)
    cudart.cudaMemcpyAsync(host, outputs, host.nbytes, kinds.cudaMemcpyDeviceToHost, stream)
    assert cudart.cudaStreamSynchronize(stream) == (cudart.cudaError_t.cudaSuccess,)
    np.testing.assert_allclose(host, expected, rtol=1e-4, atol=1e-5)
    assert cudart.cudaFree(inputs) == cudart.cudaFree(outputs) == cudart.cudaStreamDestroy(stream)


def test_ctypes(context: trt.IExecutionContext, expected: np.ndarray) -> None:
    cudart = ctypes.CDLL("libcudart.so")
    places = {name: ctypes.c_void_p() for name in ("x", "y")}
    host = np.zeros_like(expected)
    for (name, place), size in zip(places.items(), (X.nbytes, host.nbytes), strict=True):
        assert cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size)) == 0
        context.set_tensor_address(name, place.value)
    assert cudart.cudaMemcpy(places["x"], X.ctypes.data, X.nbytes, 1) == 0
    assert context.execute_async_v3(0)
    assert cudart.cudaMemcpy(host.ctypes.data, places["y"], host.nbytes, 2) == 0
    np.testing.assert_allclose(host, expected, rtol=1e-4, atol=1e-5)
    assert cudart.cudaFree(places["x"]) == cudart.cudaFree(places["y"]) == 0
