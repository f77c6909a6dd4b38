"""The application's own test: needs tactix and the application installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_app import Limiter
from host_app.plugins import session

from tactix.plugins import loader

RNG = np.random.default_rng(1)


def expected(audio: Any, taps: int = 31, drive: float = 1.25) -> Any:
    window = np.hanning(taps + 2)[1:-1]
    smooth = [
        np.convolve(row.astype(np.float64), window / window.sum())[taps // 2 :][: row.size]
        for row in audio
    ]
    return np.tanh(np.array(smooth) * drive) / drive


@pytest.mark.parametrize("shape", [(1, 1), (2, 500), (3, 4097)])
def test_it_smooths_and_limits(limiter: Limiter, shape: tuple[int, int]) -> None:
    audio = 3 * RNG.standard_normal(shape).astype(np.float32)
    got = limiter(audio)
    np.testing.assert_allclose(got, expected(audio), rtol=1e-4, atol=1e-5)
    assert np.abs(got).max() <= 1 / 1.25


@pytest.fixture(scope="module")
def limiter() -> Limiter:
    return Limiter()


def test_the_applications_layer_runs_inside_the_convolution(limiter: Limiter) -> None:
    found = [
        s.info["layers"]
        for s in limiter.engine.plan.steps
        if "host_app.SoftLimit@1" in s.info["layers"]
    ]
    assert found == [["tactix.Convolution@1", "host_app.SoftLimit@1"]]


def test_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan() -> Any:
        raise AssertionError("installed plugins were looked for")

    monkeypatch.setattr(loader, "scan", scan)
    assert {p.namespace for p in session().found()} == {"tactix", "host_app"}


def test_installed_packs_and_the_users_files_are_left_alone(tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    info = site / "noisy-1.0.dist-info"
    for folder in (info, home):
        folder.mkdir(parents=True)
    (site / "noisy.py").write_text("raise SystemExit('a pack that stops every program')")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tactix.build.v1]\nnoisy = noisy\n[tactix.runtime.v1]\nnoisy = noisy\n"
    )
    audio = RNG.standard_normal((2, 300)).astype(np.float32)
    np.save(tmp_path / "in.npy", audio)
    paths = os.pathsep.join([str(site), *filter(None, sys.path)])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TACTIX_", "XDG_"))}
    env |= {"PYTHONPATH": paths, "HOME": str(home), "TACTIX_CACHE_DIR": str(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "host_app",
        str(tmp_path / "in.npy"),
        str(tmp_path / "out.npy"),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected(audio), rtol=1e-4, atol=1e-5)
    assert {p.name for p in home.rglob("*") if p.is_file()} == {"trust.json", "trust.json.lock"}
