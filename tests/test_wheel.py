"""Wheels hold the modules that are there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
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


def test_files_beside_modules_come_along() -> None:
    """Every file in a root of sources is a module, a README, or of a kind in ``package-data``."""
    settings, sdk = (
        tomllib.loads((REPO / folder / "pyproject.toml").read_text())["tool"]["setuptools"]
        for folder in (".", "plugin_sdk")
    )
    patterns = [*settings["package-data"]["*"], *sdk["package-data"]["*"]]
    kinds = {Path(pattern).suffix or Path(pattern).name for pattern in patterns}
    roots = [REPO / root for root in settings["packages"]["find"]["where"]]
    files = [p for root in roots for p in root.rglob("*.*") if "egg-info" not in str(p)]
    others = {p.name for p in files if p.suffix not in {*kinds, ".py", ".md", ".pyc"}}
    assert others <= kinds | {"pyproject.toml"}
