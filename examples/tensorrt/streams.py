"""Batches in turns on two streams of cuda-python: while one is computed, the other's images are copied."""

from __future__ import annotations

import ctypes

import numpy as np
import tensorrt as trt
from common import arguments, build, check
from cuda.bindings import runtime as cudart

STREAMS, BATCHES, BATCH = 2, 6, 4
IMAGES = (BATCH, 3, 32, 32)


def pinned(shape: tuple[int, ...]) -> np.ndarray:
    """An array in page-locked memory of the host, without which copies wait for the host."""
    size = 4 * int(np.prod(shape))
    address = int(check(cudart.cudaMallocHost(size)))
    memory = (ctypes.c_byte * size).from_address(address)
    return np.frombuffer(memory, np.float32).reshape(shape)


class Lane:
    """A stream with a context and memory of its own."""

    def __init__(self, engine: trt.ICudaEngine) -> None:
        self.stream = check(cudart.cudaStreamCreate())
        self.begun, self.done = check(cudart.cudaEventCreate()), check(cudart.cudaEventCreate())
        self.context = engine.create_execution_context()
        self.context.set_input_shape("images", IMAGES)
        self.images, self.scores = (
            pinned(IMAGES),
            pinned(tuple(self.context.get_tensor_shape("scores"))),
        )
        self.device_images = check(cudart.cudaMalloc(self.images.nbytes))
        self.device_scores = check(cudart.cudaMalloc(self.scores.nbytes))
        self.context.set_tensor_address("images", self.device_images)
        self.context.set_tensor_address("scores", self.device_scores)

    def start(self, images: np.ndarray) -> None:
        """Launch copies and the engine; returns before they are done."""
        kinds = cudart.cudaMemcpyKind
        np.copyto(self.images, images)
        check(cudart.cudaEventRecord(self.begun, self.stream))
        x, y = self.images, self.scores
        check(
            cudart.cudaMemcpyAsync(
                self.device_images,
                x.ctypes.data,
                x.nbytes,
                kinds.cudaMemcpyHostToDevice,
                self.stream,
            )
        )
        if not self.context.execute_async_v3(int(self.stream)):
            raise RuntimeError("the engine failed")
        check(
            cudart.cudaMemcpyAsync(
                y.ctypes.data,
                self.device_scores,
                y.nbytes,
                kinds.cudaMemcpyDeviceToHost,
                self.stream,
            )
        )
        check(cudart.cudaEventRecord(self.done, self.stream))

    def finish(self) -> tuple[np.ndarray, float]:
        """The scores, and the milliseconds between the launch's first and last mark."""
        check(cudart.cudaEventSynchronize(self.done))
        return self.scores.copy(), check(cudart.cudaEventElapsedTime(self.begun, self.done))

    def close(self) -> None:
        check(cudart.cudaStreamSynchronize(self.stream))
        for address in (self.device_images, self.device_scores):
            check(cudart.cudaFree(address))
        for array in (self.images, self.scores):
            check(cudart.cudaFreeHost(array.ctypes.data))
        for event in (self.begun, self.done):
            check(cudart.cudaEventDestroy(event))
        check(cudart.cudaStreamDestroy(self.stream))


def main() -> None:
    args = arguments(__doc__)
    engine = build(args.model, args.level, [{"images": (IMAGES, IMAGES, IMAGES)}])
    lanes = [Lane(engine) for _ in range(STREAMS)]
    batches = np.random.default_rng(1).standard_normal((BATCHES, *IMAGES)).astype(np.float32)
    found: list[np.ndarray] = []
    for i, batch in enumerate(batches):
        if i >= STREAMS:
            scores, ms = lanes[i % STREAMS].finish()
            print(f"batch {i - STREAMS}: {ms:.3f} ms")
            found.append(scores)
        lanes[i % STREAMS].start(batch)
    found += [lanes[i % STREAMS].finish()[0] for i in range(BATCHES - STREAMS, BATCHES)]
    for lane in lanes:
        lane.close()
    if args.output:
        np.savez(args.output, images=batches, scores=np.stack(found))


if __name__ == "__main__":
    main()
