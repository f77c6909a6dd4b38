"""Packs of the scaffold put on the path as if pip had installed them, without the seconds that pip
takes.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tactix.plugins.loader import reset_scan
from tactix_sdk.authoring.scaffold import create
from tactix_sdk.testing import Subject

PIP = (
    "-m",
    "pip",
    "install",
    "--no-deps",
    "--no-build-isolation",
    "--no-index",
    "--disable-pip-version-check",
    "-q",
)
LEFTOVERS = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")


def pip_install(source: Path, root: Path) -> Path:
    """A new folder ``root/site`` with a package as pip installs it, made offline from a copy in
    ``root/source``.
    """
    shutil.copytree(source, root / "source", ignore=LEFTOVERS)
    command = [sys.executable, *PIP, "--target", str(root / "site"), str(root / "source")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "site"


def own_cache(folder: Path) -> str:
    """What TACTIX_CACHE_DIR is for timings of one's own, and the compiled kernels of all tests."""
    shared = Path(os.environ["TACTIX_CACHE_DIR"], "objects")
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    (folder / "objects").symlink_to(shared)
    return str(folder)


class Site:
    """A folder like site-packages, with children's PYTHONPATH in it."""

    def __init__(self, root: Path, monkeypatch: Any) -> None:
        self.root = root / "site"
        self.root.mkdir()
        self._work = root
        monkeypatch.syspath_prepend(str(self.root))
        monkeypatch.setenv("TACTIX_CACHE_DIR", own_cache(root / "cache"))

    def new(
        self, name: str, changes: Mapping[str, Callable[[str], str]] | None = None, **asked: Any
    ) -> Subject:
        """A pack by the scaffold, with some of its files changed."""
        folder = create(name, self._work, **asked)
        module = name.replace("-", "_")
        for path, change in (changes or {}).items():
            (folder / module / path).write_text(change((folder / module / path).read_text()))
        self.install(folder, module)
        return Subject(name)

    def install(self, folder: Path, module: str) -> None:
        """What pip would write: the package, and its metadata with a record."""
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        shutil.copytree(folder / module, self.root / module)
        info = self.root / f"{module}-{project['version']}.dist-info"
        info.mkdir()
        lines = [
            f"Name: {project['name']}",
            f"Version: {project['version']}",
            "Metadata-Version: 2.1",
            "",
            "",
        ]
        (info / "METADATA").write_text("\n".join(lines))
        points = [
            x
            for group, found in project["entry-points"].items()
            for x in (f"[{group}]", *(f"{k} = {v}" for k, v in found.items()), "")
        ]
        (info / "entry_points.txt").write_text("\n".join(points))
        files = [p for top in (self.root / module, info) for p in top.rglob("*") if p.is_file()]
        (info / "RECORD").write_text(
            "".join(f"{p.relative_to(self.root).as_posix()},,\n" for p in files)
        )
        (info / "top_level.txt").write_text(f"{module}\n")
        importlib.invalidate_caches()
        reset_scan()

    def close(self) -> None:
        """Forget what was imported from it."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "") or "").startswith(str(self.root)):
                del sys.modules[name]
        reset_scan()
