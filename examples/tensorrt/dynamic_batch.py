"""A classifier with any number of images in a batch, on pycuda's memory and streams."""

from __future__ import annotations

import numpy as np
import pycuda.autoinit  # makes a context
import pycuda.driver as cuda
import tensorrt as trt
from common import arguments, build

MOST = 8


class Classifier:
    """An engine with memory for the largest batch."""

    def __init__(self, engine: trt.ICudaEngine) -> None:
        self.engine, self.context, self.stream = (
            engine,
            engine.create_execution_context(),
            cuda.Stream(),
        )
        self.host, self.device = {}, {}
        for i in range(engine.num_io_tensors):
            name = engine.get_tensor_name(i)
            shape = (MOST, *engine.get_tensor_shape(name)[1:])
            self.host[name] = cuda.pagelocked_empty(
                trt.volume(shape), trt.nptype(engine.get_tensor_dtype(name))
            )
            self.device[name] = cuda.mem_alloc(self.host[name].nbytes)
            self.context.set_tensor_address(name, int(self.device[name]))

    def scores(self, images: np.ndarray) -> np.ndarray:
        """Of a batch of 1 to MOST images."""
        np.copyto(self.host["images"][: images.size], images.ravel())
        self.context.set_input_shape("images", images.shape)
        shape = tuple(self.context.get_tensor_shape("scores"))
        cuda.memcpy_htod_async(
            self.device["images"], self.host["images"][: images.size], self.stream
        )
        if not self.context.execute_async_v3(stream_handle=self.stream.handle):
            raise RuntimeError("the engine failed")
        out = self.host["scores"][: trt.volume(shape)]
        cuda.memcpy_dtoh_async(out, self.device["scores"], self.stream)
        self.stream.synchronize()
        return out.reshape(shape).copy()


def main() -> None:
    args = arguments(__doc__)
    images = (3, 32, 32)
    engine = build(
        args.model, args.level, [{"images": ((1, *images), (4, *images), (MOST, *images))}]
    )
    print(f"on {pycuda.autoinit.device.name()}")
    classifier = Classifier(engine)
    rng, saved = np.random.default_rng(0), {}
    for i, batch in enumerate((1, 5, MOST)):
        x = rng.standard_normal((batch, *images)).astype(np.float32)
        scores = classifier.scores(x)
        print(f"{batch} images: classes {scores.argmax(axis=1).tolist()}")
        saved |= {f"{i}.images": x, f"{i}.scores": scores}
    if args.output:
        np.savez(args.output, **saved)


if __name__ == "__main__":
    main()
