"""Exported networks at full size on the device, where TACTIX_MODELS names their folder: one plan
each, three shapes.

Beside NAME.onnx may lie NAME.npz, with inputs by name and outputs as ``out:0`` and so on; else
inputs are made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tactix

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
from test_real_models import FILES, FOLDER, check, make_inputs

pytestmark = [pytest.mark.gpu, pytest.mark.models]


ROUNDING = {"fp16": 0.02, "bf16": 0.15}
"""Departure of outputs, as root mean squares, beside those of the outputs in float32."""


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_one_plan_at_three_shapes(path: Path, device: Any) -> None:
    session = session_of(path)
    engine = tactix.build(path, device=device.key, level=1, timing_cache=False)
    for batch, length in ((1, 128), (3, 31), (2, 200)):
        check(engine, session, make_inputs(path, batch, length=length))


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def known(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Inputs and what a float32 network gives for them."""
    kept = path.with_suffix(".npz")
    if not kept.exists():
        feed = make_inputs(path, 1, length=128)
        return feed, list(session_of(path).run(None, feed))
    with np.load(kept) as arrays:
        outputs = sorted(
            (k for k in arrays.files if k.startswith("out:")), key=lambda k: int(k[4:])
        )
        return {k: arrays[k] for k in arrays.files if k not in outputs}, [
            arrays[k] for k in outputs
        ]


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_in_16_bits(path: Path, precision: str, device: Any) -> None:
    """What has no kernel in 16 bits costs no build, and what is lowered departs by no more than its
    rounding.
    """
    feed, want = known(path)
    engine = tactix.build(path, device=device.key, precision=precision, level=1, timing_cache=False)
    got = engine(**{io.name: feed[io.name] for io in engine.inputs})
    for w, g in zip(want, got.values() if isinstance(got, dict) else [got], strict=True):
        assert g.shape == w.shape
        if w.dtype.kind == "f" and w.size:
            apart, size = (
                float(np.sqrt(np.mean(np.square(np.asarray(a, np.float64))))) for a in (g - w, w)
            )
            assert apart <= ROUNDING[precision] * size, engine.plan.ledger["precision"]
