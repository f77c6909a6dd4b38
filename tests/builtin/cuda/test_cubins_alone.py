"""Plans of our own kernels, built for a device that is not here, run where there is a driver and
nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import alone
import pytest

import tactix
from tactix_cuda.nvrtc import why_missing

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.onnx"))


def build(folder: Path, target: str) -> dict[str, Path]:
    """Plans of all small networks, by name."""
    builder, out = tactix.Builder(), {}
    for model in MODELS:
        config = tactix.BuilderConfig(
            device="tactix.cuda@1",
            target=target,
            tactic_sources={"cuda_c"},
            timing_cache=False,
            builder_optimization_level=0,
        )
        plan = builder.build_plan(builder.import_model(model), config)
        assert {s.artifact.launcher for s in plan.steps} == {"tactix.cuda.cubin@1"}
        out[model.stem] = folder / f"{model.stem}.plan"
        tactix.plan.container.save(plan, out[model.stem])
    return out


def run(which: str, plans: dict[str, Path], folder: Path | None = None) -> dict[str, Any]:
    found = alone.launch(which, list(plans.values()), folder)
    assert not found["libraries"]
    if which == "lean":
        assert found["packages"] == ["cuda", "numpy", "tactix_lean"]
    return {name: found[str(path)] for name, path in plans.items()}


def test_they_load_and_bind(tmp_path: Path) -> None:
    plans = build(tmp_path, "sm_90")
    assert len(plans) >= 11
    for name, found in run("fake", plans).items():
        assert found["steps"] > 0, name
        for sizes in ("1x16", "3x7"):
            assert found[sizes]["launches"] >= found["steps"] / 2, name
            assert found[sizes]["shapes"], name


def test_what_the_process_may_not_load() -> None:
    tried = """
import sys
sys.path[:0] = [{folder!r}]
import alone
alone.block("")
import ctypes
for name in ("cuda.bindings.nvrtc", "nvidia", "tactix_cuda.nvrtc"):
    try:
        __import__(name)
    except ImportError as e:
        assert "is not for this process" in str(e), e
    else:
        raise SystemExit(name)
for name in ("libnvrtc.so.13", "libcublasLt.so.13", "/usr/lib/libcudnn.so.9"):
    try:
        ctypes.CDLL(name)
    except OSError as e:
        assert "is not for this process" in str(e), e
    else:
        raise SystemExit(name)
"""
    text = tried.format(folder=str(Path(__file__).parent))
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert said.returncode == 0, said.stderr
