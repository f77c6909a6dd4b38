"""Small relatives of real networks on the device, beside the same networks on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_networks import MODELS, NAMES, feed, outputs

import tactix

pytestmark = pytest.mark.gpu


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
            assert float(np.abs(got[k] - w).max()) <= 1e-4 * max(1.0, float(np.abs(w).max())), (
                k,
                batch,
                length,
            )
