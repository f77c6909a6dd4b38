"""Outputs as long as the data want them: an output allocator gives memory when the engine knows how much."""

from __future__ import annotations

import numpy as np
import tensorrt as trt
from common import arguments, build, check
from cuda.bindings import runtime as cudart

LONGEST = 4096


class Growing(trt.IOutputAllocator):
    """Memory for one output; it grows and is kept for the next run."""

    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.address, self.size, self.shape = 0, 0, ()

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        if size > self.size:
            self.free()
            self.address, self.size = check(cudart.cudaMalloc(size)), size
        return self.address

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = tuple(shape)

    def fetch(self, dtype: type) -> np.ndarray:
        """The output as an array of the host."""
        out = np.empty(self.shape, dtype)
        if out.nbytes:
            kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
            check(cudart.cudaMemcpy(out.ctypes.data, self.address, out.nbytes, kind))
        return out

    def free(self) -> None:
        if self.address:
            check(cudart.cudaFree(self.address))
        self.address, self.size = 0, 0


def main() -> None:
    args = arguments(__doc__)
    engine = build(args.model, args.level, [{"signal": ((1,), (256,), (LONGEST,))}])
    context, stream = engine.create_execution_context(), check(cudart.cudaStreamCreate())
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    outputs = {n: Growing() for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.OUTPUT}
    for name, allocator in outputs.items():
        context.set_output_allocator(name, allocator)
    signal_memory = check(cudart.cudaMalloc(4 * LONGEST))
    context.set_tensor_address("signal", signal_memory)

    rng, saved = np.random.default_rng(0), {}
    for i, length in enumerate((10, 1000, 100)):
        signal = rng.standard_normal(length).astype(np.float32)
        context.set_input_shape("signal", signal.shape)
        kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(
            cudart.cudaMemcpyAsync(signal_memory, signal.ctypes.data, signal.nbytes, kind, stream)
        )
        if not context.execute_async_v3(int(stream)):
            raise RuntimeError("the engine failed")
        check(cudart.cudaStreamSynchronize(stream))
        arrays = {
            name: a.fetch(trt.nptype(engine.get_tensor_dtype(name))) for name, a in outputs.items()
        }
        print(f"{len(arrays['values'])} of {length} samples are above 1")
        saved |= {f"{i}.signal": signal, **{f"{i}.{name}": x for name, x in arrays.items()}}

    for allocator in outputs.values():
        allocator.free()
    check(cudart.cudaFree(signal_memory))
    check(cudart.cudaStreamDestroy(stream))
    if args.output:
        np.savez(args.output, **saved)


if __name__ == "__main__":
    main()
