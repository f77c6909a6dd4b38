"""Exported float32 networks that nothing was tuned for, built with FP16 on the device, beside
torch's own float16.

TACTIX_MODELS names the folder that ``tests/models/architectures.py`` has written on a machine with
a GPU.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix

pytestmark = [pytest.mark.gpu, pytest.mark.models]

FOLDER = os.environ.get("TACTIX_MODELS", "")
FILES = (
    sorted(p for p in Path(FOLDER).glob("*.onnx") if p.with_suffix(".npz").exists())
    if FOLDER
    else []
)
LEAST, FACTOR = 1e-2, 3.0
"""What FP16 may cost, relative to the largest magnitude: some units of rounding, or a few times
what it costs torch.
"""


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_float16_departs_no_more_than_torch_does(path: Path, device: Any) -> None:
    known = dict(np.load(path.with_suffix(".npz")))
    answers = {int(k.partition(":")[2]): known.pop(k) for k in list(known) if k.startswith("out:")}
    halves = {int(k.partition(":")[2]): known.pop(k) for k in list(known) if k.startswith("half:")}
    shapes = {name: x.shape for name, x in known.items()}
    start = time.monotonic()
    engine = tactix.build(
        path, device="cuda", precision="fp16", shapes=shapes, timing_cache=False, level=2
    )
    built = time.monotonic() - start
    got = engine.create_execution_context().run(known)
    steps = [s.info.get("tactic", "") for s in engine.plan.steps]
    hosted = sum("host" in t or "numpy" in t for t in steps)
    worst = max(departure(got[io.name], answers[i]) for i, io in enumerate(engine.plan.outputs))
    torch = max((departure(h, answers[i]) for i, h in halves.items()), default=0.0)
    print(
        f"{path.stem}: {built:.1f} s, {len(steps)} steps, {hosted} on the host, departs {worst:.1e}, torch {torch:.1e}"
    )
    assert worst <= max(LEAST, FACTOR * torch)


def departure(got: Any, want: Any) -> float:
    """Largest difference relative to the largest magnitude; infinite where one is finite and the
    other is not.
    """
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    wide = np.asarray(want, np.float64)
    return float(
        np.abs(np.asarray(got, np.float64) - wide).max(initial=0.0)
        / max(np.abs(wide).max(initial=0.0), 1e-3)
    )
