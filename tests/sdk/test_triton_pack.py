"""The Triton example pack, installed by pip into a folder of its own, passes its own tests; what it skips, it says."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "examples" / "acme_triton"
PIP = ["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]


def test_the_pack_passes_its_tests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    command = [sys.executable, *PIP, "--target", str(tmp_path / "site"), str(source)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(source / "tests")]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    if importlib.util.find_spec("triton") is None:
        assert "Triton is not installed" in done.stdout
