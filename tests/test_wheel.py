"""Wheels hold the modules that are there."""

from __future__ import annotations

import os
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


BESIDE = """
import site, sys
site.addsitedir(sys.argv[1])
from tactix_sdk import Pack
import tactix, tactix_ops, tactix_sdk.authoring.scaffold, tactix_sdk.testing
for module in (tactix, tactix_ops, tactix_sdk.testing):
    assert module.__file__.startswith(sys.argv[2]), module.__file__
"""


def test_the_sdk_can_be_installed_beside_a_checkout(tmp_path: Path) -> None:
    """Both have modules of the package ``tactix_sdk``."""
    site, source = tmp_path / "site", tmp_path / "source"
    for name in ("core", "plugins_builtin", "plugin_sdk"):
        shutil.copytree(REPO / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    for hook, folder in (("build_editable", source), ("build_wheel", source / "plugin_sdk")):
        make = f"from setuptools import build_meta; build_meta.{hook}({str(tmp_path)!r})"
        subprocess.run([sys.executable, "-c", make], cwd=folder, check=True, capture_output=True)
    for wheel in tmp_path.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)
    assert (site / "tactix_sdk" / "testing").is_dir()
    others = [p for p in sys.path if p.endswith("site-packages")]  # without what .pth files add
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(others)}
    command = [sys.executable, "-S", "-c", BESIDE, str(site), str(source)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_beside_modules_come_along() -> None:
    """Every file in a root of sources is a module, a README, or of a kind in ``package-data``."""
    settings, sdk = (
        tomllib.loads((REPO / folder / "pyproject.toml").read_text())["tool"]["setuptools"]
        for folder in (".", "plugin_sdk")
    )
    patterns = [*settings["package-data"]["*"], *sdk["package-data"]["*"]]
    kinds = {Path(pattern).suffix or Path(pattern).name for pattern in patterns}
    roots = [REPO / root for root in settings["packages"]["find"]["where"]]
    found = (p.relative_to(REPO) for root in roots for p in root.rglob("*.*"))
    files = [p for p in found if "egg-info" not in str(p) and "build" not in p.parts]
    others = {p.name for p in files if p.suffix not in {*kinds, ".py", ".md", ".pyc"}}
    assert others <= kinds | {"pyproject.toml"}
