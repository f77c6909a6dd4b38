"""What pyproject.toml cannot say: a wheel holds the modules that are there, not those of earlier
builds.
"""

from __future__ import annotations

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    """Clears ``build/lib`` first, where setuptools would keep modules that were moved or removed
    since.
    """

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild})
