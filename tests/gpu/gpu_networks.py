"""The small networks of tests/models: where they are, random inputs for them, and their outputs by
name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tactix

MODELS = Path(__file__).parents[1] / "models"
NAMES = sorted(p.stem for p in MODELS.glob("*.onnx"))


def feed(engine: tactix.Engine, batch: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch * 100 + length)
    out = {}
    for io in engine.inputs:
        shape = [
            d if isinstance(d, int) else batch if i == 0 else length for i, d in enumerate(io.shape)
        ]
        if io.dtype.is_float:
            out[io.name] = rng.standard_normal(shape, dtype=np.float32)
        else:
            out[io.name] = (
                np.ones(shape, np.int64) if "mask" in io.name else rng.integers(0, 2, shape)
            )
    return out


def outputs(engine: tactix.Engine, arrays: dict[str, Any]) -> dict[str, Any]:
    y = engine(**arrays)
    return y if isinstance(y, dict) else {engine.outputs[0].name: y}
