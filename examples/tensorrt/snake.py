"""A quick plugin: the activation Snake, x + sin(alpha x)^2 / alpha, behind a model that a parser read.

On a GPU the build compiles a kernel, and the engine needs nothing of this program. Where tactix runs without one, the
engine calls a function of Python.
"""

# Without the import of annotations from __future__: TensorRT reads them off the parameters.

import numpy as np
import tensorrt as trt
import tensorrt.plugin as trtp
from common import LOGGER, arguments, build_network, check, parse
from cuda.bindings import runtime as cudart
from once import run

ALPHA = 0.5
LONGEST = 4096
THREADS = 256
SOURCE = b"""
extern "C" __global__ void snake(const float* x, int count, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float wave = sinf(ALPHA * x[i]);
    y[i] = x[i] + wave * wave / ALPHA;
}
"""


@trtp.register("examples::snake")
def snake_desc(x: trtp.TensorDesc, alpha: float) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("examples::snake")
def snake(x: trtp.Tensor, alpha: float, outputs: tuple[trtp.Tensor], stream: int) -> None:
    """By numpy, between copies to the host and back."""
    host = np.empty(tuple(x.shape), trt.nptype(x.dtype))
    kind = cudart.cudaMemcpyKind.cudaMemcpyDefault
    check(cudart.cudaMemcpyAsync(host.ctypes.data, x.data_ptr, host.nbytes, kind, stream))
    check(cudart.cudaStreamSynchronize(stream))
    host += np.sin(alpha * host) ** 2 / alpha
    y = outputs[0].data_ptr
    check(cudart.cudaMemcpyAsync(y, host.ctypes.data, host.nbytes, kind, stream))
    check(cudart.cudaStreamSynchronize(stream))


@trtp.aot_impl("examples::snake")
def snake_kernel(
    x: trtp.TensorDesc, alpha: float, outputs: tuple[trtp.TensorDesc], tactic: int
) -> tuple[bytes, bytes, trtp.KernelLaunchParams, trtp.SymIntExprs]:
    """Name, PTX, launch, and the numbers between the pointers."""
    count, launch = x.shape_expr.numel(), trtp.KernelLaunchParams()
    launch.grid_x, launch.block_x = trtp.cdiv(count, THREADS), THREADS
    numbers = trtp.SymIntExprs.from_tuple([trtp.SymInt32(count)])
    return b"snake", compiled(alpha), launch, numbers


def compiled(alpha: float) -> bytes:
    """The kernel's PTX. Raises RuntimeError."""
    from cuda.bindings import nvrtc

    program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"snake.cu", 0, [], []))
    options = [b"--gpu-architecture=compute_80", f"-DALPHA={alpha}f".encode()]
    check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    check(nvrtc.nvrtcDestroyProgram(program))
    return ptx.rstrip(b"\0")


def main() -> None:
    args = arguments(__doc__)
    builder = trt.Builder(LOGGER)
    flag = trt.NetworkDefinitionCreationFlag.PREFER_AOT_PYTHON_PLUGINS
    network = builder.create_network(1 << int(flag))
    parse(network, args.model)
    last = network.get_output(0)
    network.unmark_output(last)
    layer = network.add_plugin(trtp.op.examples.snake(last, alpha=ALPHA))
    layer.get_output(0).name = "activated"
    network.mark_output(layer.get_output(0))
    profile = {"signal": tuple((1, 1, n) for n in (16, 256, LONGEST))}
    engine = build_network(builder, network, args.level, [profile])
    rng, saved = np.random.default_rng(0), {}
    for i, samples in enumerate((100, 1000)):
        signal = rng.standard_normal((1, 1, samples)).astype(np.float32)
        found = run(engine, {"signal": signal})["activated"]
        print(f"{samples} samples: mean {found.mean():.3f}")
        saved |= {f"{i}.signal": signal, f"{i}.activated": found}
    if args.output:
        np.savez(args.output, **saved)


if __name__ == "__main__":
    main()
