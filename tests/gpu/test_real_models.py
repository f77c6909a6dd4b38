"""Exported networks at full size on the device, where TACTIX_MODELS names their folder: one plan each, three shapes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import tactix

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
from test_real_models import FILES, FOLDER, check, make_inputs

pytestmark = [pytest.mark.gpu, pytest.mark.models]


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_one_plan_at_three_shapes(path: Path, device: Any) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    engine = tactix.build(path, device=device.key, level=1, timing_cache=False)
    for batch, length in ((1, 128), (3, 31), (2, 200)):
        check(engine, session, make_inputs(path, batch, length=length))
