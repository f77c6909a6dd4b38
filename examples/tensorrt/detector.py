"""A detector in the form of YOLO: an image to boxes, with letterbox and non-maximum suppression in numpy.

The engine is kept beside the model: a second run finds it there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorrt as trt
from common import LOGGER, arguments, build, check
from cuda.bindings import runtime as cudart

SCORE, OVERLAP = 0.6, 0.45


@dataclass
class Buffer:
    """An input or output on the host and on the device."""

    name: str
    host: np.ndarray
    device: int

    @classmethod
    def of(cls, engine: trt.ICudaEngine, name: str) -> Buffer:
        shape, dtype = engine.get_tensor_shape(name), trt.nptype(engine.get_tensor_dtype(name))
        host = np.zeros(tuple(shape), dtype)
        return cls(name, host, check(cudart.cudaMalloc(host.nbytes)))


class Detector:
    """An engine, its context and its buffers."""

    def __init__(self, engine: trt.ICudaEngine) -> None:
        self.engine = engine
        self.context = engine.create_execution_context()
        self.stream = check(cudart.cudaStreamCreate())
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        for i in range(engine.num_io_tensors):
            buffer = Buffer.of(engine, engine.get_tensor_name(i))
            is_input = engine.get_tensor_mode(buffer.name) == trt.TensorIOMode.INPUT
            (self.inputs if is_input else self.outputs).append(buffer)
            self.context.set_tensor_address(buffer.name, buffer.device)

    def infer(self, batch: np.ndarray) -> np.ndarray:
        """The first output for the first input."""
        (x,), (y,) = self.inputs, self.outputs
        np.copyto(x.host, batch)
        to_device, to_host = (
            cudart.cudaMemcpyKind.cudaMemcpyHostToDevice,
            cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost,
        )
        check(
            cudart.cudaMemcpyAsync(
                x.device, x.host.ctypes.data, x.host.nbytes, to_device, self.stream
            )
        )
        if not self.context.execute_async_v3(int(self.stream)):
            raise RuntimeError("the engine failed")
        check(
            cudart.cudaMemcpyAsync(
                y.host.ctypes.data, y.device, y.host.nbytes, to_host, self.stream
            )
        )
        check(cudart.cudaStreamSynchronize(self.stream))
        return y.host.copy()

    def close(self) -> None:
        for buffer in (*self.inputs, *self.outputs):
            check(cudart.cudaFree(buffer.device))
        check(cudart.cudaStreamDestroy(self.stream))


def letterbox(image: np.ndarray, size: int) -> tuple[np.ndarray, float, tuple[int, int]]:
    """An image (height, width, 3) of bytes as (1, 3, size, size) of 0 to 1, its scale and its margins (x, y)."""
    height, width = image.shape[:2]
    scale = min(size / height, size / width)
    rows = (np.arange(round(height * scale)) / scale).astype(int).clip(0, height - 1)
    columns = (np.arange(round(width * scale)) / scale).astype(int).clip(0, width - 1)
    small = image[rows][:, columns]
    left, top = (size - small.shape[1]) // 2, (size - small.shape[0]) // 2
    canvas = np.full((size, size, 3), 114, np.uint8)
    canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    return canvas.transpose(2, 0, 1)[None].astype(np.float32) / 255.0, scale, (left, top)


def boxes_of(output: np.ndarray, scale: float, margin: tuple[int, int]) -> np.ndarray:
    """Rows x0, y0, x1, y1, score, class in pixels of the image, the best first."""
    found = output[0].T
    scores, kinds = found[:, 4:].max(axis=1), found[:, 4:].argmax(axis=1)
    centre, half = found[:, :2] - margin, found[:, 2:4] / 2
    rows = np.column_stack([(centre - half) / scale, (centre + half) / scale, scores, kinds])
    rows = rows[scores > SCORE]
    return suppressed(rows[np.argsort(-rows[:, 4], kind="stable")])


def suppressed(rows: np.ndarray) -> np.ndarray:
    """Without boxes that a better one of their class covers."""
    kept: list[np.ndarray] = []
    for row in rows:
        if all(row[5] != other[5] or overlap(row, other) < OVERLAP for other in kept):
            kept.append(row)
    return np.array(kept).reshape(-1, 6)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union."""
    inner = np.clip(np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2]), 0, None).prod()
    return float(inner / ((a[2:4] - a[:2]).prod() + (b[2:4] - b[:2]).prod() - inner))


def main() -> None:
    args = arguments(__doc__)
    plan = args.model.with_suffix(".engine")
    if plan.exists():
        engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan.read_bytes())
    else:
        engine = build(args.model, args.level)
        plan.write_bytes(bytes(engine.serialize()))
    image = np.random.default_rng(0).integers(0, 256, (48, 80, 3), np.uint8)
    size = engine.get_tensor_shape("images")[-1]
    batch, scale, margin = letterbox(image, size)
    detector = Detector(engine)
    output = detector.infer(batch)
    detector.close()
    boxes = boxes_of(output, scale, margin)
    for x0, y0, x1, y1, score, kind in boxes:
        print(f"class {int(kind)} {score:.2f}: ({x0:.1f}, {y0:.1f}) to ({x1:.1f}, {y1:.1f})")
    if args.output:
        np.savez(args.output, images=batch, output0=output, boxes=boxes)


if __name__ == "__main__":
    main()
