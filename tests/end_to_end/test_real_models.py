"""Exported networks at full size, where TACTIX_MODELS names their folder: one plan each, three
shapes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tactix
from tactix_inspect.onnx_export.plan import exported

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from cpu_peers import make_inputs

FOLDER = os.environ.get("TACTIX_MODELS", "")
FILES = sorted(Path(FOLDER).glob("*.onnx")) if FOLDER else []

pytestmark = pytest.mark.models


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_one_plan_at_three_shapes(path: Path, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    plan = tmp_path / "model.plan"
    tactix.build(path, level=1, timing_cache=tmp_path / "timings.json").save(plan)
    engine = tactix.load(plan)
    assert "tactix.numpy@1" not in {s["tactic"] for s in engine.inspect()["steps"]}
    assert engine.inspect()["memory"]["ratio"] <= 1.2
    for batch, length in ((1, 128), (3, 31), (2, 200)):
        check(engine, session, make_inputs(path, batch, length=length))


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_without_host_code(path: Path, tmp_path: Path) -> None:
    """A plan that is not trusted, on the references of its layers."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    tactix.build(path, level=1, timing_cache=tmp_path / "timings.json", sign=False).save(
        tmp_path / "model.plan"
    )
    quiet = tactix.Logger(tactix.Severity.ERROR)
    engine = tactix.load(tmp_path / "model.plan", logger=quiet, on_untrusted="references")
    assert {s.artifact.launcher for s in engine.plan.steps} == {"tactix.numpy@1"}
    check(engine, session, make_inputs(path, 1, length=31))


def check(
    engine: tactix.Engine, session: onnxruntime.InferenceSession, feed: dict[str, Any]
) -> None:
    got = engine(**feed)
    for w, g in zip(
        session.run(None, feed), got.values() if isinstance(got, dict) else [got], strict=True
    ):
        assert g.shape == w.shape
        shapes = {name: x.shape for name, x in feed.items()}
        assert float(np.abs(g - w).max()) <= 1e-4 * float(np.abs(w).max()), shapes


@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_plan_as_onnx(path: Path, tmp_path: Path) -> None:
    """The file of a plan's optimised network in ONNX Runtime, beside the model."""
    settings = tactix.Session(group="build")
    plan = tactix.build(path, level=1, timing_cache=tmp_path / "timings.json").plan
    made = exported(plan, settings.layers.__getitem__)
    assert not made.strange
    made.save(str(tmp_path / "plan.onnx"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    sessions = [
        onnxruntime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"])
        for p in (path, tmp_path / "plan.onnx")
    ]
    for batch, length in ((1, 128), (3, 31)):
        feed = make_inputs(path, batch, length=length)
        for w, g in zip(*(s.run(None, feed) for s in sessions), strict=True):
            assert g.shape == w.shape
            assert float(np.abs(g - w).max()) <= 1e-4 * float(np.abs(w).max())
