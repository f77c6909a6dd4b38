"""Other weights for an engine that is there: the classifier's last layer, while its context lives on."""

from __future__ import annotations

import numpy as np
import tensorrt as trt
from common import LOGGER, arguments, build, check
from cuda.bindings import runtime as cudart

IMAGES = (2, 3, 32, 32)


class Runner:
    """One context, run on arrays of the host."""

    def __init__(self, engine: trt.ICudaEngine) -> None:
        self.context = engine.create_execution_context()
        self.context.set_input_shape("images", IMAGES)
        self.shape = tuple(self.context.get_tensor_shape("scores"))

    def scores(self, images: np.ndarray) -> np.ndarray:
        kinds, out = cudart.cudaMemcpyKind, np.empty(self.shape, np.float32)
        x, y = check(cudart.cudaMalloc(images.nbytes)), check(cudart.cudaMalloc(out.nbytes))
        check(cudart.cudaMemcpy(x, images.ctypes.data, images.nbytes, kinds.cudaMemcpyHostToDevice))
        if not self.context.execute_v2([x, y]):
            raise RuntimeError("the engine failed")
        check(cudart.cudaMemcpy(out.ctypes.data, y, out.nbytes, kinds.cudaMemcpyDeviceToHost))
        for address in (x, y):
            check(cudart.cudaFree(address))
        return out


def refit(engine: trt.ICudaEngine, weights: dict[str, np.ndarray]) -> None:
    """Give the engine other weights by name. Raises RuntimeError if some are missing."""
    refitter = trt.Refitter(engine, LOGGER)
    known = refitter.get_all_weights()
    for name, array in weights.items():
        if name not in known:
            raise RuntimeError(f"no weights are named {name}: there are {', '.join(known)}")
        if not refitter.set_named_weights(name, trt.Weights(array)):
            raise RuntimeError(f"{name} does not fit")
    if missing := refitter.get_missing_weights():
        raise RuntimeError(f"weights are missing: {', '.join(missing)}")
    if not refitter.refit_cuda_engine():
        raise RuntimeError("the engine could not be refitted")


def main() -> None:
    args = arguments(__doc__)
    profile = {"images": (IMAGES, IMAGES, IMAGES)}
    engine = build(args.model, args.level, [profile], [trt.BuilderFlag.REFIT])
    rng = np.random.default_rng(0)
    images = rng.standard_normal(IMAGES).astype(np.float32)
    runner = Runner(engine)
    before = runner.scores(images)
    weights = {
        "fc.weight": rng.standard_normal((16, 10)).astype(np.float32),
        "fc.bias": rng.standard_normal(10).astype(np.float32),
    }
    refit(engine, weights)
    after = runner.scores(images)
    print(f"classes before {before.argmax(axis=1).tolist()}, after {after.argmax(axis=1).tolist()}")
    if args.output:
        np.savez(args.output, images=images, before=before, after=after, **weights)


if __name__ == "__main__":
    main()
