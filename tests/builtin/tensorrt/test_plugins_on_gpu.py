"""Plugins on a GPU: addresses of its memory, its streams, and kernels that a build compiles."""

from __future__ import annotations

import numpy as np
import pytest
from trt_logger import Kept
from trt_plugins import Creator, PluginV3, registered

from tactix_tensorrt import api as trt
from tactix_tensorrt.api import plugin as trtp

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


class Memory:
    """Addresses as torch takes them."""

    def __init__(
        self, address: int, desc: trt.PluginTensorDesc, shape: tuple[int, ...] = ()
    ) -> None:
        kind = np.dtype(trt.nptype(desc.type)).str
        shape = shape or tuple(desc.dims)
        place = {"data": (address, False), "version": 3}
        self.__cuda_array_interface__ = {"shape": shape, "typestr": kind, **place}


def seen(address: int, desc: trt.PluginTensorDesc, shape: tuple[int, ...] = ()) -> object:
    return torch.as_tensor(Memory(address, desc, shape), device="cuda")


class Twice(PluginV3):
    """By two tactics, the first of which takes longer."""

    def __init__(self, fields: object = (), phase: object = None) -> None:
        super().__init__("Twice")

    def get_valid_tactics(self) -> list[int]:
        return [1, 2]

    def enqueue(self, given, made, inputs, outputs, workspace, stream):
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            x, y = seen(inputs[0], given[0]), seen(outputs[0], made[0])
            for _ in range(60 if self.tactic == 1 else 1):
                y.copy_(x)
            y.mul_(2)


class Increment(PluginV3):
    def __init__(self, fields: object = (), phase: object = None) -> None:
        super().__init__("Increment")

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def enqueue(self, given, made, inputs, outputs, workspace, stream):
        assert inputs[0] == outputs[0]
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            seen(outputs[0], made[0]).add_(1)


@trtp.register("gpu::non_zero")
def non_zero_desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    upper = x.shape_expr[0] * x.shape_expr[1]
    size = trtp.size_tensor(upper // 2, upper)
    return trtp.from_shape_expr((size.expr(), 2), dtype=trt.int32), size


@trtp.impl("gpu::non_zero")
def non_zero(x, outputs, stream):
    found = torch.nonzero(torch.as_tensor(x, device="cuda")).int()
    torch.as_tensor(outputs[0].aliased(tuple(found.shape)), device="cuda").copy_(found)
    torch.as_tensor(outputs[1], device="cuda").fill_(len(found))


SOURCE = """
extern "C" __global__ void scale(const float* x, int n, int by, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
"""


@trtp.register("gpu::scale")
def scale_desc(x: trtp.TensorDesc, by: int) -> trtp.TensorDesc:
    return x.like()


@trtp.aot_impl("gpu::scale")
def scale(x, by, outputs, tactic):
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"scale.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
    assert int(status) == 0
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    count = x.shape_expr.numel()
    launch = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 128), block_x=128)
    numbers = trtp.SymIntExprs.from_tuple([trtp.SymInt32(count), by])
    return "scale", ptx.rstrip(b" \0"), launch, numbers


def built(net, config, logger) -> trt.ICudaEngine:
    engine = net.builder.build_engine_with_config(net, config)
    assert engine is not None, logger.errors
    return engine


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cuda")


def opened(net: trt.INetworkDefinition, config: trt.IBuilderConfig) -> trt.ITensor:
    profile = net.builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (64, 8), (999, 8))
    config.add_optimization_profile(profile)
    return net.add_input("x", trt.float32, (-1, 8))


def run(engine: trt.ICudaEngine, x: object, y: object) -> None:
    context = engine.create_execution_context()
    assert context.set_input_shape("x", tuple(x.shape))
    for name, tensor in {"x": x, "y": y}.items():
        assert context.set_tensor_address(name, tensor.data_ptr())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    assert context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()


def out(layer: trt.ILayer) -> None:
    layer.get_output(0).name = "y"
    layer.network.mark_output(layer.get_output(0))


def test_tactics_and_aliases_in_a_stream(network, config, logger: Kept) -> None:
    config.builder_optimization_level = 3
    with registered(Creator(Twice), Creator(Increment)):
        twice = network.add_plugin_v3([opened(network, config)], [], Twice())
        relu = network.add_activation(twice.get_output(0), trt.ActivationType.RELU)
        out(network.add_plugin_v3([relu.get_output(0)], [], Increment()))
        engine = built(network, config, logger)
        steps = [s for s in engine.native.plan.steps if "plugin" in s.artifact.params]
        assert [s.artifact.params["tactic"] for s in steps] == [2, 0]
        for rows in (3, 700):
            x = torch.randn(rows, 8, device="cuda")
            y = torch.zeros_like(x)
            run(engine, x, y)
            assert torch.equal(y, torch.relu(2 * x) + 1)


def test_a_size_that_the_run_tells(network, config, logger: Kept) -> None:
    out(network.add_plugin(trtp.op.gpu.non_zero(network.add_input("x", trt.float32, (5, 7)))))
    x = torch.relu(torch.randn(5, 7, device="cuda"))
    y = torch.zeros(35, 2, dtype=torch.int32, device="cuda")
    run(built(network, config, logger), x, y)
    found = torch.nonzero(x).int()
    assert torch.equal(y[: len(found)], found)


def test_a_kernel_that_the_build_compiles_needs_nothing_of_the_program(
    network, config, logger: Kept
) -> None:
    out(network.add_plugin(trtp.op.gpu.scale(opened(network, config), by=3)))
    engine = built(network, config, logger)
    assert [s.artifact.launcher for s in engine.native.plan.steps] == ["tactix.cuda.cubin@1"]
    for rows in (3, 700):
        x = torch.randn(rows, 8, device="cuda")
        y = torch.zeros_like(x)
        run(engine, x, y)
        assert torch.equal(y, 3 * x)
