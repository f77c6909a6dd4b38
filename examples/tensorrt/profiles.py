"""One engine, a context for each of its profiles: single images at once, batches beside them."""

from __future__ import annotations

import numpy as np
import tensorrt as trt
from common import arguments, build, check
from cuda.bindings import runtime as cudart

IMAGE = (3, 32, 32)
PROFILES = {"single": (1, 1, 1), "small": (2, 4, 8), "large": (9, 16, 32)}
"""Images in a batch: lowest, the number to tune for, highest."""


def contexts_of(engine: trt.ICudaEngine, stream: int) -> dict[str, trt.IExecutionContext]:
    """A context for each profile, by its name."""
    out = {}
    for index, name in enumerate(PROFILES):
        low, opt, high = engine.get_tensor_profile_shape("images", index)
        print(f"{name}: {low[0]} to {high[0]} images, tuned for {opt[0]}")
        out[name] = engine.create_execution_context()
        if not out[name].set_optimization_profile_async(index, stream):
            raise RuntimeError(f"no profile {index}")
    return out


def profile_of(batch: int) -> str:
    return next(name for name, (low, _, high) in PROFILES.items() if low <= batch <= high)


def launch(
    context: trt.IExecutionContext, images: np.ndarray, stream: int
) -> tuple[int, int, np.ndarray]:
    """Start a batch; addresses of its memory, and the scores that will be there."""
    kinds = cudart.cudaMemcpyKind
    if not context.set_input_shape("images", images.shape):
        raise RuntimeError(f"{images.shape} is not within the profile")
    scores = np.empty(tuple(context.get_tensor_shape("scores")), np.float32)
    x, y = check(cudart.cudaMalloc(images.nbytes)), check(cudart.cudaMalloc(scores.nbytes))
    context.set_tensor_address("images", x)
    context.set_tensor_address("scores", y)
    to_device, to_host = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
    check(cudart.cudaMemcpyAsync(x, images.ctypes.data, images.nbytes, to_device, stream))
    if not context.execute_async_v3(int(stream)):
        raise RuntimeError("the engine failed")
    check(cudart.cudaMemcpyAsync(scores.ctypes.data, y, scores.nbytes, to_host, stream))
    return x, y, scores


def main() -> None:
    args = arguments(__doc__)
    shapes = [{"images": tuple((n, *IMAGE) for n in sizes)} for sizes in PROFILES.values()]
    engine = build(args.model, args.level, shapes)
    stream = check(cudart.cudaStreamCreate())
    contexts = contexts_of(engine, int(stream))
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((n, *IMAGE)).astype(np.float32) for n in (1, 8, 20)]
    running = [launch(contexts[profile_of(len(b))], b, stream) for b in batches]
    check(cudart.cudaStreamSynchronize(stream))
    saved: dict[str, np.ndarray] = {}
    for i, (batch, (x, y, scores)) in enumerate(zip(batches, running, strict=True)):
        print(
            f"{len(batch)} images by {profile_of(len(batch))}: classes {scores.argmax(axis=1).tolist()}"
        )
        saved |= {f"{i}.images": batch, f"{i}.scores": scores}
        for address in (x, y):
            check(cudart.cudaFree(address))
    check(cudart.cudaStreamDestroy(stream))
    if args.output:
        np.savez(args.output, **saved)


if __name__ == "__main__":
    main()
