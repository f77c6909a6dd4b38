"""Wheels hold the modules that are there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


def test_modules_of_earlier_builds_stay_out(tmp_path: Path) -> None:
    """setuptools copies what it finds in ``build/lib``, moved or not."""
    source = tmp_path / "source"
    shutil.copytree(REPO / "core", source / "core", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("plugins_builtin", "plugin_sdk"):
        (source / folder).mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    stale = source / "build" / "lib" / "tactix" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    make = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        ".",
    ]
    subprocess.run([*make, "-w", str(tmp_path)], cwd=source, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tactix/api.py" in names
    assert "tactix/gone.py" not in names
