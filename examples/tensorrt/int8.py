"""INT8 by a calibrator that reads samples and keeps scales in a file, and again by that file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorrt as trt
from common import LOGGER, arguments, check, parse
from cuda.bindings import runtime as cudart

BATCH = (4, 3, 32, 32)
BATCHES = 8


class Calibrator(trt.IInt8EntropyCalibrator2):
    """Batches on the device, one after the other; the scales in a file."""

    def __init__(self, batches: list[np.ndarray], cache: Path) -> None:
        trt.IInt8EntropyCalibrator2.__init__(self)
        self.batches, self.cache, self.given = iter(batches), cache, 0
        self.memory = check(cudart.cudaMalloc(batches[0].nbytes))

    def get_batch_size(self) -> int:
        return BATCH[0]

    def get_batch(self, names: list[str]) -> list[int] | None:
        batch = next(self.batches, None)
        if batch is None:
            return None
        to_device = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(self.memory, batch.ctypes.data, batch.nbytes, to_device))
        self.given += 1
        return [int(self.memory)]

    def read_calibration_cache(self) -> bytes | None:
        return self.cache.read_bytes() if self.cache.exists() else None

    def write_calibration_cache(self, cache: memoryview) -> None:
        self.cache.write_bytes(cache)

    def free(self) -> None:
        check(cudart.cudaFree(self.memory))


def build(model: Path, level: int, calibrator: Calibrator | None) -> trt.ICudaEngine:
    """In INT8 with a calibrator, else in floats. Raises RuntimeError."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    parse(network, model)
    config = builder.create_builder_config()
    config.builder_optimization_level = level
    profile = builder.create_optimization_profile()
    profile.set_shape("images", BATCH, BATCH, BATCH)
    config.add_optimization_profile(profile)
    if calibrator is not None:
        config.set_flag(trt.BuilderFlag.INT8)
        config.int8_calibrator = calibrator
        config.set_calibration_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("no engine was built")
    return trt.Runtime(LOGGER).deserialize_cuda_engine(plan)


def scores(engine: trt.ICudaEngine, images: np.ndarray) -> np.ndarray:
    context, kinds = engine.create_execution_context(), cudart.cudaMemcpyKind
    context.set_input_shape("images", images.shape)
    out = np.empty(tuple(context.get_tensor_shape("scores")), np.float32)
    x, y = check(cudart.cudaMalloc(images.nbytes)), check(cudart.cudaMalloc(out.nbytes))
    check(cudart.cudaMemcpy(x, images.ctypes.data, images.nbytes, kinds.cudaMemcpyHostToDevice))
    if not context.execute_v2([int(x), int(y)]):
        raise RuntimeError("the engine failed")
    check(cudart.cudaMemcpy(out.ctypes.data, y, out.nbytes, kinds.cudaMemcpyDeviceToHost))
    for address in (x, y):
        check(cudart.cudaFree(address))
    return out


def main() -> None:
    args = arguments(__doc__)
    cache = args.model.with_suffix(".cache")
    cache.unlink(missing_ok=True)
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal(BATCH).astype(np.float32) for _ in range(BATCHES)]
    images = rng.standard_normal(BATCH).astype(np.float32)
    found = {"images": images, "floats": scores(build(args.model, args.level, None), images)}
    for name in ("calibrated", "cached"):
        calibrator = Calibrator(samples, cache)
        found[name] = scores(build(args.model, args.level, calibrator), images)
        calibrator.free()
        error = np.abs(found[name] - found["floats"]).max()
        print(f"{name}: {calibrator.given} batches asked for, largest difference {error:.3g}")
    lines = cache.read_text().splitlines()
    print(f"{cache.name}: {lines[0]}, {len(lines) - 1} scales")
    if args.output:
        np.savez(args.output, **found)


if __name__ == "__main__":
    main()
