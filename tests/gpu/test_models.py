"""Small relatives of real networks on the device, beside the same networks on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))

MODELS = Path(__file__).parents[1] / "models"
NAMES = sorted(p.stem for p in MODELS.glob("*.onnx"))

pytestmark = pytest.mark.gpu


def feed(engine: tactix.Engine, batch: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch * 100 + length)
    out = {}
    for io in engine.inputs:
        shape = [d if isinstance(d, int) else batch if i == 0 else length for i, d in enumerate(io.shape)]
        if io.dtype.is_float:
            out[io.name] = rng.standard_normal(shape, dtype=np.float32)
        else:
            out[io.name] = np.ones(shape, np.int64) if "mask" in io.name else rng.integers(0, 2, shape)
    return out


def outputs(engine: tactix.Engine, arrays: dict[str, Any]) -> dict[str, Any]:
    y = engine(**arrays)
    return y if isinstance(y, dict) else {engine.outputs[0].name: y}


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_cpu(name: str, device: Any) -> None:
    builder = tactix.Builder()
    engines = {}
    for key in ("tactix.cpu@1", device.key):
        config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=1, device=key)
        engines[key] = builder.build(builder.import_model(MODELS / f"{name}.onnx"), config)
    cpu, gpu = engines["tactix.cpu@1"], engines[device.key]
    for batch, length in ((1, 16), (3, 7), (2, 20)):
        arrays = feed(cpu, batch, length)
        want, got = outputs(cpu, arrays), outputs(gpu, arrays)
        for k, w in want.items():
            assert got[k].shape == w.shape
            assert float(np.abs(got[k] - w).max()) <= 1e-4 * max(1.0, float(np.abs(w).max())), (k, batch, length)
