"""What pyproject.toml cannot say: a wheel holds the modules that are there, not those of earlier
builds, and a checkout that is installed as it lies is found by its folders.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel


class FreshBuild(build_py):
    """Clears ``build/lib`` first, where setuptools would keep modules that were moved or removed
    since.
    """

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class EditableByFolders(editable_wheel):
    """Puts the roots of sources on the path.

    setuptools does that for one root alone, and else adds a finder that is asked last: once
    tactix-sdk is installed beside it, its folder ``tactix_sdk`` in site-packages, which has no
    ``__init__.py``, would be found in place of the package.
    """

    def _select_strategy(self, name: str, tag: str, build_lib: Any) -> Any:
        if self.mode:  # the user chose one
            return super()._select_strategy(name, tag, build_lib)
        from setuptools.command.editable_wheel import _StaticPth

        project = Path(self.project_dir)
        settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
        roots = settings["tool"]["setuptools"]["packages"]["find"]["where"]
        return _StaticPth(self.distribution, name, [project / root for root in roots])


setup(cmdclass={"build_py": FreshBuild, "editable_wheel": EditableByFolders})
